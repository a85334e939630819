"""Classifies what happened between two optimizer steps: training, an evaluation, or the loop's own code.

A plain loop does not announce its evaluations, and they vary: without `eval()`, with gradients, stopped half-way. They
are recognised afterwards: batches of a validation loader come in a block and are not consumed by the step.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .batch_stats import IteratorStats

    Span = tuple[float, float]
    """Start and end, by `perf_counter`."""

MIN_BLOCK_BATCHES = 3
"""Consecutive batches of one loader that no step consumed, which count as an evaluation without further evidence."""


# How the two are told apart. At a step, every iterator that delivered since the step before is pending. One that an
# earlier step consumed is training's. Among those that never trained, one is an evaluation's if it was read to its end
# without a step, or in one block (no training batch in between) that either ran without gradients or is longer than any
# training block. What delivers a batch or two between every pair of steps, such as the unlabelled loader of semi-
# supervised training or the second domain of a CycleGAN, stays training's.
class StepGapClassifier:
    """Classifies batches and spans without gradients at each step.

    The caller may skip `classify` for a step with a single iterator and no span, and sets `skipped` instead.
    """

    def __init__(self) -> None:
        self._spans: list[Span] = []
        self.skipped = False
        self._last_evaluations: list[IteratorStats] = []

    def classify(
        self, pending: Sequence[IteratorStats], no_grad_spans: deque[Span], now: float
    ) -> tuple[list[IteratorStats], list[Span]]:
        """The iterators in `pending` that the step at `now` did not consume, and the spans of evaluations.

        Removes the spans without gradients before `now` from `no_grad_spans`. The returned spans may overlap.
        """
        if self.skipped:
            self._last_evaluations, self.skipped = [], False
        self._spans.clear()
        while no_grad_spans and no_grad_spans[0][1] <= now:
            self._spans.append(no_grad_spans.popleft())
        evaluations = self._evaluation_iterators(pending) if len(pending) > 1 else []
        self._last_evaluations = evaluations
        trained = [iterator for iterator in pending if iterator not in evaluations]
        return evaluations, [self._block(iterator, trained) for iterator in evaluations]

    def _evaluation_iterators(self, pending: Sequence[IteratorStats]) -> list[IteratorStats]:
        """Iterators whose batches the step did not consume."""
        trained = [iterator for iterator in pending if iterator.has_trained]
        # Before the first step nothing has trained yet: the batch that was fetched last is the one that the step
        # consumed.
        if not trained:
            trained = [max(pending, key=lambda iterator: iterator.last_s)]
        return [iterator for iterator in pending if not iterator.has_trained and self._is_evaluation(iterator, trained)]

    def _is_evaluation(self, iterator: IteratorStats, trained: Sequence[IteratorStats]) -> bool:
        """Whether this iterator was read to its end without a step, or in one block that is long or without gradients.

        An iterator that delivers between every two steps belongs to the training.
        """
        if iterator.exhausted:
            return True
        # A block in two consecutive gaps is no evaluation that began anew, but a loader that each step uses.
        if iterator in trained or iterator in self._last_evaluations or iterator.first_s is None:
            return False
        if any((other.first_s or 0.0) < iterator.last_s and other.last_s > iterator.first_s for other in trained):
            return False
        until_s = min(
            (other.first_s for other in trained if other.first_s and other.first_s > iterator.last_s), default=None
        )
        without_gradients = any(
            iterator.first_s <= began and (until_s is None or began < until_s) for began, _ in self._spans
        )
        return without_gradients or (
            iterator.batches >= MIN_BLOCK_BATCHES and iterator.batches > max(other.batches for other in trained)
        )

    def _block(self, iterator: IteratorStats, trained: Sequence[IteratorStats]) -> Span:
        """From its first batch until training fetches again, or if that was earlier, until gradients are enabled."""
        began_s = iterator.first_s or iterator.last_s
        after = [other.first_s for other in trained if other.first_s is not None and other.first_s > iterator.last_s]
        ends = [ended for began, ended in self._spans if began >= began_s]
        return began_s, min(after) if after else max([iterator.last_s, *ends])


def covered_s(spans: Sequence[Span], from_s: float, to_s: float) -> float:
    """Seconds between `from_s` and `to_s` covered by `spans`, overlaps counted once."""
    total_s, reached_s = 0.0, from_s
    for began_s, ended_s in sorted(spans):
        began_s, ended_s = max(began_s, reached_s), min(ended_s, to_s)
        if ended_s > began_s:
            total_s += ended_s - began_s
            reached_s = ended_s
    return total_s
