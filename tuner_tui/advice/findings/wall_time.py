"""Findings on wall time: stalls, evaluation, saving, padding, code between steps, a run without any step."""

from __future__ import annotations

from tuner_tui.advice import thresholds
from tuner_tui.advice.finding import Finding, Remedy
from tuner_tui.advice.findings.run_metrics import (
    covers_window,
    gpu_busy_pct,
    is_warmed_up,
    recent_samples,
    training_s,
    training_share,
    worker_loads,
)
from tuner_tui.advice.findings.waiting import has_too_many_workers
from tuner_tui.advice.remedies.catalog import remedies_for
from tuner_tui.advice.situation import Situation
from tuner_tui.core.units import format_percent, format_share, format_short_duration
from tuner_tui.runs.events.progress import phase_at
from tuner_tui.runs.events.types import Steps


def stalled(situation: Situation) -> Finding | None:
    """No sign of life for much longer than a step takes, with what processes and workers do meanwhile."""
    state = situation.state
    if state.outcome is not None or phase_at(state, situation.now_s) != "stalled":
        return None
    quiet_s = situation.now_s - (state.last_event_t or state.launched_t or situation.now_s)
    loads = worker_loads(recent_samples(situation))
    if state.phase == "training" and sum(loads) >= thresholds.CORE_FULL_PCT:
        return _waiting_for_workers(situation, quiet_s, loads)
    return Finding(
        cause="stalled",
        severity="warning",
        sentence=f"No step for {format_short_duration(quiet_s)}; the process is alive",
        evidence=(
            f"last sign of life {format_short_duration(quiet_s)} ago, at step {state.step or 0}",
            *_process_evidence(situation),
        ),
        confidence="likely",
        where=state.phase,
        remedies=remedies_for("stalled", situation),
    )


def _waiting_for_workers(situation: Situation, quiet_s: float, loads: tuple[float, ...]) -> Finding:
    """The training waits for workers that are busy; with many workers, batches come in bursts after long waits."""
    cause, where = ("too-many-workers", "cpu") if has_too_many_workers(situation) else ("data-wait", "workers")
    return Finding(
        cause=cause,
        severity="warning",
        sentence=f"No step for {format_short_duration(quiet_s)}: the training waits for its workers, which are busy",
        evidence=(
            f"last sign of life {format_short_duration(quiet_s)} ago, at step {situation.state.step or 0}",
            f"{len(loads)} workers at {format_percent(sum(loads))} of a core together",
        ),
        confidence="likely",
        where=where,
        remedies=remedies_for(cause, situation, where),
    )


def _process_evidence(situation: Situation) -> tuple[str, ...]:
    """What the processes do meanwhile: high load means computing, low load means waiting."""
    samples = recent_samples(situation)
    if not samples:
        return ()
    loads = [process.cpu_pct for process in samples[-1].processes if process.cpu_pct is not None]
    if not loads:
        return ()
    busiest = max(loads)
    meaning = "it computes" if busiest > 50 else "it waits for a lock, a disk, the network or another rank"
    return (f"its busiest process uses {format_percent(busiest)} of a core: {meaning}",)


def between_steps(situation: Situation) -> Finding | None:
    """A large share of each step passes between the optimizer step and the next request for a batch.

    A GPU computes asynchronously, and reading the loss waits for it at this point. So this time is only lost on a CPU,
    or where the GPU is seen to idle.
    """
    rates = situation.state.rates
    part = rates.between_share
    if part is None or part < thresholds.BETWEEN_SHARE or not is_warmed_up(situation):
        return None
    samples = recent_samples(situation)
    busy = gpu_busy_pct(situation, samples)
    idle = covers_window(samples) and busy is not None and busy < thresholds.GPU_LOW_PCT
    on_cpu = situation.state.in_effect.get("device") == "cpu"
    if not on_cpu and not idle:
        return None
    spent = "" if rates.step_time_s is None else f": {rates.step_time_s * part:.3g} of {rates.step_time_s:.3g} s"
    return Finding(
        cause="between-steps",
        severity="warning",
        sentence=f"{format_share(part)} of each step is spent in the loop's own code after the optimizer step",
        evidence=(
            f"from the optimizer step to the next request for a batch{spent}, "
            f"{format_short_duration(training_s(situation) or 0)} into the training",
            *(() if on_cpu else (f"GPU busy {format_percent(busy)}",)),
        ),
        confidence="likely",
        where="training",
        remedies=remedies_for("between-steps", situation),
        lost_share=part * training_share(situation),
    )


def evaluation_share(situation: Situation) -> Finding | None:
    """Evaluation takes a large share of the run."""
    return _share_finding(situation, "evaluation", thresholds.EVAL_SHARE, "Evaluation takes {} of the run's time")


def save_share(situation: Situation) -> Finding | None:
    """Saving takes a large share of the run."""
    return _share_finding(situation, "save", thresholds.SAVE_SHARE, "Saving checkpoints takes {} of the run's time")


def padding(situation: Situation) -> Finding | None:
    """A large share of each batch is padding."""
    part = situation.state.rates.padding_share
    if part is None or part < thresholds.PADDING_SHARE or not is_warmed_up(situation):
        return None
    return Finding(
        cause="padding",
        severity="hint",
        sentence=f"{format_share(part)} of all tokens are padding",
        evidence=(f"padding {format_share(part)} of recent tokens",),
        confidence="certain",
        where="training",
        remedies=remedies_for("padding", situation),
    )


def _share_finding(situation: Situation, kind: str, threshold: float, sentence: str) -> Finding | None:
    latest = _slowest_rank(situation)
    if latest is None or not is_warmed_up(situation):
        return None
    spent_s = latest.eval_s if kind == "evaluation" else latest.save_s
    total_s = latest.train_s + latest.eval_s + latest.save_s
    if total_s <= 0 or spent_s / total_s < threshold:
        return None
    cause = f"{kind}-share"
    spent, total, trained = map(format_short_duration, (spent_s, total_s, latest.train_s))
    return Finding(
        cause=cause,
        severity="warning",
        sentence=sentence.format(format_share(spent_s / total_s)),
        evidence=(f"{spent} of {total}, training {trained}",),
        confidence="certain",
        where="evaluation" if kind == "evaluation" else "checkpoint",
        remedies=remedies_for(cause, situation),
        lost_share=spent_s / total_s,
    )


def _slowest_rank(situation: Situation) -> Steps | None:
    """The counters of the rank that spent most time evaluating and saving; the others wait for it."""
    latest = [rank.latest for rank in situation.state.ranks.values() if rank.latest is not None]
    return max(latest, key=lambda counters: counters.eval_s + counters.save_s, default=None)


def no_steps(situation: Situation) -> Finding | None:
    """The program imported torch and exited with code 0 without an observed optimizer step.

    Programs that evaluated are left out, since they did not mean to train.
    """
    state = situation.state
    if state.outcome != "completed" or not state.ended_without_step or state.evaluations:
        return None
    return Finding(
        cause="no-step",
        severity="hint",
        sentence="The program ended without an optimizer step",
        evidence=("it imported torch and exited with code 0",),
        confidence="likely",
        remedies=(
            Remedy(
                title="if it should train, check that the data holds at least one full batch",
                why="with drop_last a dataset smaller than one batch yields nothing; an empty split never does",
            ),
        ),
    )
