"""The recent samples, and columns of their values for charts: the newest column is at the right."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterator, Sequence
from functools import lru_cache
from itertools import count
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from tuner_tui.hardware.sample import Sample

SampleValue = Callable[["Sample"], float | None]
Columns = tuple[float | None, ...]


class Window(NamedTuple):
    """How far a history goes back: its name, and its seconds; None is everything that is remembered."""

    name: str
    seconds: float | None


WINDOWS = (Window("2 min", 120.0), Window("10 min", 600.0), Window("all", None))


def following_window(window: Window) -> Window:
    """Return the window that is shown after `window`."""
    return WINDOWS[(WINDOWS.index(window) + 1) % len(WINDOWS)]


SPANS_S = (30, 45, 60, 90, 120, 180, 300, 420, 600, *(round(10 * 1.2**n) * 60 for n in range(1, 45)))
"""Seconds that a history shows: few, so that it seldom changes its scale, and little less than what is known. The first
half minute comes in from the right: stretched over the whole width, seconds look like minutes."""


def shown_past(recent: Sequence[Sample], window: Window, now_s: float) -> float:
    """Return the seconds that all histories show: less than `window` while less was sampled, to a half minute."""
    oldest_s = recent.oldest_s if isinstance(recent, SampleHistory) else recent[0].time_s if recent else now_s
    most_s = math.inf if window.seconds is None else window.seconds
    known_s = min(max(0.0, now_s // MOVE_S * MOVE_S - oldest_s) + SAMPLED_S, most_s)
    return float(next((span for span in reversed(SPANS_S) if span <= known_s), SPANS_S[0]))


class _Sums(NamedTuple):
    """Sum and number of the values in each column of `column_s`, up to the sample of `newest_s`."""

    column_s: float
    columns: dict[int, tuple[float, int]]
    newest_s: float


MOVE_S = 4.0
"""Histories move together, this often: most of what is written to the terminal are their edges."""
SAMPLED_S, LATE_S = 1.0, 3.0
"""The time before a sample for which it stands, and by how much later than the first sample a driver may answer."""
LONGEST_PAUSE_S = 2.0
"""The time between two samples from which a history has a gap."""
WHOLE_SAMPLES = 30
"""The newest samples keep all their figures, of which seconds are judged; the others those that are charted alone."""
SPARE_SAMPLES = 60


class SampleHistory(Sequence["Sample"]):
    """The newest `limit` samples, oldest first, and at most as many older ones, evenly thinned, for charts.

    History is drawn every second for each GPU and value: only new samples are added to the sums of a chart's columns.
    """

    def __init__(self, limit: int = 600) -> None:
        self._limit = limit
        self._samples: list[Sample] = []
        self._older: list[Sample] = []
        self._spacing_s = 0.0
        self._sums: dict[Hashable, _Sums] = {}
        self._columns: dict[Hashable, tuple[float, int, Columns]] = {}

    def append(self, sample: Sample) -> None:
        """Add the newest sample. An older one than the last (the clock was set, another run) clears the history."""
        if self._samples and sample.time_s < self._samples[-1].time_s:
            self.clear()
        self._samples.append(sample)
        if len(self._samples) > WHOLE_SAMPLES:  # of 8 GPUs and 128 cores a whole one takes 20 kB
            self._samples[-WHOLE_SAMPLES - 1] = _charted_part(self._samples[-WHOLE_SAMPLES - 1])
        # Cutting the list copies it: do so once a minute instead of at each sample.
        if len(self._samples) > self._limit + SPARE_SAMPLES:
            for past in self._samples[: -self._limit]:
                if not self._older or past.time_s - self._older[-1].time_s >= self._spacing_s:
                    self._older.append(past)
            del self._samples[: -self._limit]
            if len(self._older) > self._limit:
                self._older = self._older[::2]
                self._spacing_s = (self._older[-1].time_s - self._older[0].time_s) / len(self._older)

    def clear(self) -> None:
        """Forget all samples."""
        self._samples.clear()
        self._older.clear()
        self._spacing_s = 0.0
        self._sums.clear()
        self._columns.clear()

    def __len__(self) -> int:
        return min(len(self._samples), self._limit)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, int):
            return self._samples[index if index < 0 else len(self._samples) - len(self) + index]
        return self._samples[-self._limit :][index]

    @property
    def oldest_s(self) -> float:
        """The time of the oldest sample that charts still have; 0.0 without samples."""
        return samples[0].time_s if (samples := self._older or self._samples) else 0.0

    def _sums_of(self, name: Hashable, figure: SampleValue, column_s: float) -> dict[int, tuple[float, int]]:
        # Columns begin at multiples of their width on the clock, not at the first sample: the columns of all charts
        # then move in the same second. A column keeps sum and number, so a new sample changes one entry and no old
        # sample is read again until the width of columns changes.
        kept = self._sums.get(name)
        if kept is None or kept.column_s != column_s:
            kept = _Sums(column_s, {}, float("-inf"))
        new = samples_after(self._samples, kept.newest_s)
        for sample in [*self._older, *new] if not kept.columns else new:
            if (value := figure(sample)) is not None:
                column = int(sample.time_s // column_s)
                if not kept.columns:
                    first = int((max(self.oldest_s, sample.time_s - LATE_S) - SAMPLED_S) // column_s) + 1
                    kept.columns.update(dict.fromkeys(range(first, column), (value, 1)))
                total, number = kept.columns.get(column, (0.0, 0))
                kept.columns[column] = (total + value, number + 1)
        # Dicts keep the order of insertion, and samples arrive in the order of time: the first key is the oldest.
        while len(kept.columns) > 2 * self._limit:
            del kept.columns[next(iter(kept.columns))]
        self._sums[name] = kept._replace(newest_s=self._samples[-1].time_s if self._samples else kept.newest_s)
        return kept.columns

    def columns(self, name: Hashable, figure: SampleValue, now_s: float, number: int, column_s: float) -> Columns:
        """Return the columns of `history_columns`; they are made once a column, so that a chart is drawn as seldom."""
        newest = int(max(self.oldest_s, now_s // MOVE_S * MOVE_S) // column_s)
        cached_s, cached, columns = self._columns.get((name, number), (column_s, newest - number, ()))
        # The first value fills columns before it; from then on those that were complete only move to the left.
        is_same = name in self._sums and bool(self._sums[name].columns) and cached_s == column_s
        if is_same and cached == newest:
            return columns
        sums = self._sums_of(name, figure, column_s)
        kept = columns[newest - cached : number - 1] if is_same and cached < newest else ()
        first = newest - number + 1
        columns = kept + tuple(_means(sums, first + len(kept), newest, column_s))
        self._columns[name, number] = (column_s, newest, columns)
        return columns


def _charted_part(sample: Sample) -> Sample:
    """Return the sample with only the figures whose histories are drawn."""
    # Of its memory the percentage, as those small numbers take no memory of their own.
    pairs = [(gpu, int(100 * (gpu.memory_used_bytes or 0) / (gpu.memory_total_bytes or 1))) for gpu in sample.gpus]
    gpus = tuple(type(gpu)(gpu.index, gpu.name, gpu.utilisation_pct, each, 100, lost=gpu.lost) for gpu, each in pairs)
    return type(sample)(sample.time_s, gpus, type(sample.host)(cpu_pct=sample.host.cpu_pct))


def samples_after(samples: Sequence[Sample], time_s: float) -> Sequence[Sample]:
    """Return the samples (oldest first) that are newer than `time_s`."""
    if isinstance(samples, SampleHistory):  # asked several times a second for each GPU
        samples = samples._samples
    first = len(samples)
    while first and samples[first - 1].time_s > time_s:
        first -= 1
    return samples[first:]


def history_columns(
    recent: Sequence[Sample], name: Hashable, figure: SampleValue, now_s: float, number: int, past_s: float
) -> Columns:
    """Return the last `past_s` seconds in `number` columns, the newest at the right: means, None for unknown values."""
    if number < 1:
        return ()
    column_s = past_s / number
    if not isinstance(recent, SampleHistory):
        near = samples_after(recent, now_s - number * column_s)
        recent = SampleHistory(len(near) or 1)
        for sample in near:
            recent.append(sample)
    return recent.columns(name, figure, now_s, number, column_s)


def drawn_columns(
    recent: Sequence[Sample], name: Hashable, figure: SampleValue, sample: Sample, number: int, past_s: float
) -> Columns:
    """Return the columns up to `sample`, which is the newest one whenever the others move, without stairs between."""
    columns = history_columns(recent, name, figure, sample.time_s, number, past_s)
    columns = _smooth(columns, int(number * SAMPLED_S / past_s / 2))
    return columns if not columns or (now := figure(sample)) is None else (*columns[:-1], now)


@lru_cache(maxsize=64)  # a picture asks for each history more than once
def _smooth(columns: Columns, half: int) -> Columns:
    near = ([each for each in columns[max(0, n - half) : n + half + 1] if each is not None] for n in count())
    pairs = zip(columns, near, strict=False)
    return tuple(None if at is None else sum(each) / len(each) for at, each in pairs) if half else columns


def _means(sums: dict[int, tuple[float, int]], first: int, newest: int, column_s: float) -> Iterator[float | None]:
    # Samples are taken once a second, a little early or late: columns without one show the value before it, as do the
    # next columns of a chart with several a second.
    spread = max(1, int(LONGEST_PAUSE_S / column_s) - 1)
    mean, sampled = 0.0, first - spread - 1
    for column in range(first - spread, newest + 1):
        if column in sums:
            total, number = sums[column]
            mean, sampled = total / number, column
        if column >= first:
            late = column - sampled > (0 if column == newest and column_s >= SAMPLED_S else spread)
            yield None if late else mean
