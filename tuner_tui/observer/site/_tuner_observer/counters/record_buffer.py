"""The buffer that hooks append records of batches and steps to, and that the counters read."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from weakref import ReferenceType

    from .batch_stats import BatchMeasure, IteratorStats

    BatchRecord = tuple[IteratorStats, float, float, int, BatchMeasure]
    """Iterator, start and end of the wait for the batch, waiting thread, and contents."""
    StepRecord = tuple[int, float, int, int]
    """`id` of the optimizer or `TRAINER_KEY`, when the step finished, and `RecordBuffer.backwards` and the bytes of
    output at that time."""

TRAINER_KEY = 0
"""Key of a step reported by a Trainer instead of an optimizer."""
GROUP_KEY = -1
"""Key of a step that is seen by its calls of `backward`."""

MAX_NO_GRAD_SPANS = 4096
"""Maximum number of unread spans without gradients; in a process that never trains the oldest are dropped."""


class RecordBuffer:
    """Written by the hooks and read by the counters.

    In a training the CPU caches are cold when the observer runs, so memory access dominates its cost. A hook only
    appends a tuple to `records`; many of them are processed together later.

    `steady`: batches are for training unless gradients are disabled, without asking the evaluation detector.
    `due_s`: time of `perf_counter` after which the next hook calls the counters.
    `optimizers`: weak references to known optimizers, by id.
    `no_grad_spans`: (start, end) of spans without gradients, oldest first.
    `calls`: the optimizer calls so far.
    `optimizer_s`: seconds in these calls; None if they ran on a GPU, or with a closure that computes the gradients.
    `backwards`: calls of `backward` so far, at the place in the code where the loss is read.
    `paused`: a pause began since the last call of `backward`.
    `rate`: the learning rate of the last step.
    """

    __slots__ = (
        "_taken", "backwards", "calls", "due_s", "no_grad_spans", "optimizer_s", "optimizers", "paused", "rate",
        "records", "steady",
    )  # fmt: skip

    def __init__(self) -> None:
        self.records: list[BatchRecord | StepRecord] = []
        self.optimizers: dict[int, ReferenceType[Any]] = {}
        self.no_grad_spans: deque[tuple[float, float]] = deque(maxlen=MAX_NO_GRAD_SPANS)
        self._taken = 0
        self.clear()

    def clear(self) -> None:
        self.records.clear()
        self.optimizers.clear()
        self.no_grad_spans.clear()
        self.calls = 0
        self.backwards = 0
        self.optimizer_s: float | None = 0.0
        self.due_s = 0.0
        self.steady = self.paused = False
        self.rate: Any = None

    def take(self) -> list[BatchRecord | StepRecord]:
        """Remove and return all records. Other threads may append meanwhile."""
        taken = self.records[:]
        del self.records[: len(taken)]
        self._taken += len(taken)
        return taken

    def insert(self, record: StepRecord, written: int) -> None:
        """Insert a record after the first `written` ones ever appended, as far as these are not taken yet."""
        self.records.insert(max(0, written - self._taken), record)

    def is_alternating(self, key: int, others: set[int]) -> bool:
        """Whether the optimizer `key` steps alternately with `others`, as in a GAN, rather than replacing them."""
        if not others or key in others:
            return False
        gone = {each for each, reference in self.optimizers.items() if reference() is None}
        return key in gone or not gone.issuperset(others)

    def written(self) -> int:
        """Total number of records ever appended."""
        return self._taken + len(self.records)

    def invalidate(self) -> None:
        """Have the next batch and step processed immediately instead of buffered."""
        self.steady = False
        self.due_s = 0.0
