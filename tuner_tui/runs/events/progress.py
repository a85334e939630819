"""Speed from cumulative counters, and what follows from it: the time left, the phase, stalls and series to plot.

A speed is the difference over the last seconds of training, not an average of averages. Series cover a whole run in
memory that does not grow with it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from statistics import median
from typing import TypeVar

from msgspec import Struct
from msgspec.structs import asdict, replace

from tuner_tui.runs.events.run_state import RankState, Rates, RunState
from tuner_tui.runs.events.types import BACKWARD, Evaluated, Event, Metrics, Steps, trust

Figure = TypeVar("Figure", int, float)
WINDOW_S = 20.0
"""Seconds of step time that rates cover: long enough to be steady, short enough to show a change."""
MAX_POINTS = 30
"""Counters come once a second; more than `WINDOW_S` of them are kept for steps that take seconds."""


def with_counters(rank: RankState, counters: Steps) -> RankState:
    """The rank with new counters. Counters that decreased mean a new process: the old ones are dropped."""
    latest = rank.latest
    if latest is None or counters.own_steps < latest.own_steps or counters.train_s < latest.train_s:
        return replace(rank, latest=counters, recent=(counters,), lulls=())
    if counters.own_steps == latest.own_steps and len(rank.recent) > 0:
        return replace(rank, latest=counters)  # no step was done: `recent` keeps the times of steps
    lulls = (*rank.lulls, *_lull(rank.recent, counters))[-MAX_LULLS:]
    # The oldest point is dropped once the second one is old enough too: the window is never shorter than `WINDOW_S`.
    recent = (*rank.recent, counters)[-MAX_POINTS:]
    while len(recent) > 2 and recent[-1].train_s - recent[1].train_s >= WINDOW_S:
        recent = recent[1:]
    return replace(rank, latest=counters, recent=recent, lulls=lulls)


MAX_LULLS = 16
MIN_LULL_S = 1.0
"""Shorter ones are many in the seconds that rates cover."""


def _lull(recent: Sequence[Steps], counters: Steps) -> list[tuple[int, float]]:
    """A pause before the steps up to new counters, if these took three times as long as before them."""
    usual_s = [seconds / steps for steps, seconds in (_span(a, b) for a, b in pairwise(recent)) if steps]
    steps, seconds = _span(recent[-1], counters) if usual_s else (0, 0.0)
    pause_s = seconds - steps * median(usual_s or [0.0])
    return [(recent[-1].own_steps, pause_s)] if pause_s > max(MIN_LULL_S, seconds * 2 / 3) else []


def rates_of(ranks: Iterable[RankState]) -> Rates:
    """Samples and tokens are summed over ranks; ranks step together, so the slowest sets the step time.

    Independent ranks do not: their steps are summed too. Of ranks that train copies of their own the first one counts.
    """
    # `train_s` leaves out evaluation and saving, so the speed is that of training even where a rank evaluated in
    # between.
    ranks = sorted(ranks, key=lambda rank: rank.rank)
    ranks = ranks[:1] if any(rank.latest is not None and rank.latest.alone for rank in ranks) else ranks
    spans = [(rank.recent[0], rank.recent[-1]) for rank in ranks if len(rank.recent) > 1]
    spans = [(a, b) for a, b in spans if b.train_s > a.train_s and b.own_steps > a.own_steps]
    if not spans:
        return Rates()
    step_times_s = [(b.train_s - a.train_s) / (b.own_steps - a.own_steps) for a, b in spans]
    step_time_s = max(step_times_s)
    if any(rank.independent for rank in ranks):
        step_time_s = 1 / sum(1 / time_s for time_s in step_times_s)
    tokens_s = _summed(spans, lambda counters: counters.tokens)
    padding_s = _summed(spans, lambda counters: counters.padding_tokens)
    computed_s = (tokens_s or 0.0) + (padding_s or 0.0)
    waits = [
        (b.data_wait_s - a.data_wait_s) / (b.train_s - a.train_s)
        for a, b in spans
        if b.between_s is not None or b.data_wait_s  # else there is no data loader
    ]
    pauses = [
        (b.between_s - (a.between_s or 0.0)) / (b.train_s - a.train_s) for a, b in spans if b.between_s is not None
    ]
    return Rates(
        steps_s=1 / step_time_s,
        samples_s=_summed(spans, lambda counters: counters.samples) or None,
        tokens_s=tokens_s,
        padding_share=padding_s / computed_s if padding_s is not None and tokens_s is not None and computed_s else None,
        data_wait_share=_largest(waits),
        between_share=_largest(pauses),
        step_time_s=step_time_s,
    )


def mean_rates(ranks: Iterable[RankState]) -> Rates:
    """Speed over the whole run, used to compare runs."""
    return rates_of(map(since_its_start, ranks))


def since_its_start(rank: RankState) -> RankState:
    """The rank with counters that cover all of its steps, not only the last seconds."""
    last = rank.recent[-1] if rank.recent else rank.latest
    if last is None:
        return rank
    waited_s = None if last.rank_wait_s is None else 0.0
    start = Steps(t=0.0, step=0, own_steps=0, tokens=0, padding_tokens=0, rank_wait_s=waited_s)
    return replace(rank, recent=(start, last))


class RankTimes(Struct, frozen=True):
    """Seconds of one rank per step: the whole step, waiting for data, waiting for other ranks, after the optimizer."""

    rank: int
    step_s: float
    data_wait_s: float
    rank_wait_s: float
    between_s: float

    @property
    def own_s(self) -> float:
        """What is left: the rank's own work, without the computation of gradients."""
        return max(0.0, self.step_s - self.data_wait_s - self.rank_wait_s)


def rank_times(ranks: Iterable[RankState]) -> tuple[RankTimes, ...]:
    """The times of each rank over the last seconds; empty unless every rank of several has measured them."""
    times = []
    for rank in ranks:
        first, last = (rank.recent[0], rank.recent[-1]) if len(rank.recent) > 1 else (None, None)
        if first is None or last is None or first.rank_wait_s is None or last.rank_wait_s is None:
            return ()
        steps = last.own_steps - first.own_steps
        if steps <= 0:
            return ()
        times.append(
            RankTimes(
                rank.rank,
                step_s=(last.train_s - first.train_s) / steps,
                data_wait_s=(last.data_wait_s - first.data_wait_s) / steps,
                rank_wait_s=(last.rank_wait_s - first.rank_wait_s) / steps,
                between_s=((last.between_s or 0.0) - (first.between_s or 0.0)) / steps,
            )
        )
    return tuple(times) if len(times) > 1 else ()


def _summed(spans: list[tuple[Steps, Steps]], of: Callable[[Steps], int | None]) -> float | None:
    total = None
    for a, b in spans:
        first, last = of(a), of(b)
        if first is not None and last is not None and last >= first:
            total = (total or 0.0) + (last - first) / (b.train_s - a.train_s)
    return total


def _largest(shares: Sequence[float]) -> float | None:
    """That of the rank with the largest share; the others wait for it."""
    return min(1.0, max(0.0, *shares)) if shares else None


MIN_STEPS = 3
"""Steps required for an estimate. The first step of a process, which warms up caches, is not counted."""
STALL_FACTOR = 8.0
"""Training counts as stalled after this many usual step times without a step."""
STALL_FLOOR_S = 10.0
"""Counters come once a second, late by up to one step; shorter pauses mean nothing."""
FIRST_STEP_STALL_S = 600.0
"""The first step may compile, build caches or wait for other machines."""


def seconds_left(state: RunState, now: float) -> float | None:
    """Time left at `now` (seconds since the epoch), evaluation and saving included; None before there are enough steps.

    None too for a run that was asked to stop, which makes no more of them.
    Uses the step time of the last seconds; evaluations and checkpoints go on as often as they were so far, and so do
    lulls: it is None while the training has made no whole cycle of what may take much of it.
    """
    rank, ends = state.first_rank, state.finished or state.stop_requested
    if rank is None or rank.latest is None or state.step is None or not state.total_steps or ends:
        return None
    steps, seconds = (0, 0.0) if not rank.recent else _span(rank.recent[0], rank.recent[-1])
    if steps < MIN_STEPS or seconds <= 0:
        return None
    steps_left: float = max(0, state.total_steps - state.step)
    if state.independent:  # each makes its own part of the steps
        steps_left /= max(1, sum(not rank.ended for rank in state.ranks.values()))
    evaluated = {evaluation.step for evaluation in state.evaluations if evaluation.step <= state.step}
    evaluated |= {state.step} if state.phase == "evaluating" else set()
    pauses_s = _pauses_left_s(state, rank.latest.eval_s, sorted(evaluated))
    if state.checkpoint is not None:
        pauses_s += _pauses_left_s(state, rank.latest.save_s, [state.checkpoint.step])
    longest_s = step_time_s = seconds / steps
    lulls = rank.lulls
    if len(lulls) == 1 and lulls[0][1] > rank.latest.train_s * MAX_SINGLE_LULL:
        return None
    intervals = [b - a for (a, _), (b, _) in pairwise(lulls)]
    if intervals:
        since, total_s = rank.latest.own_steps - lulls[-1][0], sum(pause_s for _, pause_s in lulls)
        step_time_s -= sum(pause_s for at, pause_s in lulls if at >= rank.recent[0].own_steps) / steps
    if intervals and max(intervals) > 2 * min(intervals):
        step_time_s += total_s / (rank.latest.own_steps - lulls[0][0])
    elif intervals:
        # A lull is noted after the last counters before it, and none follows the last step.
        lulls_left = max(0, math.ceil((since + steps_left) / median(intervals) - 0.25) - 1)
        pauses_s += lulls_left * total_s / len(lulls)
        longest_s = total_s / len(lulls) if since > 0.75 * median(intervals) else step_time_s
    left_s = steps_left * step_time_s + pauses_s
    again_s = rank.latest.eval_s * steps_left / rank.latest.own_steps
    if evaluated and max(evaluated) <= state.first_step + 1 and again_s > left_s / 3:
        return None  # one at the start: how often there will be others is not known
    if state.last_step_t is None or state.phase != "training":
        return max(0.0, left_s)
    # Counters come late, by at most one second or one step.
    return max(0.0, left_s - min(max(0.0, now - state.last_step_t), max(1.0, longest_s)))


MAX_SINGLE_LULL = 0.1
"""Share of the training of a lull that may be the only one."""


def phase_at(state: RunState, now: float) -> str:
    """The phase at `now`: that of the run, or `stalled` where training takes several usual step times without a
    step."""
    if state.finished is not None or state.phase != "training":
        return state.phase
    since = max(state.last_step_t or 0.0, state.phase_since_t or 0.0)
    quiet_s = now - since if since else 0.0
    return "stalled" if quiet_s > STALL_FLOOR_S and quiet_s > stall_after_s(state) else "training"


def startup_phases(state: RunState, now: float) -> tuple[tuple[str, float], ...]:
    """The phases before the first step, in the order in which they first began, and the seconds of each until `now`.

    A phase that was entered several times is one entry with the sum, so that all add up to the time of the start.
    """
    ends = [t for t, _ in state.startup[1:]] + [now if state.first_step_t is None else state.first_step_t]
    seconds: dict[str, float] = {}
    for (t, phase), end in zip(state.startup, ends, strict=False):
        name = STARTUP_NAMES.get(phase, phase)
        seconds[name] = seconds.get(name, 0.0) + max(0.0, end - t)
    return tuple(seconds.items())


def startup_phase(state: RunState, now: float) -> tuple[str, float] | None:
    """The phase of the start that is under way, and its seconds until `now`; None from the first step on."""
    if not state.startup or state.first_step_t is not None or state.step is not None:
        return None
    name = STARTUP_NAMES.get(state.startup[-1][1], state.startup[-1][1])
    return name, dict(startup_phases(state, now))[name]


STARTUP_NAMES = {"starting": "setting up", "training": "first step"}
"""Before the first step these phases mean something else than after it."""


def stall_after_s(state: RunState) -> float:
    """Seconds without a step after which training counts as stalled."""
    spans = (_span(first, last) for rank in state.ranks.values() for first, last in pairwise(rank.recent))
    times = [seconds / steps for steps, seconds in spans if steps > 0 and seconds > 0]
    slowest = max((counters.slowest_step_s or 0.0 for counters in state.counters), default=0.0)
    if not times and not slowest:
        return FIRST_STEP_STALL_S
    # Step times that differ much by design, such as batches of sorted lengths, must not look like a stall: the slowest
    # step that the observer has measured counts as well as the usual one.
    usual = median(times) if times else slowest
    return max(STALL_FLOOR_S, STALL_FACTOR * usual, 3 * slowest)


def _span(first: Steps, last: Steps) -> tuple[int, float]:
    """Steps between two counters, and the seconds of training that they took."""
    return last.own_steps - first.own_steps, last.train_s - first.train_s


MAX_INTERVALS = 16
"""Of the intervals between two evaluations the newest count: of earlier evaluations some are not kept."""


def _pauses_left_s(state: RunState, seconds: float, paused_at: Sequence[int]) -> float:
    """Seconds that evaluating or saving will still take, which took `seconds` so far and was last done `paused_at`."""
    step, total, last = state.step or 0, state.total_steps or 0, paused_at[-1] if paused_at else 0
    intervals = [b - a for a, b in pairwise(paused_at[-MAX_INTERVALS:])]
    if not intervals and last > state.first_step + 1:  # one before or after the first step says nothing of the others
        intervals = [last - state.first_step]
    if not intervals:
        return 0.0
    interval = max(median(intervals), step - last)
    pauses_left = max(0.0, (total - last) / interval)
    if len(paused_at) > 1:
        pauses_left = math.floor(pauses_left)
    return seconds / max(len(paused_at), (last - state.first_step) // interval) * pauses_left


class Series(Struct, frozen=True):
    """Points of one figure: `xs` ascending (steps or seconds), `ys` of equal length; None is a gap."""

    name: str
    unit: str
    xs: tuple[float, ...] = ()
    ys: tuple[float | None, ...] = ()


class History(Struct, frozen=True):
    """Series plotted over the steps of a run, each with at most a few hundred points.

    `memory_bytes` is the peak summed over ranks: reserved GPU memory, or resident memory on a CPU. `results` are the
    other metrics of the evaluations, `logged` what the training logs with its loss, in the order in which they came.
    """

    loss: Series = Series("loss", "")
    eval_loss: Series = Series("eval loss", "")
    samples_s: Series = Series("throughput", "samples/s")
    memory_bytes: Series = Series("peak memory", "B")
    grad_norm: Series = Series("gradient norm", "")
    learning_rate: Series = Series("learning rate", "")
    results: tuple[Series, ...] = ()
    logged: tuple[Series, ...] = ()


MAX_RESULTS = 12
"""Metrics of evaluations, and of the training, that are kept; some are of each class."""
MAX_SERIES_POINTS = 600
"""A series of this length is thinned to half; wide terminals have fewer columns of half cells."""


class DownsampledSeries:
    """Keeps at most `MAX_SERIES_POINTS` points, evenly spaced over the whole series, and always the newest."""

    def __init__(self, empty: Series) -> None:
        self._empty = empty
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
        if not self._points or y is None or x - self._points[-1][0] >= self._spacing:
            self._points.append(self._newest)
        if len(self._points) >= MAX_SERIES_POINTS:
            # Of two neighbours a gap is kept: a loss that was no number shows in a long run too.
            pairs = zip(self._points[::2], self._points[1::2], strict=False)
            self._points = [second if second[1] is None else first for first, second in pairs]
            self._spacing = (self._points[-1][0] - self._points[0][0]) / (MAX_SERIES_POINTS / 2)

    def series(self) -> Series:
        points = list(self._points)
        if self._newest is not None and (not points or points[-1] != self._newest):
            points.append(self._newest)
        return replace(self._empty, xs=tuple(x for x, _ in points), ys=tuple(y for _, y in points))


class _RankCounters(Struct):
    """Counters from which the next rate of a rank is computed, and its latest figures."""

    base: Steps
    samples_s: float | None = None
    peak_bytes: int | None = None


class HistoryBuilder:
    """Builds the history from events. Events may have large gaps; cumulative counters bridge them."""

    def __init__(self) -> None:
        empty = asdict(History()).items()
        self._series = {name: DownsampledSeries(series) for name, series in empty if isinstance(series, Series)}
        self._results: dict[str, DownsampledSeries] = {}
        self._logged: dict[str, DownsampledSeries] = {}
        self._backward: dict[str, DownsampledSeries] = {}
        self._evaluated_step: int | None = None
        self._ranks: dict[int, _RankCounters] = {}
        self._loss_trust = -1
        self._parts: set[str] = set()
        self._built: History | None = History()

    def add(self, event: Event) -> None:
        match event:
            case Steps():
                self._add_steps(event)
            case Metrics():
                self._add_metrics(event)
            case Evaluated() if event.rank in (None, 0) and event.results:
                self._add_evaluation(event)
            case _:
                return
        self._built = None

    def history(self) -> History:
        """The history so far; the same object until an event is added."""
        if self._built is None:
            shown = self._logged if len(self._parts) >= len(self._backward) else {**self._backward, **self._logged}
            results, logged = (tuple(metric.series() for metric in of.values()) for of in (self._results, shown))
            always = {name: series.series() for name, series in self._series.items()}
            self._built = History(**always, results=results, logged=logged)
        return self._built

    def _add_evaluation(self, event: Evaluated) -> None:
        results = dict(event.results)
        loss = results.pop("eval_loss", None)
        if loss is not None:
            if event.step == self._evaluated_step:
                return  # of the best weights, loaded again after the training, or on other data
            self._evaluated_step = event.step
            self._series["eval_loss"].add(event.step, finite(loss))
        _add_each(self._results, event.step, results)

    def _add_metrics(self, event: Metrics) -> None:
        if event.rank not in (None, 0):
            return
        for name, value in (("grad_norm", event.grad_norm), ("learning_rate", event.learning_rate)):
            if value is not None:
                self._series[name].add(event.step, finite(value))
        # Losses of two sources differ (one batch, a mean of the last hundred), so a plot has only those of the best
        # source.
        new_trust = trust(event.source, event.summary, event.part)
        is_backward = event.source == BACKWARD
        _add_each(self._backward if is_backward else self._logged, event.step, {**event.parts, **event.others})
        self._parts.update(() if is_backward else event.parts)
        if event.parts and (is_backward or len(self._parts) > 1) and self._loss_trust <= is_backward - 1:
            self._begin_loss(0)  # it was one of them
        if event.loss is not None and new_trust >= self._loss_trust:
            if new_trust > self._loss_trust:
                self._begin_loss(new_trust)
            self._series["loss"].add(event.step, finite(event.loss))

    def _begin_loss(self, trusted: int) -> None:
        self._series["loss"], self._loss_trust = DownsampledSeries(History().loss), trusted

    def _add_steps(self, event: Steps) -> None:
        rank = self._ranks.setdefault(event.rank or 0, _RankCounters(base=event))
        _advance(rank, event)
        if (event.rank or 0) != min(self._ranks):  # one point a second, not one for each rank
            return
        self._series["memory_bytes"].add(event.step, known_sum(rank.peak_bytes for rank in self._ranks.values()))
        if rank.base is event and rank.samples_s is not None:
            ranks = [rank] if event.alone else self._ranks.values()
            self._series["samples_s"].add(event.step, known_sum(each.samples_s for each in ranks))


def _add_each(kept: dict[str, DownsampledSeries], step: int, values: Mapping[str, float]) -> None:
    for name, value in values.items():
        if name not in kept and len(kept) < MAX_RESULTS:
            kept[name] = DownsampledSeries(Series(name.replace("_", " "), ""))
        if name in kept:
            kept[name].add(step, finite(value))


RATE_SPAN_S = 5.0
"""Seconds of step time between two points of the throughput; shorter spans show jitter of the clock."""


def _advance(rank: _RankCounters, counters: Steps) -> None:
    peaks = (counters.reserved_peak_bytes, counters.allocated_peak_bytes, counters.rss_peak_bytes)
    rank.peak_bytes = next((peak for peak in peaks if peak is not None), None)
    if counters.train_s < rank.base.train_s or counters.own_steps < rank.base.own_steps:
        rank.base, rank.samples_s = counters, None
    elif counters.train_s - rank.base.train_s >= RATE_SPAN_S:
        samples = max(0, counters.samples - rank.base.samples)
        rank.samples_s = samples / (counters.train_s - rank.base.train_s) or None
        rank.base = counters


def finite(value: float | None) -> float | None:
    """The value, None if it is nan or infinite."""
    return value if value is not None and math.isfinite(value) else None


def known_sum(values: Iterable[Figure | None]) -> Figure | None:
    """The sum of the known values; None if none is known."""
    numbers = [value for value in values if value is not None]
    return sum(numbers) if numbers else None
