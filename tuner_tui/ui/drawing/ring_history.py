"""History charts drawn like an oscilloscope: each moment keeps its column, and new values overwrite the oldest."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import overload

from tuner_tui.hardware.sample import Sample

BUCKET_S = 5.0
"""Seconds per column: a column changes little before it is complete."""

TimedValue = tuple[float, float | None]
"""Seconds since the epoch, and a value or None."""


def ring_columns(
    moments: Iterable[TimedValue], now_s: float, width: int, bucket_s: float = BUCKET_S
) -> list[float | None]:
    """Return `width` columns of `bucket_s` seconds: the mean of the values in each, None if it has none.

    The column of a moment depends on nothing but its time, so a column is drawn once and stays. The column after the
    newest is None: the gap that shows where the pen is.
    """
    sums: dict[int, tuple[float, int]] = {}
    for time_s, value in moments:
        if value is not None:
            bucket = int(time_s // bucket_s)
            total, number = sums.get(bucket, (0.0, 0))
            sums[bucket] = (total + value, number + 1)
    return columns_from_sums(sums, now_s, width, bucket_s)


def columns_from_sums(
    sums: Mapping[int, tuple[float, int]], now_s: float, width: int, bucket_s: float = BUCKET_S
) -> list[float | None]:
    """Return the columns of `ring_columns` from the sum and number of values of each bucket."""
    if width < 2:
        return [None] * max(0, width)
    newest = int(now_s // bucket_s)
    columns: list[float | None] = [None] * width
    for bucket in range(newest - width + 2, newest + 1):
        if bucket in sums:
            total, number = sums[bucket]
            columns[bucket % width] = total / number
    return columns


def mark_now(lines: Sequence[str], now_s: float, width: int) -> list[str]:
    """Mark the gap after the newest column of a ring chart, so that nobody takes its right end for the newest."""
    if width < 2:
        return list(lines)
    gap = (int(now_s // BUCKET_S) + 1) % width
    return [text[:gap] + "┆" + text[gap + 1 :] for text in lines]


def samples_within(recent: Sequence[Sample], now_s: float, seconds: float) -> Sequence[Sample]:
    """Return the samples (oldest first) that are at most `seconds` old."""
    return recent[bisect_left(recent, now_s - seconds, key=lambda sample: sample.time_s) :]


MAX_BUCKETS = 512
"""More columns than the widest screen shows."""
SampleValue = Callable[[Sample], float | None]


class SampleHistory(Sequence[Sample]):
    """The newest `limit` samples, oldest first, and the sums of each value drawn from them.

    Ten minutes of history are drawn every second for each GPU and value: only new samples are added to the sums.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._samples: list[Sample] = []
        self._sums: dict[Hashable, dict[int, tuple[float, int]]] = {}
        self._added_s: dict[Hashable, float] = {}

    def append(self, sample: Sample) -> None:
        """Add the newest sample. An older one than the last (the clock was set, another run) clears the history."""
        if self._samples and sample.time_s < self._samples[-1].time_s:
            self.clear()
        self._samples.append(sample)
        if len(self._samples) > 2 * self._limit:
            del self._samples[: -self._limit]

    def clear(self) -> None:
        """Forget all samples."""
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

    def sums(self, name: Hashable, figure: SampleValue) -> dict[int, tuple[float, int]]:
        """Return sum and number of the values of `figure` for each bucket of time; `name` identifies the figure."""
        sums, done_s = self._sums.setdefault(name, {}), self._added_s.get(name, float("-inf"))
        for sample in samples_after(self._samples, done_s):
            self._added_s[name] = sample.time_s
            if (value := figure(sample)) is not None:
                bucket = int(sample.time_s // BUCKET_S)
                total, number = sums.get(bucket, (0.0, 0))
                sums[bucket] = (total + value, number + 1)
        while len(sums) > MAX_BUCKETS:
            del sums[next(iter(sums))]
        return sums


def samples_after(samples: Sequence[Sample], time_s: float) -> Sequence[Sample]:
    """Return the samples (oldest first) that are newer than `time_s`."""
    first = len(samples)
    while first and samples[first - 1].time_s > time_s:
        first -= 1
    return samples[first:]


def history_columns(
    recent: Sequence[Sample], name: Hashable, figure: SampleValue, now_s: float, width: int
) -> list[float | None]:
    """Return the history of `figure` as ring columns; sums already in `recent` are reused."""
    return columns_from_sums(_bucket_sums(recent, name, figure, now_s, width), now_s, width)


def scrolled_columns(
    recent: Sequence[Sample], name: Hashable, figure: SampleValue, now_s: float, width: int
) -> list[float | None]:
    """Return the history of `figure` with the newest column at the right; every `BUCKET_S` all columns move.

    For one row of blocks that is cheap, for a tall chart it is not.
    """
    sums, newest = _bucket_sums(recent, name, figure, now_s, width), int(now_s // BUCKET_S)
    found = (sums.get(bucket) for bucket in range(newest - width + 1, newest + 1))
    return [None if pair is None else pair[0] / pair[1] for pair in found]


def _bucket_sums(
    recent: Sequence[Sample], name: Hashable, figure: SampleValue, now_s: float, width: int
) -> Mapping[int, tuple[float, int]]:
    if not isinstance(recent, SampleHistory):
        near, recent = samples_within(recent, now_s, width * BUCKET_S), SampleHistory(len(recent) or 1)
        for sample in near:
            recent.append(sample)
    return recent.sums(name, figure)
