"""Memory that rises with every step and will be full before the training is done."""

from __future__ import annotations

from tuner_tui.advice import thresholds
from tuner_tui.advice.finding import Finding
from tuner_tui.advice.kept_memory import Kept, kept_memory
from tuner_tui.advice.measure import card_figures, seconds, warmed_up
from tuner_tui.advice.memory_limit import limit_of_host
from tuner_tui.advice.remedies import remedies_for
from tuner_tui.advice.rules.host import memory_in_use
from tuner_tui.advice.situation import Situation


def memory_grows(situation: Situation) -> Finding | None:
    """What is kept with every step fills the card, or the host's memory, before the last step; the soonest full."""
    if not warmed_up(situation) or not situation.samples:
        return None
    kept = kept_memory(situation, int(thresholds.KEPT_STRETCHES.value))
    full = [(room / one.growth.bytes_a_step, one) for one in kept if (room := _room_bytes(situation, one)) is not None]
    soonest = min(full, key=lambda pair: pair[0], default=None)
    return None if soonest is None or not _in_time(situation, soonest[0]) else _finding(situation, *soonest)


def _in_time(situation: Situation, steps: float) -> bool:
    """Whether so many steps lie before the end of the training; within a day where its end is not known."""
    step, total = situation.state.step, situation.state.total_steps
    if step is not None and total is not None:
        return steps < total - step
    step_s = situation.state.rates.step_time_s
    return step_s is not None and steps * step_s < thresholds.KEPT_WITHIN_S.value


def _room_bytes(situation: Situation, kept: Kept) -> int | None:
    """What is left where it is kept: of the run's own limit, of the card, of the host; None where that is not known."""
    held = kept.growth.from_bytes + kept.growth.total_bytes
    limit = limit_of_host(situation) if kept.place == "host" else situation.memory_limit_bytes
    if limit is not None:
        return max(0, limit - held)
    if kept.place == "gpu":
        return _room_on_card(situation, kept)
    used, total = memory_in_use(situation, situation.samples[-1])
    return None if used is None or total is None else max(0, round(total - used))


def _room_on_card(situation: Situation, kept: Kept) -> int | None:
    """What nobody holds of the rank's card, and what the allocator holds of it without having given it out."""
    [rank] = kept.ranks
    gpus = situation.samples[-1].gpus
    own = [gpu.index for gpu in gpus if rank.pid in {process.pid for process in gpu.processes or ()}]
    index = own[0] if own else gpus[0].index if len(gpus) == 1 else None
    for gpu in () if index is None else card_figures(situation.samples[-1:], index):
        if gpu.memory_total_bytes is not None and gpu.memory_used_bytes is not None:
            reserved = None if rank.latest is None else rank.latest.reserved_peak_bytes
            cached = 0 if reserved is None else max(0, reserved - kept.growth.from_bytes - kept.growth.total_bytes)
            return gpu.memory_total_bytes - gpu.memory_used_bytes + cached
    return None


def _finding(situation: Situation, steps: float, kept: Kept) -> Finding:
    step_s = situation.state.rates.step_time_s
    when = f"about {steps:,.0f} steps" + ("" if step_s is None else f", {seconds(steps * step_s)}")
    which = f" on rank {kept.ranks[0].rank}" if kept.place == "gpu" and len(situation.state.ranks) > 1 else ""
    memory = f"GPU memory{which}" if kept.place == "gpu" else "Host memory"
    return Finding(
        cause="memory-grows",
        severity="warning",
        sentence=f"{memory} grows by {kept.growth.bytes_a_step / 1e6:.3g} MB with every step: full in {when}",
        evidence=(kept.evidence,),
        confidence="likely",
        where="training",
        remedies=remedies_for("memory-grows", situation, kept.place),
    )
