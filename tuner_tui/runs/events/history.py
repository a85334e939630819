"""Downsampled series over a whole run, for plots and sparklines, in memory that does not grow with the run."""

from __future__ import annotations

import math
from dataclasses import dataclass

from tuner_tui.runs.events.types import Evaluated, Event, Metrics, Steps, trust


@dataclass(frozen=True, slots=True)
class Series:
    """Points of one figure: `xs` ascending (steps or seconds), `ys` of equal length; None is a gap."""

    name: str
    unit: str
    xs: tuple[float, ...] = ()
    ys: tuple[float | None, ...] = ()


@dataclass(frozen=True, slots=True)
class History:
    """Series plotted over the steps of a run, each with at most a few hundred points.

    `memory_bytes` is the peak summed over ranks: reserved GPU memory, or resident memory on a CPU.
    """

    loss: Series = Series("loss", "")
    eval_loss: Series = Series("eval loss", "")
    samples_s: Series = Series("throughput", "samples/s")
    memory_bytes: Series = Series("peak memory", "B")


MAX_POINTS = 600
"""A series of this length is thinned to half; wide terminals have fewer columns of half cells."""


class DownsampledSeries:
    """Keeps at most `MAX_POINTS` points, evenly spaced over the whole series, and always the newest."""

    def __init__(self, name: str, unit: str) -> None:
        self._empty = Series(name, unit)
        self._points: list[tuple[float, float | None]] = []
        self._spacing = 0.0
        self._newest: tuple[float, float | None] | None = None

    def add(self, x: float, y: float | None) -> None:
        """Add a point. A point at or before the last one replaces what it overtakes: the run went back to a
        checkpoint."""
        if not math.isfinite(x):
            return
        # When the list is full every second point is dropped, and from then on points closer than twice the distance
        # are not kept: the memory is bounded, and the points stay even over a run of any length.
        while self._points and self._points[-1][0] >= x:
            self._points.pop()
        self._newest = (x, y)
        if not self._points or x - self._points[-1][0] >= self._spacing:
            self._points.append(self._newest)
        if len(self._points) >= MAX_POINTS:
            self._points = self._points[::2]
            self._spacing = (self._points[-1][0] - self._points[0][0]) / (MAX_POINTS / 2)

    def series(self) -> Series:
        """The points so far."""
        points = list(self._points)
        if self._newest is not None and (not points or points[-1] != self._newest):
            points.append(self._newest)
        xs, ys = tuple(x for x, _ in points), tuple(y for _, y in points)
        return Series(self._empty.name, self._empty.unit, xs, ys)


@dataclass(slots=True)
class _RankCounters:
    """Counters from which the next rate of a rank is computed, and its latest figures."""

    base: Steps
    samples_s: float | None = None
    peak_bytes: int | None = None


class HistoryBuilder:
    """Builds the history from events. Events may have large gaps; cumulative counters bridge them."""

    def __init__(self) -> None:
        self._loss = DownsampledSeries("loss", "")
        self._eval_loss = DownsampledSeries("eval loss", "")
        self._samples_s = DownsampledSeries("throughput", "samples/s")
        self._memory = DownsampledSeries("peak memory", "B")
        self._ranks: dict[int, _RankCounters] = {}
        self._loss_trust = 0
        self._built: History | None = History()

    def add(self, event: Event) -> None:
        match event:
            case Steps():
                self._add_steps(event)
            case Metrics():
                self._add_metrics(event)
            case Evaluated() if event.rank in (None, 0) and "eval_loss" in event.metrics:
                self._eval_loss.add(event.step, _finite(event.metrics["eval_loss"]))
            case _:
                return
        self._built = None

    def history(self) -> History:
        """The history so far; the same object until an event is added."""
        if self._built is None:
            series = (self._loss, self._eval_loss, self._samples_s, self._memory)
            self._built = History(*(each.series() for each in series))
        return self._built

    def _add_metrics(self, event: Metrics) -> None:
        # Losses of two sources differ (one batch, a mean of the last hundred), so a plot has only those of the best
        # source.
        new_trust = trust(event.source, event.summary)
        if event.rank in (None, 0) and event.loss is not None and new_trust >= self._loss_trust:
            if new_trust > self._loss_trust:
                self._loss, self._loss_trust = DownsampledSeries("loss", ""), new_trust
            self._loss.add(event.step, _finite(event.loss))

    def _add_steps(self, event: Steps) -> None:
        rank = self._ranks.setdefault(event.rank or 0, _RankCounters(base=event))
        _advance(rank, event)
        if (event.rank or 0) != min(self._ranks):  # one point a second, not one for each rank
            return
        self._memory.add(event.step, _sum([rank.peak_bytes for rank in self._ranks.values()]))
        if rank.base is event and rank.samples_s is not None:
            self._samples_s.add(event.step, _sum([rank.samples_s for rank in self._ranks.values()]))


RATE_SPAN_S = 5.0
"""Seconds of step time between two points of the throughput; shorter spans show jitter of the clock."""


def _advance(rank: _RankCounters, counters: Steps) -> None:
    peaks = (counters.reserved_peak_bytes, counters.allocated_peak_bytes, counters.rss_peak_bytes)
    rank.peak_bytes = next((peak for peak in peaks if peak is not None), None)
    if counters.train_s < rank.base.train_s or counters.own_steps < rank.base.own_steps:
        rank.base, rank.samples_s = counters, None
    elif counters.train_s - rank.base.train_s >= RATE_SPAN_S:
        rank.samples_s = (counters.samples - rank.base.samples) / (counters.train_s - rank.base.train_s)
        rank.base = counters


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _sum(values: list[float | None] | list[int | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None
