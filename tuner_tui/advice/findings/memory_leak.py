"""Memory that grows with every step, such as a loss summed with its graph, and whether it fills up before the end."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from tuner_tui.advice import thresholds
from tuner_tui.advice.crash.oom_analysis import host_memory_limit
from tuner_tui.advice.finding import Finding
from tuner_tui.advice.findings.host import host_memory_usage
from tuner_tui.advice.findings.run_metrics import format_gigabytes, format_seconds, gpu_samples, is_warmed_up
from tuner_tui.advice.remedies.catalog import remedies_for
from tuner_tui.advice.situation import Situation
from tuner_tui.runs.events.memory_trend import MemoryGrowth, find_growth
from tuner_tui.runs.events.run_state import RankState

MemoryLocation = Literal["gpu", "host"]


@dataclass(frozen=True, slots=True)
class MemoryLeak:
    """What one rank keeps on its card, or the ranks together in the host's memory."""

    place: MemoryLocation
    growth: MemoryGrowth
    ranks: tuple[RankState, ...]

    @property
    def evidence(self) -> str:
        """From what to what it rose, over how many steps."""
        rise = self.growth
        last = rise.from_bytes + rise.total_bytes
        held = f"{format_gigabytes(rise.from_bytes)} → {format_gigabytes(last)}"
        return f"{held} held between steps, over {rise.steps:,} steps"


def find_memory_leaks(situation: Situation, least: int) -> tuple[MemoryLeak, ...]:
    """What rises steadily and is worth telling, seen in at least `least` stretches of the run: cards, then the host."""
    ranks = situation.state.ranks.values()
    on_cards = [
        MemoryLeak("gpu", rise, (rank,)) for rank in ranks if (rise := find_growth(rank.allocated, least)) is not None
    ]
    on_host = [(rank, rise) for rank in ranks if (rise := find_growth(rank.anonymous, least)) is not None]
    together = MemoryLeak("host", _total_growth(rise for _, rise in on_host), tuple(rank for rank, _ in on_host))
    found = [*on_cards, together] if on_host else on_cards
    return tuple(one for one in found if _is_significant(one.growth))


def leak_before_oom(situation: Situation, place: MemoryLocation) -> MemoryLeak | None:
    """What had risen at `place` when memory ran out: fewer looks are enough then, and it has to be much of it."""
    kept = find_memory_leaks(situation, int(thresholds.KEPT_STRETCHES_AT_END.value))
    much = (one for one in kept if one.growth.total_bytes >= thresholds.KEPT_SHARE_AT_END.value * one.growth.from_bytes)
    return next((one for one in much if one.place == place), None)


def _total_growth(rises: Iterable[MemoryGrowth]) -> MemoryGrowth:
    every = tuple(rises)
    return MemoryGrowth(
        sum(rise.bytes_a_step for rise in every),
        sum(rise.total_bytes for rise in every),
        max((rise.steps for rise in every), default=0),
        sum(rise.from_bytes for rise in every),
    )


def _is_significant(rise: MemoryGrowth) -> bool:
    least_bytes = max(thresholds.KEPT_BYTES.value, thresholds.KEPT_SHARE.value * rise.from_bytes)
    return rise.total_bytes >= least_bytes


def memory_grows(situation: Situation) -> Finding | None:
    """What is kept with every step fills the card, or the host's memory, before the last step; the soonest full."""
    if not is_warmed_up(situation) or not situation.samples:
        return None
    kept = find_memory_leaks(situation, int(thresholds.KEPT_STRETCHES.value))
    full = [(room / one.growth.bytes_a_step, one) for one in kept if (room := _free_bytes(situation, one)) is not None]
    soonest = min(full, key=lambda pair: pair[0], default=None)
    return (
        None if soonest is None or not _fills_before_end(situation, soonest[0]) else _leak_finding(situation, *soonest)
    )


def _fills_before_end(situation: Situation, steps: float) -> bool:
    """Whether so many steps lie before the end of the training; within a day where its end is not known."""
    step, total = situation.state.step, situation.state.total_steps
    if step is not None and total is not None:
        return steps < total - step
    step_s = situation.state.rates.step_time_s
    return step_s is not None and steps * step_s < thresholds.KEPT_WITHIN_S.value


def _free_bytes(situation: Situation, kept: MemoryLeak) -> int | None:
    """What is left where it is kept: of the run's own limit, of the card, of the host; None where that is not known."""
    held = kept.growth.from_bytes + kept.growth.total_bytes
    limit = host_memory_limit(situation) if kept.place == "host" else situation.memory_limit_bytes
    if limit is not None:
        return max(0, limit - held)
    if kept.place == "gpu":
        return _free_gpu_bytes(situation, kept)
    used, total = host_memory_usage(situation, situation.samples[-1])
    return None if used is None or total is None else max(0, round(total - used))


def _free_gpu_bytes(situation: Situation, kept: MemoryLeak) -> int | None:
    """What nobody holds of the rank's card, and what the allocator holds of it without having given it out."""
    [rank] = kept.ranks
    gpus = situation.samples[-1].gpus
    own = [gpu.index for gpu in gpus if rank.pid in {process.pid for process in gpu.processes or ()}]
    index = own[0] if own else gpus[0].index if len(gpus) == 1 else None
    for gpu in () if index is None else gpu_samples(situation.samples[-1:], index):
        if gpu.memory_total_bytes is not None and gpu.memory_used_bytes is not None:
            reserved = None if rank.latest is None else rank.latest.reserved_peak_bytes
            cached = 0 if reserved is None else max(0, reserved - kept.growth.from_bytes - kept.growth.total_bytes)
            return gpu.memory_total_bytes - gpu.memory_used_bytes + cached
    return None


def _leak_finding(situation: Situation, steps: float, kept: MemoryLeak) -> Finding:
    step_s = situation.state.rates.step_time_s
    when = f"about {steps:,.0f} steps" + ("" if step_s is None else f", {format_seconds(steps * step_s)}")
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
