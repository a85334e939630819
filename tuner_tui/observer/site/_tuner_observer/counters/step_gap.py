"""Classifies what happened between two optimizer steps: training, an evaluation, or the loop's own code.

A plain loop does not announce its evaluations, and they vary: without `eval()`, without a loader, stopped half-way.
They are recognised afterwards by what they have in common: batches of a validation loader come in a block and are not
consumed by the step, and spans without gradients occur in a few steps and are absent from most.
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
HISTORY_STEPS = 15
MIN_HISTORY_STEPS = 3
"""Steps after which the typical time without gradients is known."""
OUTLIER_FACTOR = 3.0
"""Multiple of the typical time without gradients (a teacher's forward pass, weight averaging) that is an outlier."""
MIN_SHARE = 0.01
"""Time without gradients that is a smaller share of the step is that of a metric or of a slow machine."""


class StepGapClassifier:
    """Classifies batches and spans without gradients at each step.

    `steps_without_spans` counts steps with a single iterator and no span, for which the caller may skip `classify`.
    """

    def __init__(self) -> None:
        self._spans: list[Span] = []
        self._before, self._within = TypicalNoGradTime(), TypicalNoGradTime()
        self.steps_without_spans = 0
        self._last_evaluations: list[IteratorStats] = []

    def classify(
        self, pending: Sequence[IteratorStats], no_grad_spans: deque[Span], now: float
    ) -> tuple[list[IteratorStats], list[Span]]:
        """The iterators in `pending` that the step at `now` did not consume, and the spans of evaluations.

        Removes the spans before `now` from `no_grad_spans`. The returned spans may overlap.
        """
        self._add_steps_without_spans()
        self._spans.clear()
        while no_grad_spans and no_grad_spans[0][1] <= now:
            self._spans.append(no_grad_spans.popleft())
        evaluations = self._evaluation_iterators(pending) if len(pending) > 1 else []
        self._last_evaluations = evaluations
        trained = [iterator for iterator in pending if iterator not in evaluations]
        blocks = [self._block(iterator, trained) for iterator in evaluations]
        if not trained:
            return evaluations, blocks
        rest = [span for span in self._spans if not any(began <= span[0] <= ended for began, ended in blocks)]
        first_s = trained[0].first_s
        requested_s = now if first_s is None else first_s
        least_s = MIN_SHARE * (now - requested_s)
        before = self._before.outliers([span for span in rest if span[0] < requested_s], least_s)
        within = self._within.outliers([span for span in rest if span[0] >= requested_s], least_s)
        return evaluations, blocks + merge_spans(before) + merge_spans(within)

    def _add_steps_without_spans(self) -> None:
        if self.steps_without_spans:
            self._last_evaluations = []
            for typical in (self._before, self._within):
                typical.add_zeros(self.steps_without_spans)
            self.steps_without_spans = 0

    def _evaluation_iterators(self, pending: Sequence[IteratorStats]) -> list[IteratorStats]:
        """Iterators whose batches the step did not consume."""
        trained = [iterator for iterator in pending if iterator.has_trained]
        if not trained:
            trained = [max(pending, key=lambda iterator: iterator.last_s)]
        return [iterator for iterator in pending if not iterator.has_trained and self._is_evaluation(iterator, trained)]

    def _is_evaluation(self, iterator: IteratorStats, trained: Sequence[IteratorStats]) -> bool:
        """Whether this iterator was read to its end without a step, or in one block that is long or without gradients.

        An iterator that delivers between every two steps belongs to the training.
        """
        if iterator.exhausted:
            return True
        if iterator in trained or iterator in self._last_evaluations or iterator.first_s is None:
            return False
        if any((one.first_s or 0.0) < iterator.last_s and one.last_s > iterator.first_s for one in trained):
            return False
        until_s = min((one.first_s for one in trained if one.first_s and one.first_s > iterator.last_s), default=None)
        without_gradients = any(
            iterator.first_s <= began and (until_s is None or began < until_s) for began, _ in self._spans
        )
        return without_gradients or (
            iterator.batches >= MIN_BLOCK_BATCHES and iterator.batches > max(one.batches for one in trained)
        )

    def _block(self, iterator: IteratorStats, trained: Sequence[IteratorStats]) -> Span:
        """From its first batch until training fetches again, or if that was earlier, until gradients are enabled."""
        began_s = iterator.first_s or iterator.last_s
        after = [one.first_s for one in trained if one.first_s is not None and one.first_s > iterator.last_s]
        ends = [ended for began, ended in self._spans if began >= began_s]
        return began_s, min(after) if after else max([iterator.last_s, *ends])


class TypicalNoGradTime:
    """Median time without gradients of recent steps, in one part of the step, to recognise outliers."""

    def __init__(self) -> None:
        self._recent_s: deque[float] = deque(maxlen=HISTORY_STEPS)

    def add_zeros(self, steps: int) -> None:
        """Add `steps` steps without any such time."""
        self._recent_s.extend([0.0] * min(steps, HISTORY_STEPS))

    def outliers(self, spans: list[Span], least_s: float) -> list[Span]:
        """Add the spans of one step, and return them if their total is an outlier of `least_s` or more, else none."""
        total_s = sum(ended - began for began, ended in spans) if spans else 0.0
        known = len(self._recent_s) >= MIN_HISTORY_STEPS
        typical_s = sorted(self._recent_s)[(len(self._recent_s) - 1) // 2] if spans and known else 0.0
        self._recent_s.append(total_s)
        return spans if known and total_s > max(OUTLIER_FACTOR * typical_s, least_s) else []


def merge_spans(spans: Sequence[Span]) -> list[Span]:
    """Merge neighbours whose gap is shorter than the longer of the two, such as the batches of one evaluation."""
    merged: list[Span] = []
    for began_s, ended_s in sorted(spans):
        if merged and began_s - merged[-1][1] <= max(ended_s - began_s, merged[-1][1] - merged[-1][0]):
            merged[-1] = (merged[-1][0], max(ended_s, merged[-1][1]))
        else:
            merged.append((began_s, ended_s))
    return merged


def covered_s(spans: Sequence[Span], from_s: float, to_s: float) -> float:
    """Seconds between `from_s` and `to_s` covered by `spans`, overlaps counted once."""
    total_s, reached_s = 0.0, from_s
    for began_s, ended_s in sorted(spans):
        began_s, ended_s = max(began_s, reached_s), min(ended_s, to_s)
        if ended_s > began_s:
            total_s += ended_s - began_s
            reached_s = ended_s
    return total_s
