"""The recent samples, and columns of their values for charts: the newest column is at the right."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Hashable, Sequence
from typing import TYPE_CHECKING, overload

if TYPE_CHECKING:
    from tuner_tui.hardware.sample import Sample

BUCKET_S = 5.0
"""Seconds per bucket: a column changes little before it is complete, and all columns move only when the next begins."""


def samples_within(recent: Sequence[Sample], now_s: float, seconds: float) -> Sequence[Sample]:
    """Return the samples (oldest first) that are at most `seconds` old."""
    return recent[bisect_left(recent, now_s - seconds, key=lambda sample: sample.time_s) :]


MAX_BUCKETS = 512
"""More columns than the widest screen shows."""
SampleValue = Callable[["Sample"], float | None]
Columns = tuple[float | None, ...]


class SampleHistory(Sequence["Sample"]):
    """The newest `limit` samples, oldest first, and the sums of each value drawn from them.

    Ten minutes of history are drawn every second for each GPU and value: only new samples are added to the sums.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._samples: list[Sample] = []
        self._sums: dict[Hashable, dict[int, tuple[float, int]]] = {}
        self._newest_s: dict[Hashable, float] = {}
        self._columns: dict[Hashable, tuple[int, Columns]] = {}

    def append(self, sample: Sample) -> None:
        """Add the newest sample. An older one than the last (the clock was set, another run) clears the history."""
        if self._samples and sample.time_s < self._samples[-1].time_s:
            self.clear()
        self._samples.append(sample)
        # Cutting the list copies it: do so once per `limit` samples instead of at each one.
        if len(self._samples) > 2 * self._limit:
            del self._samples[: -self._limit]

    def clear(self) -> None:
        """Forget all samples."""
        self._samples.clear()
        self._sums.clear()
        self._newest_s.clear()
        self._columns.clear()

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

    def sums(self, name: Hashable, figure: SampleValue) -> dict[int, tuple[float, int]]:
        """Return sum and number of the values of `figure` for each bucket of time; `name` identifies the figure."""
        # Buckets begin at multiples of `BUCKET_S` of the clock, not at the first sample: the columns of all charts then
        # move in the same second, and a chart that is drawn again later has the same columns. A bucket keeps sum and
        # number, so a new sample changes one entry and no old sample is read again.
        sums, newest_s = self._sums.setdefault(name, {}), self._newest_s.get(name, float("-inf"))
        for sample in samples_after(self._samples, newest_s):
            self._newest_s[name] = sample.time_s
            if (value := figure(sample)) is not None:
                bucket = int(sample.time_s // BUCKET_S)
                total, number = sums.get(bucket, (0.0, 0))
                sums[bucket] = (total + value, number + 1)
        # Dicts keep the order of insertion, and samples arrive in the order of time: the first key is the oldest
        # bucket.
        while len(sums) > MAX_BUCKETS:
            del sums[next(iter(sums))]
        return sums

    def columns(self, name: Hashable, figure: SampleValue, now_s: float, width: int, buckets: int) -> Columns:
        """Return the columns of `history_columns`; they are made once a bucket, so that a chart is drawn as seldom."""
        newest_bucket = int(now_s // BUCKET_S)
        cached = self._columns.get((name, width, buckets))
        if cached is not None and cached[0] == newest_bucket:
            return cached[1]
        sums, newest = self.sums(name, figure), newest_bucket // buckets
        columns = tuple(
            _mean([sums[bucket] for bucket in range(column * buckets, (column + 1) * buckets) if bucket in sums])
            for column in range(newest - width + 1, newest + 1)
        )
        self._columns[name, width, buckets] = (newest_bucket, columns)
        return columns


def samples_after(samples: Sequence[Sample], time_s: float) -> Sequence[Sample]:
    """Return the samples (oldest first) that are newer than `time_s`."""
    first = len(samples)
    while first and samples[first - 1].time_s > time_s:
        first -= 1
    return samples[first:]


def history_columns(
    recent: Sequence[Sample], name: Hashable, figure: SampleValue, now_s: float, width: int, buckets: int = 1
) -> Columns:
    """Return `width` columns of `buckets` buckets each, the newest at the right: means, None for unknown values."""
    if not isinstance(recent, SampleHistory):
        near = samples_within(recent, now_s, width * buckets * BUCKET_S)
        recent = SampleHistory(len(near) or 1)
        for sample in near:
            recent.append(sample)
    return recent.columns(name, figure, now_s, width, buckets)


def _mean(sums: Sequence[tuple[float, int]]) -> float | None:
    return sum(total for total, _ in sums) / sum(number for _, number in sums) if sums else None
