"""Counters of a training, computed from the records of every batch and every optimizer step.

The hot path appends the records to a buffer, which the counters read about once a second.
"""

from __future__ import annotations

import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from types import FrameType
from typing import Any
from weakref import ReferenceType, WeakKeyDictionary

from ..import_hooks import call_safely
from ..process_role import is_alone, is_distributed
from ..session import Session
from .batch_stats import ALWAYS_COUNTED_MASKS, BatchLayout, IteratorStats, TrainingTotals
from .evaluation import EvaluationDetector, EvaluationSites, StepGapClassifier
from .planned_length import PlannedLength
from .record_buffer import GROUP_KEY, TRAINER_KEY, RecordBuffer
from .training_clock import TrainingClock

MAX_MASK_RECORDS = 16
"""Maximum number of unread records that hold a mask."""
RECENT_CALLS = 16
"""An optimizer that has not been called in as many calls has no part in the training at this moment."""

MAX_PRINTED = 128
"""Steps after which something was printed, of which one `steps` event has the output."""

WRITE_INTERVAL_S = 1.0
MAX_OPTIMIZER_CALLS = 256
"""Optimizer calls without a step reported by the Trainer, after which optimizer calls are counted again."""

MAX_STEPS_OF_A_BATCH = 32
"""A loader may give one for the rollouts of so many steps."""

perf_counter = time.perf_counter


class StepCounters:
    """Cumulative counters of this process. `first_step` + `own_steps` is the step of the whole training.

    A batch counts as trained only when an optimizer step follows. Until then it is pending with its iterator, because a
    validation loop may fetch its batches with gradients enabled.

    Every method that reads or changes the counters reads the buffer first; `own_steps` is as of the last read.
    `on_step` is called after every step if it is set, as in a trial; `on_evaluation` when an evaluation begins,
    `on_save` when a file is saved. `on_batches` gets each step, the calls of `backward` so far, and the iterators whose
    batches it consumed; `on_resumed` the steps of the processes before, after the first step of this one. `optimizers`:
    how many step alternately, as in a GAN. `count_ended_group` counts a step seen by calls of `backward` that has
    ended; see `group_ended`. `trainer_reports`: a Trainer tells the length of the training; `trainer_logs`: it has told
    a loss; `trains_alone`: it shares a step with no other process. `wait_is_known`: the training computes on the CPU,
    where the time in a call is that of its work.
    """

    def __init__(
        self,
        session: Session,
        tensor_type: type,
        evaluation: EvaluationDetector,
        memory_fields: Callable[[], dict[str, int | None]],
    ) -> None:
        self.session = session
        self.evaluation = evaluation
        self.buffer = RecordBuffer()
        self.on_flush: list[Callable[[], None]] = []
        self.on_step: Callable[[], None] | None = None
        self.count_ended_group: Callable[[], None] = lambda: None
        self.on_evaluation: Callable[[], None] = lambda: None
        self.on_save: Callable[[], None] = lambda: None
        self.on_batches: Callable[[int, int, list[IteratorStats]], None] = lambda *_: None
        self.on_resumed: list[Callable[[int], None]] = []
        self._tensor_type = tensor_type
        self.memory_fields = memory_fields
        self.reset()
        session.get_step = lambda: self.step

    def reset(self) -> None:
        self.buffer.clear()
        self.evaluation.reset()
        self.evaluation_sites = EvaluationSites()
        self.clock = TrainingClock(self.session, self._before_pause, lambda: self.trainer_reports)
        self._gap_classifier = StepGapClassifier()
        self.first_step = self.own_steps = self.written_steps = 0
        self._rank_wait_s = 0.0
        self._distributed = False
        self.optimizers = 1
        self.wait_is_known = True
        self._totals = TrainingTotals()
        self._fed_steps = self._unfed_steps = 0
        self._masked: BatchLayout | None = None
        self._pending: list[IteratorStats] = []
        self._read_in_eval_mode: IteratorStats | None = None
        self._failed: IteratorStats | None = None
        self._alternating: set[int] = set()
        self._joined: int | None = None
        self._alone: int | None = None
        self._repeated = self._plans_again = False
        self._trainer_calls: int | None = None
        self._next_write_s = 0.0
        self._epochs: WeakKeyDictionary[Any, int] = WeakKeyDictionary()
        self.trainer_reports = self.trainer_logs = self.trains_alone = False
        self._planned: PlannedLength | None = None
        self._planned_from = 0
        self._accumulated: dict[int, int] = {}
        self._epoch: tuple[int | None, int] = (None, 0)
        self._first_epoch: tuple[int | None, int] = (None, 0)
        self._plan: tuple[int | None, int | None] = (None, None)
        self._newest_plan: tuple[int | None, int | None] = (None, None)
        self._gradients_s: float | None = None
        self._backwards: dict[int, int] = {}
        self._read_calls = 0
        self._last_calls: dict[int, int] = {}
        self._thread = threading.get_ident()
        self._output = 0
        self._printed: deque[tuple[int, int]] = deque(maxlen=MAX_PRINTED)

    @property
    def step(self) -> int:
        """Step of the whole training."""
        self.read()
        return self.first_step + self.own_steps

    @property
    def has_trained(self) -> bool:
        """Whether there was a step, or a call of `backward` in a loop without an optimizer."""
        return self.step > self.first_step or (not self.buffer.optimizers and self.buffer.backwards > 0)

    @property
    def has_loader(self) -> bool:
        """Whether a DataLoader has delivered batches for a step, or for one that has not ended."""
        return self._totals.has_loader or bool(self._pending)

    @property
    def accumulation(self) -> int | None:
        """The micro batches of at least half of the steps, the smaller of two such numbers; None if there is none."""
        steps = sum(self._accumulated.values())
        return min((number for number, count in self._accumulated.items() if 2 * count >= steps), default=None)

    @property
    def was_fed_once(self) -> bool:
        """Whether a loader was read before the first step alone, and many steps have followed."""
        return self._totals.has_loader and self._fed_steps == 1 and self._unfed_steps > MAX_STEPS_OF_A_BATCH

    @property
    def recent_optimizers(self) -> frozenset[int] | None:
        """The optimizers of the last calls, by `id`; None if there were few calls, or where a Trainer reports."""
        if self._read_calls < RECENT_CALLS or self.trainer_reports:
            return None
        return frozenset(key for key, call in self._last_calls.items() if self._read_calls - call < RECENT_CALLS)

    def forget_loader(self) -> tuple[int, int]:
        """Count as without a loader from now on. Returns the samples of a batch that it gave, and of all."""
        delivered = self._totals.forget_loader()
        self._totals.count_without_loader(max(self.buffer.backwards, self.own_steps))
        return delivered

    def set_batch(self, rows: int | None) -> None:
        """Set the samples of a micro batch of a training without a loader."""
        self._totals.set_rows(rows)

    def read(self) -> None:
        """Process the buffered records. A batch that was read since a step ended is of the next one."""
        if not self.buffer.optimizers:
            self.count_ended_group()
        for record in self.buffer.take():
            if len(record) == 4:
                key, now, backwards, output = record
                # A group is seen to have ended when the next one begins, with what was printed after it.
                if key == GROUP_KEY:
                    self._optimizer_called(key, now, backwards)
                if output > self._output:
                    self._output = output
                    self._printed.append((self.first_step + self.own_steps, output))
                if key != GROUP_KEY:
                    self._optimizer_called(key, now, backwards)
            else:
                iterator, began_s, ended_s, thread, measured = record
                self._waited(iterator, began_s, ended_s, thread)
                iterator.deliver(iterator.count_tokens(measured) if measured[2] else measured)

    def invalidate(self) -> None:
        """Process what was buffered so far, and what comes next immediately, because the state changes."""
        self.read()
        self.buffer.invalidate()

    def mode_changes(self) -> None:
        """A model is about to enter eval mode: a step that has ended was not made in it."""
        self.count_ended_group()
        self.invalidate()

    # batches

    def batch_requested(self, began_s: float, iterator: IteratorStats) -> bool:
        """Called before a batch is fetched unless the buffer is steady. Returns whether it is for training."""
        self.read()
        if self.evaluation.is_evaluating(iterator.has_trained):
            self._requested_in_evaluation(iterator)
            self.pause("evaluating", began_s)
            return False
        # Training time counts from the request of the first batch that is not an evaluation's, so that imports, loading
        # of the model and tokenising are no part of it.
        if self.clock.paused_phase == "evaluating" and iterator in self._pending and not iterator.has_trained:
            return True  # an evaluation whose gradients are disabled for each batch
        if not self.clock.is_running:
            self.clock.start(began_s)
        # Until the state changes again (`invalidate`), the hot path need not come here for a batch.
        self.buffer.steady = self.evaluation.is_ruled_out
        return True

    def _requested_in_evaluation(self, iterator: IteratorStats) -> None:
        """An evaluation's first batch is requested before its model is in eval mode if the loop's body changes modes,
        and the training's first batch after it before the model is in train mode: see `_commit`.
        """
        if not iterator.has_trained and iterator in self._pending:
            self._pending.remove(iterator)
            iterator.clear()
        if self.evaluation.is_in_eval_mode:
            iterator.in_eval_mode += 1
            self._read_in_eval_mode = iterator

    @property
    def _seemed_evaluated(self) -> IteratorStats | None:
        """The iterator whose only batch since the last step was requested in eval mode."""
        last = self._read_in_eval_mode
        return last if last is not None and last.in_eval_mode == 1 and self._totals.has_loader else None

    def next_epoch(self, loader: ReferenceType[Any]) -> int:
        """Count the epochs of a loader that was trained with. One that is gone was made for a single epoch."""
        alive = loader()
        if alive is None:
            return 1
        self._epochs[alive] = epoch = self._epochs.get(alive, 0) + 1
        return epoch

    def layout_of(self, iterator: IteratorStats, batch: Any) -> BatchLayout:
        """Determine the layout from the first batch of its type."""
        always_counted = ALWAYS_COUNTED_MASKS if self._masked is None else self._masked.first
        layout = iterator.layout = BatchLayout(batch, self._tensor_type, always_counted)
        if layout.mask_at is not None:
            self._masked = layout
        return layout

    def loader_exhausted(self, iterator: IteratorStats, began_s: float, ended_s: float) -> None:
        """Add the time spent on finding that there are no more batches, and close the iterator."""
        self.read()
        if iterator.first_s is not None or iterator.prefetched is not None:
            self._waited(iterator, began_s, ended_s, threading.get_ident())
        iterator.end()

    def loading_failed(self, iterator: IteratorStats) -> None:
        """Note the iterator that could not load its next batch."""
        self.read()
        iterator.loading_failed()
        self._failed = iterator

    @property
    def unfinished(self) -> list[IteratorStats]:
        """The iterator that failed to load a batch, else those of which no step has consumed the batches."""
        return self._pending if self._failed is None else [self._failed]

    def _waited(self, iterator: IteratorStats, began_s: float, ended_s: float, thread: int) -> None:
        if iterator.first_s is None:
            iterator.first_s = began_s - iterator.wait_s  # with the start of its workers
            self._pending.append(iterator)
        iterator.last_s = ended_s
        if thread == self._thread:
            iterator.wait_s += ended_s - began_s
        else:
            iterator.other_thread = True

    def skipped_batches(self, accumulation: int) -> None:
        """Drop the batches skipped when resuming, except those of the first step."""
        self.read()
        for iterator in self._pending:
            iterator.keep_last(accumulation)
        self.clock.restart(perf_counter())

    def waited_for_ranks(self, seconds: float) -> None:
        """Add time in a call that waits for other ranks, outside evaluations and checkpoints."""
        if self.clock.is_running:
            self._rank_wait_s += seconds

    # pauses

    def pause(self, phase: str, now: float) -> bool:
        """Pause for an evaluation or a checkpoint. Returns whether training was running."""
        if self.clock.paused_phase is None:
            self.count_ended_group()
        self.invalidate()
        self._gradients_s = None
        self.buffer.paused = True
        began = self.clock.pause(phase, now)
        if began and phase == "evaluating":
            self.on_evaluation()
        return began

    def end_pause(self, now: float) -> None:
        self.read()
        self.clock.end_pause(now)

    def backward_called(self, now: float) -> None:
        """End an evaluation: that its model is in train mode again is the only sign of its end."""
        if self.clock.paused_phase == "evaluating":
            if self.evaluation.depth or self.evaluation.is_in_eval_mode:
                return
            self.read()
            self.clock.end_pause(now if self._gradients_s is None else self._gradients_s)
        self.buffer.paused = False

    def gradients_follow(self, now: float) -> None:
        """Gradients are enabled at `now`. An evaluation ends with that, unless its model remains in eval mode."""
        if not self.evaluation.depth and not self.evaluation.is_in_eval_mode:
            self.read()
            self.clock.end_pause(now)
        self._gradients_s = now

    def gradients_enabled(self, now: float) -> None:
        """Gradients are enabled at `now`, maybe until the next batch of an evaluation."""
        if self.clock.paused_phase == "evaluating":
            self._gradients_s = now

    def end_evaluation(self) -> None:
        """End an evaluation that no call of `backward` will end."""
        if self.clock.paused_phase == "evaluating" and self._gradients_s is not None:
            self.clock.end_pause(self._gradients_s)

    def compiling(self) -> None:
        """Enter the phase `compiling`, which the next step ends."""
        self.invalidate()
        if self.session.phase in ("starting", "training"):
            self.session.enter_phase("compiling")

    def optimizer_added(self, frame: FrameType) -> None:
        """Note the first step of an optimizer: what seemed an evaluation just before it was needed for the step."""
        if self.evaluation_sites.optimizer_added(self.buffer.calls, frame):
            self.clock.drop_evaluation()

    # steps

    def process_step(self, now: float) -> None:
        """Process buffered records after a step, and write the counters when they are due."""
        self.read()
        if now >= self._next_write_s and self.own_steps > self.written_steps:
            if self._plans_again:
                self._plans_again = False
                self.set_plan(call_safely(PlannedLength, sys._getframe(1)))
                self._planned_from -= 1  # its first step seemed to be one with the last of the loop before
            if self._planned is not None:
                steps, ahead = self.own_steps - self._planned_from, int(not self.buffer.optimizers)
                call_safely(self._planned.follow, sys._getframe(1), steps, ahead)
            self.evaluation.note_mode()
            self.flush(now)
        self.buffer.due_s = self._next_write_s
        if self.on_step is not None:
            self.on_step()
            self.buffer.due_s = 0.0

    def step_skipped(self, optimizer: object, made: int) -> None:
        """Count a step for which the gradient scaler did not call the optimizer, which has counted those `made`."""
        self.read()
        if not (self.own_steps or self.first_step or self.trainer_reports):
            self.first_step = made
        now = perf_counter()
        self._optimizer_called(id(optimizer), now, self.buffer.backwards)
        self.process_step(now)

    def calls(self) -> int:
        """Calls of optimizers so far; where none is torch's, the steps seen by calls of `backward`."""
        self.count_ended_group()
        return self.buffer.calls or self.own_steps

    def group_ended(self, written: int, now: float) -> None:
        """Count a step seen by calls of `backward`, after so many records: what follows these is of the next step."""
        self.buffer.insert((GROUP_KEY, now, self.buffer.backwards, self.session.output_size() or 0), written)
        self.read()

    def drop_steps(self, steps: int) -> None:
        """Take back steps that were none: an optimizer of torch steps only now."""
        self.own_steps -= steps
        self._planned = None

    def set_first_step(self, global_step: int) -> None:
        """Set the step of the whole training at which this process resumed."""
        self.read()
        self.first_step = global_step - self.own_steps

    def follow_trainer(self, global_step: int) -> None:
        """From now on count the steps that a Trainer reports; it may call its optimizer more or less often."""
        self.set_first_step(global_step)
        self._trainer_calls, self._alone = 0, None

    def trainer_stepped(self) -> None:
        """Record a step reported by the Trainer."""
        now = perf_counter()
        self.buffer.records.append((TRAINER_KEY, now, self.buffer.backwards, 0))
        if now >= self.buffer.due_s:
            self.process_step(now)

    def trainer_ended(self) -> None:
        """Write the last counters and stop the clock until another training begins."""
        self.read()
        self._trainer_calls = self._alone = None
        self._alternating = set()
        self.flush()
        self.buffer.invalidate()
        self.clock.stop()

    def _optimizer_called(self, key: int, now: float, backwards: int) -> None:
        """Count a step. Several optimizers that alternate make one step together; a batch between them makes two."""
        gradients = backwards - self._backwards.get(key, 0)
        self._backwards[key] = backwards
        self._read_calls += 1
        self._last_calls[key] = self._read_calls
        if gradients > 0 and not self._totals.has_loader:
            self._accumulated[gradients] = self._accumulated.get(gradients, 0) + 1
        if key == self._alone:  # nearly every step: the optimizer of the two steps before
            self._step_done(now, backwards)
        elif self._trainer_calls is not None:
            self._optimizer_called_by_trainer(key, now, backwards)
        elif key == TRAINER_KEY:
            return
        elif not self._pending and not self._seemed_evaluated and self.buffer.is_alternating(key, self._alternating):
            # Optimizers that step without a batch between them, as the discriminator and the generator of a GAN do,
            # make one step: counting each would show twice the steps and half the batches. A batch in between, or the
            # same optimizer again, begins a new step. `_joined` is the optimizer that last took part in such a step.
            self._alternating.add(key)
            self.optimizers = max(self.optimizers, len(self._alternating))
            self._joined, self._alone = key, None
            self.clock.optimizer_stepped(now)
        else:
            # The optimizer that joined the last step comes back alone, after the other had stepped twice in a row: they
            # do not alternate, one has replaced the other, as where layers are trained in turn. What joined was a step.
            if key == self._joined and self._repeated:
                self.own_steps += 1
                self._alternating = {key}
                self.optimizers, self._plans_again = 1, True
            self._joined, self._repeated = None, self._alternating == {key}
            self._alternating = {key}
            self._alone = key if self._repeated else None
            self._step_done(now, backwards)

    def _optimizer_called_by_trainer(self, key: int, now: float, backwards: int) -> None:
        """Count only steps reported by the Trainer, unless it turns out to report none."""
        if key == TRAINER_KEY:
            self._trainer_calls = 0
            self._step_done(now, backwards)
            return
        assert self._trainer_calls is not None
        self._trainer_calls += 1
        if self._trainer_calls > MAX_OPTIMIZER_CALLS:
            self._trainer_calls = None

    def _step_done(self, now: float, backwards: int) -> None:
        self.own_steps += 1
        self.evaluation.step_done(self.first_step + self.own_steps)
        # Gradients came back but no batch was requested since: the loop has no loader, or evaluates between fetching
        # its batch and using it. The evaluation ended with the gradients, the rest of the time was training.
        if self._gradients_s is not None and not self.evaluation.depth:
            self.clock.end_pause(self._gradients_s)  # an evaluation that no batch of the training ended
        self._gradients_s = None
        self._commit(now, backwards)
        self.clock.step(now, resumes=not self.evaluation.depth)

    def _commit(self, now: float, backwards: int) -> None:
        """Add the pending batches to the totals, except those that prove to be an evaluation's.

        Without a loader a step has a micro batch for each call of `backward`, and at least one. A step without a batch
        in a training with a loader consumed the one that was requested in eval mode last.
        """
        if not self._totals.has_loader and len(self._pending) > 1:
            self._drop_looks()
        spans, trained = self.buffer.no_grad_spans, self._pending
        # Nearly every step: one loader, nothing without gradients. Only the other steps pay for the classification.
        if len(self._pending) < 2 and (not spans or spans[0][1] > now):
            self._gap_classifier.skipped = True
        else:
            evaluations, evaluated = self._gap_classifier.classify(self._pending, spans, now)
            for began_s, ended_s in evaluated:
                self.clock.add_evaluation(began_s, ended_s, self.first_step + self.own_steps - 1)
            trained = [iterator for iterator in self._pending if iterator not in evaluations]
        if trained and trained[0].first_s is not None and not trained[0].other_thread:
            self.clock.batch_requested(trained[0].first_s)
        # A loop that calls `train()` in its body fetches the first batch after an evaluation while the model is still
        # in eval mode. It is known to be the training's only now that a step follows without any other batch.
        last = None if trained else self._seemed_evaluated
        if last is not None:
            last.add_in_eval_mode()
            trained = self._pending = [last]
        self._read_in_eval_mode = None
        for iterator in trained:
            self._totals.add(iterator)
        # Batches of several loaders make one micro batch together.
        micro_batches = max((each.batches for each in trained), default=0)
        if micro_batches > 0:
            self._accumulated[micro_batches] = self._accumulated.get(micro_batches, 0) + 1
        epoch = self._totals.epoch
        if epoch != self._epoch[0]:
            new_loader = (epoch or 0) < (self._epoch[0] or 0)  # as of the next fold
            self._epoch = (epoch, self.own_steps - 1)
            self._first_epoch = self._epoch if new_loader else self._first_epoch
        self._unfed_steps = 0 if trained else self._unfed_steps + 1
        self._fed_steps += bool(trained)
        if not trained and not self._totals.has_loader:
            self._totals.count_without_loader(max(backwards, self._totals.batches + (not backwards)))
        self.on_batches(self.first_step + self.own_steps, backwards, trained)
        for iterator in self._pending:
            iterator.clear()
        self._pending.clear()

    def _drop_looks(self) -> None:
        """Drop the batches that were only looked at before the first step, as in `next(iter(loader))`."""
        kept = [each for each in self._pending if each.exists() is not None]
        if kept and len(kept) < len(self._pending):
            self._pending = kept
            self.clock.restart(min(each.first_s or each.last_s for each in kept))

    # the length of a plain loop

    def needs_plan(self) -> bool:
        """Whether the loop of a new optimizer is the first one, or another one after all planned steps were made."""
        self.read()
        return self._planned is None or (self._plan[0] is not None and self.own_steps > self._plan[0])

    def set_plan(self, planned: PlannedLength | None, made: int = 0) -> None:
        """Set what the loop that has made its first step says of its length, and its optimizer of the steps `made`.

        The first loop of a process may continue another process's.
        """
        is_first = self._planned is None and not (self.first_step or self.trainer_reports)
        begins_at = 0  # steps that a gradient scaler skipped are of the first loop
        if self._planned is not None:  # the data of the loop before says nothing of this one's
            self._totals.lengths, self._totals.uneven, begins_at = [], False, max(0, self.own_steps - 1)
        self._planned, self._planned_from = planned, begins_at
        self._plan = (None, None)
        if is_first and planned is not None:
            steps_an_epoch = self._steps_an_epoch(self._totals.fields()) or 0.0
            done = round(planned.done_epochs * steps_an_epoch)
            made = made if made > 1 else 1 + planned.done_steps + done
            if done and made - 1 < done + steps_an_epoch:  # of the first epoch some steps were made before
                self._planned_from = min(0, done + 1 - made)
        self._first_epoch = self._epoch = (self._totals.epoch, self._planned_from)
        if is_first and made > 1:
            self.first_step = made - 1
            for callback in self.on_resumed:
                callback(self.first_step)

    # events

    def _before_pause(self, now: float) -> None:
        """Write the counters: the next step may be minutes away."""
        if self.own_steps:
            self.flush(now)

    def flush(self, now: float | None = None) -> None:
        """Write the counters and call `on_flush`."""
        self.read()
        self._next_write_s = (perf_counter() if now is None else now) + WRITE_INTERVAL_S
        # Claimed only once there is a step: a process that opened its session without training must not take the event
        # file of one that trains.
        self.session.start_training() if self.own_steps else self.session.open()
        self.session.flush_phase()
        self.written_steps = self.own_steps
        fields = self._fields()
        self.session.report_counters("steps", fields)
        if self._planned is not None and self.own_steps and not self.trainer_reports and self.on_step is None:
            plan = (None, None) if self._totals.uneven else (self.planned_steps(fields), self._planned.epochs)
            # The length of a plain loop is a guess. Where not every iteration makes one step it may change by one step
            # from look to look.
            if plan != self._plan and (self._plan[0] is None or plan in (self._newest_plan, (None, None))):
                self._plan = plan
                first, (steps, epochs) = self.first_step, plan  # those of the process before count
                total = steps and first + steps
                if epochs and first and steps:
                    epochs += self._planned.done_epochs or round(epochs * first / steps)
                self.session.report("plan", total_steps=total, epochs=epochs, first_step=first, guessed=True)
            self._newest_plan = plan
        for callback in self.on_flush:
            callback()
        # The callbacks search the garbage collector's objects for the model once, which may take 100 ms: not the first
        # step's.
        if self.own_steps <= 1:
            self.clock.restart(perf_counter())  # excludes the search for the model

    def planned_steps(self, totals: dict[str, Any]) -> int | None:
        """Steps of a plain loop by its variables and `totals`; None if they do not say."""
        if self._planned is None:
            return None
        steps = self._planned.total(totals["epoch_batches"], self._steps_an_epoch(totals))
        return None if steps is None else self._planned_from + steps

    def _steps_an_epoch(self, totals: dict[str, Any]) -> float | None:
        """The steps of an epoch as counted; in the first one by its batches and the micro batches of a step."""
        (epoch, steps), (first_epoch, first_steps) = self._epoch, self._first_epoch
        if epoch is not None and first_epoch is not None and epoch > first_epoch:
            return (steps - first_steps) / (epoch - first_epoch)
        batches = totals["epoch_batches"]
        is_episodic = self._planned is not None and self._planned.is_episodic
        # Of two loaders either may end the epoch.
        if not batches or not self.own_steps or len(self._totals.lengths) > 1 or is_episodic:
            return None
        # A last step with fewer micro batches counts in most loops, hence rounding up.
        return float(-(-batches // (self.accumulation or max(1, round(totals["micro_steps"] / self.own_steps)))))

    def totals(self) -> dict[str, Any]:
        """Steps, training seconds and batch totals, without pending batches."""
        self.read()
        return {"own_steps": self.own_steps, "train_s": self.clock.train_s, **self._totals.fields()}

    def _fields(self) -> dict[str, Any]:
        # A script may leave the process group before its last counters.
        self._distributed = self._distributed or (is_distributed() and not self.trains_alone)
        printed = None if self.trainer_reports else list(self._printed) or None
        self._printed.clear()
        return {
            "step": self.step,
            "own_steps": self.own_steps,
            **self._totals.fields(),
            **self.clock.fields(perf_counter()),
            "printed": printed,
            "optimizer_s": self.buffer.optimizer_s and round(self.buffer.optimizer_s, 6),
            "rank_wait_s": round(self._rank_wait_s, 6) if self.wait_is_known and self._distributed else None,
            "alone": (not self._distributed and is_alone()) or None,
            **self.memory_fields(),
        }
