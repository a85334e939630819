"""Classifies what happened between two optimizer steps: training, an evaluation, or the loop's own code."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .batch_stats import IteratorStats

    Stretch = tuple[float, float]
    """When it began and when it ended, by `perf_counter`."""

MIN_BLOCK_BATCHES = 3
"""Batches in a row of a loader that no step was made with, from which on they are an evaluation without more evidence.
"""
HISTORY_STEPS = 15
MIN_HISTORY_STEPS = 3
"""Steps after which it is known what a step of this training usually holds."""
OUTLIER_FACTOR = 3.0
"""Times what steps usually spend without gradients (a teacher's forward, an average of weights) that is no more usual.
"""


class StepGapClassifier:
    """Judges at each step what lay between it and the one before.

    `quiet_steps` counts steps of one source without any such stretch: whoever sees one need not ask for a judgement.
    """

    def __init__(self) -> None:
        self._off: list[Stretch] = []
        self._before, self._within = TypicalNoGradTime(), TypicalNoGradTime()
        self.quiet_steps = 0
        self._judged: list[IteratorStats] = []

    def judge(
        self, pending: Sequence[IteratorStats], silent: deque[Stretch], now: float
    ) -> tuple[list[IteratorStats], list[Stretch]]:
        """The sources among `pending` that the step at `now` was not made with, and the times of evaluations.

        What of `silent`, the stretches without gradients, belongs to this step is taken out of it. Evaluations may
        overlap.
        """
        self._pass_quiet_steps()
        self._off.clear()
        while silent and silent[0][1] <= now:
            self._off.append(silent.popleft())
        apart = self._apart(pending) if len(pending) > 1 else []
        self._judged = apart
        trained = [source for source in pending if source not in apart]
        blocks = [self._block(source, trained) for source in apart]
        if not trained:
            return apart, blocks
        rest = [off for off in self._off if not any(began <= off[0] <= ended for began, ended in blocks)]
        first_s = trained[0].first_s
        asked_s = now if first_s is None else first_s
        before = self._before.unusual([off for off in rest if off[0] < asked_s])
        within = self._within.unusual([off for off in rest if off[0] >= asked_s])
        return apart, blocks + merge_spans(before) + merge_spans(within)

    def _pass_quiet_steps(self) -> None:
        if self.quiet_steps:
            self._judged = []
            for usual in (self._before, self._within):
                usual.quiet(self.quiet_steps)
            self.quiet_steps = 0

    def _apart(self, pending: Sequence[IteratorStats]) -> list[IteratorStats]:
        """Sources whose batches the step was not made with."""
        trained = [source for source in pending if source.stepped]
        if not trained:
            trained = [max(pending, key=lambda source: source.last_s)]
        return [source for source in pending if not source.stepped and self._is_apart(source, trained)]

    def _is_apart(self, source: IteratorStats, trained: Sequence[IteratorStats]) -> bool:
        """Read to its end without ever making a step; or a block by itself, without gradients or of many batches.

        A loader that delivers for one step after another is no validation's, however it delivers.
        """
        if source.exhausted:
            return True
        if source in trained or source in self._judged or source.first_s is None:
            return False
        if any((one.first_s or 0.0) < source.last_s and one.last_s > source.first_s for one in trained):
            return False
        until_s = min((one.first_s for one in trained if one.first_s and one.first_s > source.last_s), default=None)
        silent = any(source.first_s <= began and (until_s is None or began < until_s) for began, _ in self._off)
        return silent or (source.batches >= MIN_BLOCK_BATCHES and source.batches > max(one.batches for one in trained))

    def _block(self, source: IteratorStats, trained: Sequence[IteratorStats]) -> Stretch:
        """From its first batch until training fetches again; where that comes first, until gradients are on again."""
        began_s = source.first_s or source.last_s
        after = [one.first_s for one in trained if one.first_s is not None and one.first_s > source.last_s]
        silent = [ended for began, ended in self._off if began >= began_s]
        return began_s, min(after) if after else max([source.last_s, *silent])


class TypicalNoGradTime:
    """What steps usually spend without gradients, in one part of the step, and what is more than that."""

    def __init__(self) -> None:
        self._spent_s: deque[float] = deque(maxlen=HISTORY_STEPS)

    def quiet(self, steps: int) -> None:
        """So many steps without any."""
        self._spent_s.extend([0.0] * min(steps, HISTORY_STEPS))

    def unusual(self, off: list[Stretch]) -> list[Stretch]:
        """`off`, those of one more step, where most steps have no such."""
        total_s = sum(ended - began for began, ended in off) if off else 0.0
        known = len(self._spent_s) >= MIN_HISTORY_STEPS
        usual_s = sorted(self._spent_s)[(len(self._spent_s) - 1) // 2] if off and known else 0.0
        self._spent_s.append(total_s)
        return off if known and total_s > OUTLIER_FACTOR * usual_s else []


def merge_spans(stretches: Sequence[Stretch]) -> list[Stretch]:
    """Neighbours as one where less lies between them than they hold: the batches of one evaluation."""
    found: list[Stretch] = []
    for began_s, ended_s in sorted(stretches):
        if found and began_s - found[-1][1] <= max(ended_s - began_s, found[-1][1] - found[-1][0]):
            found[-1] = (found[-1][0], max(ended_s, found[-1][1]))
        else:
            found.append((began_s, ended_s))
    return found


def covered_s(stretches: Sequence[Stretch], from_s: float, to_s: float) -> float:
    """Seconds between `from_s` and `to_s` that lie in one of `stretches`, overlaps counted once."""
    total_s, reached_s = 0.0, from_s
    for began_s, ended_s in sorted(stretches):
        began_s, ended_s = max(began_s, reached_s), min(ended_s, to_s)
        if ended_s > began_s:
            total_s += ended_s - began_s
            reached_s = ended_s
    return total_s
