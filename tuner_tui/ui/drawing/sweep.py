"""History that sweeps like a heart monitor: each moment has its column for ever, and time overwrites the oldest.

A history that scrolls repaints all of its cells each time; one that sweeps repaints one. The blank column is *now*.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence

from tuner_tui.hardware.sample import Sample

BUCKET_S = 5.0
"""Seconds of one column: a column is finished after five seconds and changes little before."""

Moment = tuple[float, float | None]
"""Seconds since the epoch, and a value or None."""


def sweep(moments: Iterable[Moment], now_s: float, width: int, bucket_s: float = BUCKET_S) -> list[float | None]:
    """`width` columns of `bucket_s` seconds: the mean of the values in each, None where there are none.

    The column of a moment depends on nothing but its time, so a column is drawn once and stays. The column after the
    newest is None: the gap that shows where the pen is.
    """
    sums: dict[int, tuple[float, int]] = {}
    for time_s, value in moments:
        if value is not None:
            bucket = int(time_s // bucket_s)
            total, number = sums.get(bucket, (0.0, 0))
            sums[bucket] = (total + value, number + 1)
    return columns_of(sums, now_s, width, bucket_s)


def columns_of(
    sums: Mapping[int, tuple[float, int]], now_s: float, width: int, bucket_s: float = BUCKET_S
) -> list[float | None]:
    """The columns of `sweep`, from the sum and the number of the values of each bucket."""
    if width < 2:
        return [None] * max(0, width)
    newest = int(now_s // bucket_s)
    columns: list[float | None] = [None] * width
    for bucket in range(newest - width + 2, newest + 1):
        if bucket in sums:
            total, number = sums[bucket]
            columns[bucket % width] = total / number
    return columns


def within(recent: Sequence[Sample], now_s: float, seconds: float) -> Sequence[Sample]:
    """Those of `recent` (oldest first) that are at most `seconds` old."""
    return recent[bisect_left(recent, now_s - seconds, key=lambda sample: sample.time_s) :]
