"""The counters of a training, fed by every batch and every optimizer step: the only code on the hot path.

A batch belongs to training only once an optimizer step follows. Until then it is pending with its source (a loader's
iterator), because a validation loop may well fetch its batches outside `no_grad`.
"""

import functools
import threading
import time
import weakref

from .batches import Layout

WRITE_EVERY_S = 1.0

MOST_CALLS_A_STEP = 256
"""Optimizer calls without a word from the Trainer, after which it is no longer waited for."""

perf_counter = time.perf_counter
get_ident = threading.get_ident


class Source:
    """One iterator of a loader: what it delivered since the last optimizer step.

    `looks_ahead`: its reader fetches one batch more than it hands on (accelerate does); that batch waits in `ahead`.
    """

    __slots__ = ("ahead", "batches", "exhausted", "first_s", "last_s", "layout", "looks_ahead", "padding", "samples",
                 "shape", "stepped", "tokens", "wait_s")  # fmt: skip

    def __init__(self, looks_ahead=False):
        self.layout = None
        self.ahead = None
        self.looks_ahead = looks_ahead
        self.shape = ()
        self.stepped = self.exhausted = False
        self.clear()

    def began(self):
        """A new epoch begins."""
        self.exhausted = False
        self.ahead = None

    def add(self, shape, tokens, padding):
        """A batch was handed to the training."""
        self.batches += 1
        if shape:
            self.shape = shape
            self.samples += shape[0]
        if tokens is not None:
            self.tokens = tokens + (self.tokens or 0)
        if padding is not None:
            self.padding = padding + (self.padding or 0)

    def clear(self):
        self.batches = self.samples = 0
        self.tokens = self.padding = None
        self.wait_s = self.last_s = 0.0
        self.first_s = None


class Counters:
    """Cumulative since the start of this process; `first_step` is added to give the step of the whole training."""

    def __init__(self, session, tensor_type, grad_enabled, peaks):
        """`grad_enabled`: torch.is_grad_enabled. `peaks`: gives the memory fields of a line."""
        self.session = session
        self.tensor_type = tensor_type
        self.grad_enabled = grad_enabled
        self.peaks = peaks
        self.on_flush = []
        self.first_step = 0
        self.reset()
        session.step_of = lambda: self.step

    def reset(self):
        self.own_steps = self.micro_steps = self.samples = self.skipped_steps = 0
        self.tokens = self.padding = None
        self.train_s = self.data_wait_s = self.eval_s = self.save_s = 0.0
        self.slowest_s = 0.0
        self.shape = ()
        self.pending = []
        self.optimizers = set()
        self.paused_since = None
        self.evaluations = 0
        self.eval_module = None
        self.trusts_eval_mode = True
        self.resumed_s = None
        self.excluded_s = 0.0
        self.next_write_s = 0.0
        self.written_steps = -1
        self.last_pause_s = None
        self.calls = 0
        self.trainer_calls = None
        self.thread = get_ident()

    # batches

    def watch_eval_mode(self, module_class):
        """Notice `model.eval()` (not `train()`, which Trainer calls on every module at every step)."""
        original = module_class.eval
        counters = self

        @functools.wraps(original)
        def eval(self):
            if counters.own_steps and counters.trusts_eval_mode and get_ident() == counters.thread:
                counters.eval_module = weakref.ref(self)
            return original(self)

        module_class.eval = eval

    def _judge_eval_mode(self):
        """A step with the model still in eval mode: it is a frozen teacher, or eval mode means nothing in this loop."""
        module = self.eval_module()
        if module is not None and not module.training:
            self.trusts_eval_mode = False
        self.eval_module = None

    def evaluating(self):
        """Whether what runs now is no training: inside an evaluation, without gradients, or with a model in eval mode."""
        if self.evaluations or not self.grad_enabled():
            return True
        if self.eval_module is None:
            return False
        module = self.eval_module()
        if module is None or module.training:
            self.eval_module = None
            return False
        return True

    def waiting(self, source, began_s):
        """Before a batch is fetched. Returns whether it is for training."""
        self.session.in_optimizer = False
        if self.evaluating():
            self.pause("evaluating", began_s)
            return False
        if self.paused_since is not None:
            self.resume(began_s)
        if self.resumed_s is None:
            self.resumed_s = began_s
            if self.session.phase == "starting":
                self.session.enter("training")
        return True

    def fetched(self, source, batch, began_s, ended_s):
        """A training batch arrived."""
        if source.first_s is None:
            source.first_s = began_s
            self.pending.append(source)
        source.last_s = ended_s
        if get_ident() == self.thread:
            source.wait_s += ended_s - began_s
        layout = source.layout
        if layout is None or layout.batch_type is not type(batch):
            layout = source.layout = Layout(batch, self.tensor_type)
        measured = layout.measure(batch)
        if source.looks_ahead:
            measured, source.ahead = source.ahead, measured
        if measured is not None:
            source.add(*measured)

    def waited_in_vain(self, source, began_s, ended_s):
        """The loader had no more batches: the wait counts, and a source that never trained was an evaluation's."""
        source.exhausted = True
        source.last_s = ended_s
        if source.ahead is not None:
            if source.first_s is None:
                source.first_s = began_s
                self.pending.append(source)
            source.add(*source.ahead)
            source.ahead = None
        if source.first_s is not None and get_ident() == self.thread:
            source.wait_s += ended_s - began_s

    # steps

    def stepped(self, optimizer, skipped=False):
        """An optimizer stepped. Several optimizers that take turns make one step together."""
        self.calls += 1
        if self.trainer_calls is not None:
            self._stepped_under_trainer(skipped)
            return
        key = id(optimizer)
        optimizers = self.optimizers
        if optimizers and key not in optimizers:
            optimizers.add(key)
            return
        optimizers.clear()
        optimizers.add(key)
        if skipped:
            self.skipped_steps += 1
        self._step_done()

    def follow_trainer(self):
        """A Trainer says itself when a step is done: its optimizer may be called more or less often than that."""
        self.trainer_calls = 0

    def trainer_stepped(self):
        """The Trainer finished a step."""
        if self.trainer_calls is not None:
            self.trainer_calls = 0
            self._step_done()

    def trainer_ended(self):
        """The Trainer's loop is over: the last counters are written."""
        self.trainer_calls = None
        self.optimizers.clear()
        self.flush()

    def _stepped_under_trainer(self, skipped):
        """Count nothing, unless this Trainer turns out never to say when a step is done."""
        self.trainer_calls += 1
        if skipped:
            self.skipped_steps += 1
        if self.trainer_calls > MOST_CALLS_A_STEP:
            self.trainer_calls = None

    def _step_done(self):
        now = perf_counter()
        self.own_steps += 1
        if self.eval_module is not None:
            self._judge_eval_mode()
        if self.paused_since is not None and not self.evaluations:
            self.resume(now)
        if self.pending:
            self._commit()
        if self.resumed_s is not None:
            seconds = now - self.resumed_s - self.excluded_s
            self.train_s += seconds
            if seconds > self.slowest_s:
                self.slowest_s = seconds
        self.resumed_s = now
        self.excluded_s = 0.0
        if self.session.phase != "training" and not self.evaluations:
            self.session.enter("training")
        if now >= self.next_write_s:
            self.flush(now)

    def _commit(self):
        """Pending batches are training's, except those of a source that was read to its end and never made a step."""
        pending = self.pending
        several = len(pending) > 1
        for source in pending:
            if several and source.exhausted and not source.stepped:
                self._count_as_evaluation(source)
            else:
                self._count_as_training(source)
            source.clear()
        pending.clear()

    def _count_as_training(self, source):
        source.stepped = True
        self.micro_steps += source.batches
        self.samples += source.samples
        self.data_wait_s += source.wait_s
        if source.shape:
            self.shape = source.shape
        if source.tokens is not None:
            self.tokens = source.tokens + (self.tokens or 0)
        if source.padding is not None:
            self.padding = source.padding + (self.padding or 0)

    def _count_as_evaluation(self, source):
        seconds = source.last_s - source.first_s
        self.eval_s += seconds
        self.excluded_s += seconds

    # pauses: evaluation and saving

    def pause(self, phase, now=None):
        """Training stands still for an evaluation or a checkpoint. Returns whether it ran before."""
        if self.paused_since is not None:
            self.session.settle_phase()
            return False
        now = perf_counter() if now is None else now
        self.paused_since = (phase, now, self.session.phase)
        if self.resumed_s is not None:
            self.train_s += now - self.resumed_s - self.excluded_s
            self.excluded_s = 0.0
        if self.session.enter(phase) and self.own_steps:
            self.flush(now)
        return True

    def resume(self, now=None):
        """Training goes on."""
        if self.paused_since is None:
            return
        phase, since, before = self.paused_since
        now = perf_counter() if now is None else now
        if phase == "saving":
            self.save_s += now - since
        else:
            self.eval_s += now - since
        self.paused_since = None
        if self.resumed_s is not None:
            self.resumed_s = now
        self.session.enter(before if before in ("starting", "skipping", "ending") else "training")

    def paused_for(self):
        """Seconds of the present pause so far; None while training runs."""
        return None if self.paused_since is None else round(perf_counter() - self.paused_since[1], 6)

    def skipped(self, accumulation):
        """What was fetched so far was skipped on resume, but for the batches of the first step."""
        for source in self.pending:
            if source.batches > accumulation:
                share = accumulation / source.batches
                source.batches = accumulation
                source.samples = round(source.samples * share)
                source.tokens = None if source.tokens is None else round(source.tokens * share)
                source.padding = None if source.padding is None else round(source.padding * share)
                source.wait_s *= share
        self.resumed_s = perf_counter()

    # lines

    @property
    def step(self):
        return self.first_step + self.own_steps

    def flush(self, now=None):
        """Write the counters, if this process trains; then let the others look around."""
        now = perf_counter() if now is None else now
        self.next_write_s = now + WRITE_EVERY_S
        session = self.session
        if not session.opened:
            session.open()
        session.settle_phase()
        self.written_steps = self.own_steps
        session.count("steps", self._fields())
        self.slowest_s = 0.0
        for look in self.on_flush:
            look()
        if self.own_steps <= 1 and self.resumed_s is not None:
            self.resumed_s = perf_counter()  # the first look seeks the model: no part of the training's time

    def _fields(self):
        paused, seconds = None, 0.0
        if self.paused_since is not None:
            paused, seconds = self.paused_since[0], self.paused_for()
        eval_s = self.eval_s + (seconds if paused == "evaluating" else 0.0)
        save_s = self.save_s + (seconds if paused == "saving" else 0.0)
        fields = {
            "step": self.step,
            "own_steps": self.own_steps,
            "micro_steps": self.micro_steps,
            "samples": self.samples,
            "tokens": self.tokens,
            "padding_tokens": self.padding,
            "train_s": round(self.train_s, 6),
            "data_wait_s": round(self.data_wait_s, 6),
            "eval_s": round(eval_s, 6),
            "save_s": round(save_s, 6),
            "skipped_steps": self.skipped_steps,
            "slowest_step_s": round(self.slowest_s, 6) or None,
            "batch_shape": [int(size) for size in self.shape] or None,
        }
        fields.update(self.peaks())
        return fields
