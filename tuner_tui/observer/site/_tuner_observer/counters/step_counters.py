"""Counters of a training, computed from the records of every batch and every optimizer step."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from .batch_stats import ALWAYS_COUNTED_MASKS, BatchLayout, TrainingTotals
from .evaluation_detector import EvaluationDetector
from .record_buffer import TRAINER_KEY, RecordBuffer
from .step_gap import StepGapClassifier
from .training_clock import TrainingClock

if TYPE_CHECKING:
    from ..session import Session
    from .batch_stats import IteratorStats

WRITE_INTERVAL_S = 1.0
MAX_OPTIMIZER_CALLS = 256
"""Optimizer calls without a word from the Trainer, after which it is no longer waited for."""

perf_counter = time.perf_counter


class StepCounters:
    """Cumulative since the start of this process; `first_step` is added to give the step of the whole training.

    Every method that reads or changes the counters reads the journal first; `own_steps` is as of the last reading.
    `on_step`, where somebody sets it, is called after every step; nobody does but in a trial.
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
        self.journal = RecordBuffer()
        self.on_flush: list[Callable[[], None]] = []
        self.on_step: Callable[[], None] | None = None
        self._tensor_type = tensor_type
        self._memory_fields = memory_fields
        self.reset()
        session.step_of = lambda: self.step

    def reset(self) -> None:
        """Start anew, as a forked child does."""
        self.journal.clear()
        self.evaluation.reset()
        self.clock = TrainingClock(self.session, self._pausing)
        self._between = StepGapClassifier()
        self.first_step = self.own_steps = self.written_steps = self._skipped_steps = 0
        self._tally = TrainingTotals()
        self._masked: BatchLayout | None = None
        self._pending: list[IteratorStats] = []
        self._taking_turns: set[int] = set()
        self._trainer_calls: int | None = None
        self._next_write_s = 0.0
        self._thread = threading.get_ident()

    @property
    def step(self) -> int:
        """The optimizer step of the whole training."""
        self.read()
        return self.first_step + self.own_steps

    def read(self) -> None:
        """Count what was noted."""
        for note in self.journal.take():
            if len(note) == 2:
                self._called(*note)
            else:
                source, began_s, ended_s, thread, measured = note
                self._waited(source, began_s, ended_s, thread)
                source.deliver(source.counted(measured))

    def unsettle(self) -> None:
        """Something is about to change that tells training from the rest: look at what comes next."""
        self.read()
        self.journal.unsettle()

    # batches

    def waiting(self, began_s: float, source: IteratorStats) -> bool:
        """Before a batch is fetched, unless all is steady. Returns whether it is for training."""
        self.read()
        if self.evaluation.running(source.stepped):
            self.pause("evaluating", began_s)
            return False
        evaluated_s = self.evaluation.began_s()
        if not self.clock.runs:
            self.clock.run(began_s)
        elif evaluated_s is not None:  # an evaluation that took its batches from no loader
            self.clock.was_evaluation(evaluated_s, began_s)
        self.journal.steady = self.evaluation.is_out_of_question
        return True

    def layout_of(self, source: IteratorStats, batch: Any) -> BatchLayout:
        """Look at the first batch of its kind."""
        layout = source.layout = BatchLayout(batch, self._tensor_type, self._first_masks)
        if layout.mask_at is not None:
            self._masked = layout
        return layout

    @property
    def _first_masks(self) -> int:
        """How many masks of this process are still to be counted each."""
        return ALWAYS_COUNTED_MASKS if self._masked is None else self._masked.first

    def ended(self, source: IteratorStats, began_s: float, ended_s: float) -> None:
        """The loader has no more batches; finding that out was waiting too."""
        self.read()
        if source.first_s is not None or source.ahead is not None:
            self._waited(source, began_s, ended_s, threading.get_ident())
        source.end()

    def _waited(self, source: IteratorStats, began_s: float, ended_s: float, thread: int) -> None:
        if source.first_s is None:
            source.first_s = began_s
            self._pending.append(source)
        source.last_s = ended_s
        if thread == self._thread:
            source.wait_s += ended_s - began_s
        else:
            source.elsewhere = True

    def skipped_batches(self, accumulation: int) -> None:
        """What was fetched so far was skipped on resume, but for the batches of the first step."""
        self.read()
        for source in self._pending:
            source.keep_last(accumulation)
        self.clock.restart(perf_counter())

    # pauses

    def pause(self, phase: str, now: float) -> bool:
        """Training stands still for an evaluation or a checkpoint. Returns whether it had not been paused already."""
        self.unsettle()
        return self.clock.pause(phase, now)

    def end_pause(self) -> None:
        """What the training was paused for is done."""
        self.read()
        self.clock.end_pause(perf_counter())

    def compiling(self) -> None:
        """The compiler is at work; the next step ends that."""
        self.unsettle()
        if self.session.phase in ("starting", "training"):
            self.session.enter("compiling")

    # steps

    def attend(self, now: float) -> None:
        """A step was noted, and it is time to look."""
        self.read()
        if now >= self._next_write_s and self.own_steps > self.written_steps:
            self.flush(now)
        self.journal.due_s = self._next_write_s
        if self.on_step is not None:
            self.on_step()
            self.journal.due_s = 0.0

    def skipped(self, optimizer: object) -> None:
        """A gradient scaler did not call its optimizer: a step all the same, but one that changed nothing."""
        self.read()
        self._skipped_steps += 1
        now = perf_counter()
        self._called(id(optimizer), now)
        self.attend(now)

    def starts_at(self, global_step: int) -> None:
        """Steps that were made before, by another process of this training."""
        self.read()
        self.first_step = global_step - self.own_steps

    def follow_trainer(self, global_step: int) -> None:
        """A Trainer says itself when a step is done: its optimizer may be called more or less often than that."""
        self.starts_at(global_step)
        self._trainer_calls = 0

    def trainer_stepped(self) -> None:
        """The Trainer finished a step."""
        now = perf_counter()
        self.journal.notes.append((TRAINER_KEY, now))
        if now >= self.journal.due_s:
            self.attend(now)

    def trainer_ended(self) -> None:
        """The Trainer's loop is over: the last counters are written; time stands still until somebody trains again."""
        self.read()
        self._trainer_calls = None
        self._taking_turns = set()
        self.flush()
        self.journal.unsettle()
        self.clock.halt()

    def _called(self, key: int, now: float) -> None:
        """An optimizer was called, or a trainer spoke. Optimizers that take turns make one step together."""
        if self._trainer_calls is not None:
            self._called_by_trainer(key, now)
        elif key == TRAINER_KEY:
            return
        elif self.journal.takes_turns(key, self._taking_turns):
            self._taking_turns.add(key)
            self.clock.stepped_too(now)
        else:
            self._taking_turns = {key}
            self._step_done(now)

    def _called_by_trainer(self, key: int, now: float) -> None:
        """Only the trainer's word counts, unless this one turns out never to say when a step is done."""
        if key == TRAINER_KEY:
            self._trainer_calls = 0
            self._step_done(now)
            return
        assert self._trainer_calls is not None
        self._trainer_calls += 1
        if self._trainer_calls > MAX_OPTIMIZER_CALLS:
            self._trainer_calls = None

    def _step_done(self, now: float) -> None:
        self.own_steps += 1
        self.evaluation.stepped()
        self._commit(now)
        self.clock.step(now, resumes=not self.evaluation.depth)

    def _commit(self, now: float) -> None:
        """Pending batches are training's, except those that prove to have been an evaluation's."""
        silent = self.journal.silent
        if len(self._pending) < 2 and (not silent or silent[0][1] > now):
            self._between.quiet_steps += 1
            for source in self._pending:
                self._asked(source)
                self._tally.add(source)
                source.clear()
            self._pending.clear()
            return
        apart, evaluated = self._between.judge(self._pending, silent, now)
        for began_s, ended_s in evaluated:
            self.clock.was_evaluation(began_s, ended_s)
        trained = [source for source in self._pending if source not in apart]
        for source in trained[:1]:
            self._asked(source)
        for source in trained:
            self._tally.add(source)
        for source in self._pending:
            source.clear()
        self._pending.clear()

    def _asked(self, source: IteratorStats) -> None:
        """Of the batches of a step, these were asked for first."""
        if source.first_s is not None and not source.elsewhere:
            self.clock.asked(source.first_s)

    # lines

    def _pausing(self, now: float) -> None:
        """Before a pause the counters are written: nothing may come for minutes."""
        if self.own_steps:
            self.flush(now)

    def flush(self, now: float | None = None) -> None:
        """Write the counters; then let the others look around."""
        self.read()
        self._next_write_s = (perf_counter() if now is None else now) + WRITE_INTERVAL_S
        self.session.open()
        self.session.settle_phase()
        self.written_steps = self.own_steps
        self.session.count("steps", self._fields())
        for look in self.on_flush:
            look()
        if self.own_steps <= 1:
            self.clock.restart(perf_counter())  # the first look seeks the model: no part of the training's time

    def totals(self) -> dict[str, Any]:
        """What was trained on so far, in how many steps and seconds, but for what waits for its step."""
        self.read()
        return {"own_steps": self.own_steps, "train_s": self.clock.train_s, **self._tally.fields()}

    def _fields(self) -> dict[str, Any]:
        return {
            "step": self.step,
            "own_steps": self.own_steps,
            "skipped_steps": self._skipped_steps,
            **self._tally.fields(),
            **self.clock.fields(perf_counter()),
            **self._memory_fields(),
        }
