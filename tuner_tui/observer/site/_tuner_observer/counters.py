"""The counters of a training, fed by every batch and every optimizer step: the only code on the hot path.

A batch belongs to training only once an optimizer step follows. Until then it is pending with its source, because a
validation loop may well fetch its batches outside `no_grad`.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from .batches import Layout
from .clock import Clock
from .evaluation import Evaluation

if TYPE_CHECKING:
    from .session import Session
    from .sources import Source

WRITE_EVERY_S = 1.0
MOST_CALLS_A_STEP = 256
"""Optimizer calls without a word from the Trainer, after which it is no longer waited for."""

perf_counter = time.perf_counter
get_ident = threading.get_ident


class Counters:
    """Cumulative since the start of this process; `first_step` is added to give the step of the whole training.

    `calls` counts every call of any optimizer; `own_steps` counts steps, which several optimizers may share.
    """

    def __init__(
        self,
        session: Session,
        tensor_type: type,
        evaluation: Evaluation,
        memory_fields: Callable[[], dict[str, int | None]],
    ) -> None:
        self.session = session
        self.evaluation = evaluation
        self.on_flush: list[Callable[[], None]] = []
        self._tensor_type = tensor_type
        self._memory_fields = memory_fields
        self.reset()
        session.step_of = lambda: self.step

    def reset(self) -> None:
        """Start anew, as a forked child does."""
        self.evaluation.reset()
        self.clock = Clock(self.session, self._pausing)
        self.first_step = self.own_steps = self.calls = 0
        self.written_steps = -1
        self._micro_steps = self._samples = self._skipped_steps = 0
        self._tokens: int | None = None
        self._padding: int | None = None
        self._data_wait_s = 0.0
        self._shape: tuple[int, ...] = ()
        self._pending: list[Source] = []
        self._taking_turns: set[int] = set()
        self._trainer_calls: int | None = None
        self._next_write_s = 0.0
        self._thread = get_ident()

    @property
    def step(self) -> int:
        """The optimizer step of the whole training."""
        return self.first_step + self.own_steps

    # batches

    def waiting(self, began_s: float) -> bool:
        """Before a batch is fetched. Returns whether it is for training."""
        self.session.in_optimizer = False
        if self.evaluation.running():
            self.clock.pause("evaluating", began_s)
            return False
        if not self.clock.runs:
            self.clock.run(began_s)
        return True

    def fetched(self, source: Source, batch: Any, began_s: float, ended_s: float) -> None:
        """A training batch arrived."""
        self._waited(source, began_s, ended_s)
        layout = source.layout
        if layout is None or layout.batch_type is not type(batch):
            layout = source.layout = Layout(batch, self._tensor_type)
        source.deliver(layout.measure(batch))

    def ended(self, source: Source, began_s: float, ended_s: float) -> None:
        """The loader has no more batches; finding that out was waiting too."""
        if source.first_s is not None or source.ahead is not None:
            self._waited(source, began_s, ended_s)
        source.end()

    def _waited(self, source: Source, began_s: float, ended_s: float) -> None:
        if source.first_s is None:
            source.first_s = began_s
            self._pending.append(source)
        source.last_s = ended_s
        if get_ident() == self._thread:
            source.wait_s += ended_s - began_s

    def skipped_batches(self, accumulation: int) -> None:
        """What was fetched so far was skipped on resume, but for the batches of the first step."""
        for source in self._pending:
            source.keep_last(accumulation)
        self.clock.restart(perf_counter())

    # steps

    def stepped(self, optimizer: object, skipped: bool = False) -> None:
        """An optimizer was called. Several that take turns make one step together."""
        self.calls += 1
        if skipped:
            self._skipped_steps += 1
        if self._trainer_calls is not None:
            self._called_by_trainer()
            return
        key = id(optimizer)
        if self._taking_turns and key not in self._taking_turns:
            self._taking_turns.add(key)
            return
        self._taking_turns = {key}
        self._step_done()

    def follow_trainer(self, global_step: int) -> None:
        """A Trainer says itself when a step is done: its optimizer may be called more or less often than that."""
        self.first_step = global_step - self.own_steps
        self._trainer_calls = 0

    def trainer_stepped(self) -> None:
        """The Trainer finished a step."""
        if self._trainer_calls is not None:
            self._trainer_calls = 0
            self._step_done()

    def trainer_ended(self) -> None:
        """The Trainer's loop is over: the last counters are written."""
        self._trainer_calls = None
        self._taking_turns = set()
        self.flush()

    def _called_by_trainer(self) -> None:
        """Count nothing, unless this Trainer turns out never to say when a step is done."""
        assert self._trainer_calls is not None
        self._trainer_calls += 1
        if self._trainer_calls > MOST_CALLS_A_STEP:
            self._trainer_calls = None

    def _step_done(self) -> None:
        now = perf_counter()
        self.own_steps += 1
        self.evaluation.stepped()
        if self._pending:
            self._commit()
        self.clock.step(now, resumes=not self.evaluation.depth)
        if now >= self._next_write_s:
            self.flush(now)

    def _commit(self) -> None:
        """Pending batches are training's, except those of a source that was read to its end and never made a step."""
        several = len(self._pending) > 1
        for source in self._pending:
            if several and source.exhausted and not source.stepped:
                self.clock.was_evaluation(source.last_s - (source.first_s or source.last_s))
            else:
                self._count(source)
            source.clear()
        self._pending.clear()

    def _count(self, source: Source) -> None:
        source.stepped = True
        self._micro_steps += source.batches
        self._samples += source.samples
        self._data_wait_s += source.wait_s
        if source.shape:
            self._shape = source.shape
        if source.tokens is not None:
            self._tokens = source.tokens + (self._tokens or 0)
        if source.padding is not None:
            self._padding = source.padding + (self._padding or 0)

    # lines

    def _pausing(self, now: float) -> None:
        """Before a pause the counters are written: nothing may come for minutes."""
        if self.own_steps:
            self.flush(now)

    def flush(self, now: float | None = None) -> None:
        """Write the counters; then let the others look around."""
        self._next_write_s = (perf_counter() if now is None else now) + WRITE_EVERY_S
        self.session.open()
        self.session.settle_phase()
        self.written_steps = self.own_steps
        self.session.count("steps", self._fields())
        for look in self.on_flush:
            look()
        if self.own_steps <= 1:
            self.clock.restart(perf_counter())  # the first look seeks the model: no part of the training's time

    def _fields(self) -> dict[str, Any]:
        return {
            "step": self.step,
            "own_steps": self.own_steps,
            "micro_steps": self._micro_steps,
            "samples": self._samples,
            "tokens": self._tokens,
            "padding_tokens": self._padding,
            "data_wait_s": round(self._data_wait_s, 6),
            "skipped_steps": self._skipped_steps,
            "batch_shape": [int(size) for size in self._shape] or None,
            **self.clock.fields(perf_counter()),
            **self._memory_fields(),
        }
