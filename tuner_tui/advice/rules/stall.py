"""The training is alive and makes no step."""

from __future__ import annotations

from tuner_tui.advice import thresholds
from tuner_tui.advice.finding import Finding
from tuner_tui.advice.measure import recent, seconds, worker_loads
from tuner_tui.advice.remedies import remedies_for
from tuner_tui.advice.rules.data_wait import crowded
from tuner_tui.advice.situation import Situation
from tuner_tui.core.units import format_percent
from tuner_tui.runs.progress import phase_at


def stalled(situation: Situation) -> Finding | None:
    """No sign of life for much longer than a step takes, with what the processor and the cards do meanwhile."""
    state = situation.state
    if state.outcome is not None or phase_at(state, situation.now_s) != "stalled":
        return None
    quiet_s = situation.now_s - (state.last_event_t or state.launched_t or situation.now_s)
    loads = worker_loads(recent(situation))
    if state.phase == "training" and sum(loads) >= thresholds.CORE_FULL_PCT.value:
        return _awaiting(situation, quiet_s, loads)
    return Finding(
        cause="stalled",
        severity="warning",
        sentence=f"No step for {seconds(quiet_s)}; the process is alive",
        evidence=(
            f"last sign of life {seconds(quiet_s)} ago, at step {state.step or 0}",
            *_meanwhile(situation),
        ),
        confidence="likely",
        where=state.phase,
        remedies=remedies_for("stalled", situation),
    )


def _awaiting(situation: Situation, quiet_s: float, loads: tuple[float, ...]) -> Finding:
    """Loader workers that are at work will come to an end with it: many of them deliver in bursts, with long waits."""
    cause, where = ("too-many-workers", "cpu") if crowded(situation) else ("data-wait", "workers")
    return Finding(
        cause=cause,
        severity="warning",
        sentence=f"No step for {seconds(quiet_s)}: the training waits for its workers, which are at work",
        evidence=(
            f"last sign of life {seconds(quiet_s)} ago, at step {situation.state.step or 0}",
            f"{len(loads)} workers at {format_percent(sum(loads))} of a core together",
        ),
        confidence="likely",
        where=where,
        remedies=remedies_for(cause, situation, where),
    )


def _meanwhile(situation: Situation) -> tuple[str, ...]:
    """What the training's processes do while nothing moves: busy means working, idle means waiting."""
    samples = recent(situation)
    if not samples:
        return ()
    loads = [process.cpu_pct for process in samples[-1].processes if process.cpu_pct is not None]
    if not loads:
        return ()
    busiest = max(loads)
    meaning = "it computes" if busiest > 50 else "it waits: a lock, a disk, a network, another rank"
    return (f"its busiest process uses {format_percent(busiest)} of a core: {meaning}",)
