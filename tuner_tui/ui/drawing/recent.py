"""The samples of the last minutes, and of each history of theirs what was added up before.

A history of ten minutes is drawn every second, for each card and figure: only what is new is added to it.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import overload

from tuner_tui.hardware.sample import Sample
from tuner_tui.ui.drawing.sweep import BUCKET_S, columns_of, within

MOST_BUCKETS = 512
"""More than the widest screen shows."""
Figure = Callable[[Sample], float | None]


class Recent(Sequence[Sample]):
    """The newest `limit` samples, oldest first."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._samples: list[Sample] = []
        self._sums: dict[Hashable, dict[int, tuple[float, int]]] = {}
        self._added_s: dict[Hashable, float] = {}

    def append(self, sample: Sample) -> None:
        """The newest one. One that is older than the newest begins anew: the clock was set, or it is another story."""
        if self._samples and sample.time_s < self._samples[-1].time_s:
            self.clear()
        self._samples.append(sample)
        if len(self._samples) > 2 * self._limit:
            del self._samples[: -self._limit]

    def clear(self) -> None:
        """As at the beginning."""
        self._samples.clear()
        self._sums.clear()
        self._added_s.clear()

    def __len__(self) -> int:
        return min(len(self._samples), self._limit)

    @overload
    def __getitem__(self, index: int) -> Sample: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Sample]: ...
    def __getitem__(self, index: int | slice) -> Sample | Sequence[Sample]:
        if isinstance(index, int):
            return self._samples[index if index < 0 else len(self._samples) - len(self) + index]
        return self._samples[-self._limit :][index]

    def sums(self, name: Hashable, figure: Figure) -> dict[int, tuple[float, int]]:
        """Of each bucket of time the sum and the number of what `figure` gives; `name` is that figure's own."""
        sums, done_s = self._sums.setdefault(name, {}), self._added_s.get(name, float("-inf"))
        for sample in within_after(self._samples, done_s):
            self._added_s[name] = sample.time_s
            if (value := figure(sample)) is not None:
                bucket = int(sample.time_s // BUCKET_S)
                total, number = sums.get(bucket, (0.0, 0))
                sums[bucket] = (total + value, number + 1)
        while len(sums) > MOST_BUCKETS:
            del sums[next(iter(sums))]
        return sums


def within_after(samples: Sequence[Sample], time_s: float) -> Sequence[Sample]:
    """Those of `samples` (oldest first) that are newer."""
    first = len(samples)
    while first and samples[first - 1].time_s > time_s:
        first -= 1
    return samples[first:]


def swept(recent: Sequence[Sample], name: Hashable, figure: Figure, now_s: float, width: int) -> list[float | None]:
    """The history of `figure` as `sweep` draws it; what `recent` remembers of it is not added up again."""
    if not isinstance(recent, Recent):
        near, recent = within(recent, now_s, width * BUCKET_S), Recent(len(recent) or 1)
        for sample in near:
            recent.append(sample)
    return columns_of(recent.sums(name, figure), now_s, width)
