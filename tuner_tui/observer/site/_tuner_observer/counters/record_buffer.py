"""Records of batches and steps appended by the hot path and read by the counters about once a second."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from weakref import ReferenceType

    from .batch_stats import IteratorStats, Measured

    BatchNote = tuple[IteratorStats, float, float, int, Measured]
    """Where the batch came from, when the wait for it began and ended, the waiting thread, and what it holds."""
    StepNote = tuple[int, float]
    """`id` of the optimizer, or `TRAINER_KEY`, and when it was done."""

TRAINER_KEY = 0
"""In place of an optimizer's id: a trainer says that its step is done."""

MAX_NO_GRAD_SPANS = 4096
"""Stretches without gradients left unread, as in a process that never trains: the oldest are forgotten."""

MAX_MASK_RECORDS = 16
"""Notes left unread where batches have masks: each such note keeps its mask."""


class RecordBuffer:
    """Shared by the hooks, which write, and the counters, which read.

    `steady`: batches are training's unless gradients are off, so nobody need ask.
    `due_s`: from this time on, by `perf_counter`, whoever makes a note calls the counters.
    `optimizers`: those that have been looked at, by id.
    `silent`: when gradients were off, from and to, oldest first.
    """

    __slots__ = ("_taken", "due_s", "notes", "optimizers", "silent", "steady")

    def __init__(self) -> None:
        self.notes: list[Any] = []
        self.optimizers: dict[int, ReferenceType[Any]] = {}
        self.silent: deque[tuple[float, float]] = deque(maxlen=MAX_NO_GRAD_SPANS)
        self._taken = 0
        self.clear()

    def clear(self) -> None:
        """As at the beginning."""
        self.notes.clear()
        self.optimizers.clear()
        self.silent.clear()
        self.due_s = 0.0
        self.steady = False

    def take(self) -> list[Any]:
        """All notes so far, which are no longer here then. Other threads may go on writing."""
        taken = self.notes[:]
        del self.notes[: len(taken)]
        self._taken += len(taken)
        return taken

    def takes_turns(self, key: int, others: set[int]) -> bool:
        """Whether the optimizer `key` steps beside `others`, which have; where they are gone it replaced them."""
        if not others or key in others:
            return False
        gone = {each for each, found in self.optimizers.items() if found() is None}
        return key in gone or not gone.issuperset(others)

    def written(self) -> int:
        """How many notes were ever made."""
        return self._taken + len(self.notes)

    def unsettle(self) -> None:
        """Something changed: the next batch and the next step are looked at as they happen."""
        self.steady = False
        self.due_s = 0.0
