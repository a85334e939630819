"""Speed from cumulative counters: the difference over the last seconds of training, not an average of averages."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from tuner_tui.runs.events.run_state import RankState, Rates
from tuner_tui.runs.events.types import Steps

WINDOW_S = 20.0
"""Seconds of step time that rates cover: long enough to be steady, short enough to show a change."""
MAX_POINTS = 30


def with_counters(rank: RankState, counters: Steps) -> RankState:
    """The rank with new counters. Counters that decreased mean a new process: the old ones are dropped."""
    latest = rank.latest
    if latest is None or counters.own_steps < latest.own_steps or counters.train_s < latest.train_s:
        return replace(rank, latest=counters, recent=(counters,))
    if counters.own_steps == latest.own_steps and len(rank.recent) > 0:
        return replace(rank, latest=counters)  # no step was done: `recent` keeps the times of steps
    return replace(rank, latest=counters, recent=_window((*rank.recent, counters)))


def rates_of(ranks: Iterable[RankState]) -> Rates:
    """Samples and tokens are summed over ranks; ranks step together, so the slowest sets the step time.

    Independent ranks do not: their steps are summed too.
    """
    ranks = list(ranks)
    spans = [(rank.recent[0], rank.recent[-1]) for rank in ranks if len(rank.recent) > 1]
    spans = [(a, b) for a, b in spans if b.train_s > a.train_s and b.own_steps > a.own_steps]
    if not spans:
        return Rates()
    step_times_s = [(b.train_s - a.train_s) / (b.own_steps - a.own_steps) for a, b in spans]
    step_time_s = max(step_times_s)
    if any(rank.independent for rank in ranks):
        step_time_s = 1 / sum(1 / each for each in step_times_s)
    return Rates(
        steps_s=1 / step_time_s,
        samples_s=sum((b.samples - a.samples) / (b.train_s - a.train_s) for a, b in spans) or None,
        tokens_s=_summed(spans, lambda counters: counters.tokens),
        padding_share=_padding_share(spans),
        data_wait_share=_data_wait_share(spans),
        between_share=_between_share(spans),
        step_time_s=step_time_s,
    )


def mean_rates(ranks: Iterable[RankState]) -> Rates:
    """Speed over the whole run, used to compare runs."""
    return rates_of(
        replace(rank, recent=(Steps(t=0.0, step=0, own_steps=0, tokens=0, padding_tokens=0), rank.latest))
        for rank in ranks
        if rank.latest is not None
    )


@dataclass(frozen=True, slots=True)
class RankTimes:
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
    found = []
    for rank in ranks:
        first, last = (rank.recent[0], rank.recent[-1]) if len(rank.recent) > 1 else (None, None)
        if first is None or last is None or first.rank_wait_s is None or last.rank_wait_s is None:
            return ()
        steps = last.own_steps - first.own_steps
        if steps <= 0:
            return ()
        found.append(
            RankTimes(
                rank.rank,
                step_s=(last.train_s - first.train_s) / steps,
                data_wait_s=(last.data_wait_s - first.data_wait_s) / steps,
                rank_wait_s=(last.rank_wait_s - first.rank_wait_s) / steps,
                between_s=((last.between_s or 0.0) - (first.between_s or 0.0)) / steps,
            )
        )
    return tuple(found) if len(found) > 1 else ()


def _window(points: tuple[Steps, ...]) -> tuple[Steps, ...]:
    points = points[-MAX_POINTS:]
    while len(points) > 2 and points[-1].train_s - points[1].train_s >= WINDOW_S:
        points = points[1:]
    return points


def _summed(spans: list[tuple[Steps, Steps]], of: Callable[[Steps], int | None]) -> float | None:
    total = None
    for a, b in spans:
        first, last = of(a), of(b)
        if first is not None and last is not None and last >= first:
            total = (total or 0.0) + (last - first) / (b.train_s - a.train_s)
    return total


def _padding_share(spans: list[tuple[Steps, Steps]]) -> float | None:
    padding = _summed(spans, lambda counters: counters.padding_tokens)
    tokens = _summed(spans, lambda counters: counters.tokens)
    if padding is None or tokens is None or padding + tokens <= 0:
        return None
    return padding / (padding + tokens)


def _between_share(spans: list[tuple[Steps, Steps]]) -> float | None:
    """Of the rank with the largest share; the others wait for it."""
    shares = [
        (b.between_s - (a.between_s or 0.0)) / (b.train_s - a.train_s) for a, b in spans if b.between_s is not None
    ]
    return min(1.0, max(0.0, *shares)) if shares else None


def _data_wait_share(spans: list[tuple[Steps, Steps]]) -> float | None:
    """Of the rank that waits longest."""
    shares = [share for a, b in spans if (share := data_wait_share(a, b)) is not None]
    return min(1.0, max(0.0, *shares)) if shares else None


def data_wait_share(first: Steps, last: Steps) -> float | None:
    """Share of one rank's step time between two counters spent waiting for data; None without a data loader."""
    seconds = last.train_s - first.train_s
    if seconds <= 0 or (last.between_s is None and not last.data_wait_s):
        return None
    return (last.data_wait_s - first.data_wait_s) / seconds
