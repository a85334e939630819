"""Progress of a run: estimated time left from measured step times, the current phase, and stalls."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from statistics import median, quantiles

from tuner_tui.runs.events.run_state import RankState, RunState
from tuner_tui.runs.events.types import Steps

MIN_STEPS = 3
"""Steps required for an estimate. The first step of a process, which warms up caches, is not counted."""
STALL_FACTOR = 8.0
"""Training counts as stalled after this many usual step times without a step."""
STALL_FLOOR_S = 10.0
"""Counters come once a second, late by up to one step; shorter pauses mean nothing."""
FIRST_STEP_STALL_S = 600.0
"""The first step may compile, build caches or wait for other machines."""


@dataclass(frozen=True, slots=True)
class Eta:
    """Seconds left: the likely value, and the range of the measured step times."""

    seconds: float
    low_s: float
    high_s: float


def eta(state: RunState, now: float) -> Eta | None:
    """Time left at `now` (seconds since the epoch), evaluation and saving included; None before there are enough steps.

    Uses the step time of the last seconds; the range spans its quartiles and the mean of the whole run. Evaluation and
    saving add their measured cost per step.
    """
    rank = _first_rank(state)
    if rank is None or rank.latest is None or state.step is None or not state.total_steps or state.finished:
        return None
    steps_left: float = max(0, state.total_steps - state.step)
    usual, low, high = _step_times(rank)
    if usual is None or low is None or high is None:
        return None
    if state.independent:  # each makes its own part of the steps
        steps_left /= max(1, sum(not one.ended for one in state.ranks.values()))
    extra = _eval_per_step(state, rank.latest) + _save_per_step(state, rank.latest)
    elapsed = _elapsed_in_step(state, now, usual)
    seconds, low_s, high_s = (max(0.0, steps_left * (each + extra) - elapsed) for each in (usual, low, high))
    return Eta(seconds, low_s, high_s)


def phase_at(state: RunState, now: float) -> str:
    """The phase at `now`: that of the run, or `stalled` where training takes several usual step times without a
    step."""
    if state.finished is not None or state.phase != "training":
        return state.phase
    since = max(state.last_step_t or 0.0, state.phase_since_t or 0.0)
    return "stalled" if since and now - since > stall_after_s(state) else "training"


def stall_after_s(state: RunState) -> float:
    """Seconds without a step after which training counts as stalled."""
    times = [time for rank in state.ranks.values() for time in _interval_step_times(rank.recent)]
    slowest = max((r.latest.slowest_step_s or 0.0 for r in state.ranks.values() if r.latest is not None), default=0.0)
    if not times and not slowest:
        return FIRST_STEP_STALL_S
    usual = median(times) if times else slowest
    return max(STALL_FLOOR_S, STALL_FACTOR * usual, 3 * slowest)


def _first_rank(state: RunState) -> RankState | None:
    return state.ranks[min(state.ranks)] if state.ranks else None


def _step_times(rank: RankState) -> tuple[float | None, float | None, float | None]:
    points = rank.recent
    if len(points) < 2 or points[-1].own_steps - points[0].own_steps < MIN_STEPS:
        return None, None, None
    usual = (points[-1].train_s - points[0].train_s) / (points[-1].own_steps - points[0].own_steps)
    candidates = [usual, points[-1].train_s / points[-1].own_steps]
    intervals = _interval_step_times(points)
    if len(intervals) >= 4:
        quarters = quantiles(intervals, n=4)
        candidates += [quarters[0], quarters[2]]
    return (usual, min(candidates), max(candidates)) if usual > 0 else (None, None, None)


def _interval_step_times(points: tuple[Steps, ...]) -> list[float]:
    spans = [(b.own_steps - a.own_steps, b.train_s - a.train_s) for a, b in pairwise(points)]
    return [seconds / steps for steps, seconds in spans if steps > 0 and seconds > 0]


def _eval_per_step(state: RunState, latest: Steps) -> float:
    done = state.evaluations[-1].step - state.first_step if state.evaluations else 0
    return latest.eval_s / done if done > 0 else 0.0


def _save_per_step(state: RunState, latest: Steps) -> float:
    done = state.checkpoint.step - state.first_step if state.checkpoint is not None else 0
    return latest.save_s / done if done > 0 else 0.0


def _elapsed_in_step(state: RunState, now: float, step_time_s: float) -> float:
    """Seconds since the last counters, at most one second or one step, which is how late they come."""
    if state.last_step_t is None or state.phase != "training":
        return 0.0
    return min(max(0.0, now - state.last_step_t), max(1.0, step_time_s))
