"""Memory that grows with every step, such as a loss summed with its graph, and whether it fills up before the end."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from tuner_tui.advice import thresholds
from tuner_tui.advice.finding import Finding
from tuner_tui.advice.findings.host import host_memory_usage
from tuner_tui.advice.findings.run_metrics import gpu_samples, is_warmed_up
from tuner_tui.advice.oom_analysis import host_memory_limit
from tuner_tui.advice.remedies.catalog import remedies_for
from tuner_tui.advice.situation import Situation
from tuner_tui.core.units import format_short_duration, format_size
from tuner_tui.runs.events.run_state import MemoryGrowth, RankState, find_growth

MemoryLocation = Literal["gpu", "host"]


@dataclass(frozen=True, slots=True)
class MemoryLeak:
    """Memory that grows with every step: of one rank on its GPU, or of all ranks together on the host."""

    location: MemoryLocation
    growth: MemoryGrowth
    ranks: tuple[RankState, ...]

    @property
    def evidence(self) -> str:
        """The growth as evidence: first and last size, and the number of steps between."""
        rise = self.growth
        last = rise.from_bytes + rise.total_bytes
        held = f"{format_size(rise.from_bytes)} → {format_size(last)}"
        return f"{held} held between steps, over {rise.steps:,} steps"


def find_memory_leaks(situation: Situation, least: int) -> tuple[MemoryLeak, ...]:
    """Significant steady growth over at least `least` windows of the run: GPUs first, then the host."""
    ranks = situation.state.ranks.values()
    on_cards = [
        MemoryLeak("gpu", rise, (rank,))
        for rank in ranks
        if (rise := find_growth(rank.allocated_minima, least)) is not None
    ]
    on_host = [(rank, rise) for rank in ranks if (rise := find_growth(rank.anonymous_minima, least)) is not None]
    together = MemoryLeak("host", _total_growth(rise for _, rise in on_host), tuple(rank for rank, _ in on_host))
    found = [*on_cards, together] if on_host else on_cards
    return tuple(leak for leak in found if _is_significant(leak.growth))


def leak_before_oom(situation: Situation, location: MemoryLocation) -> MemoryLeak | None:
    """A leak at `location` before memory ran out. Fewer windows are enough than for a live run, but the growth must be
    large."""
    share = thresholds.LEAK_SHARE_AT_END
    for leak in find_memory_leaks(situation, thresholds.LEAK_WINDOWS_AT_END):
        if leak.location == location and leak.growth.total_bytes >= share * leak.growth.from_bytes:
            return leak
    return None


def _total_growth(rises: Iterable[MemoryGrowth]) -> MemoryGrowth:
    every = tuple(rises)
    return MemoryGrowth(
        sum(rise.bytes_a_step for rise in every),
        sum(rise.total_bytes for rise in every),
        max((rise.steps for rise in every), default=0),
        sum(rise.from_bytes for rise in every),
    )


def _is_significant(rise: MemoryGrowth) -> bool:
    least_bytes = max(thresholds.LEAK_BYTES, thresholds.LEAK_SHARE * rise.from_bytes)
    return rise.total_bytes >= least_bytes


def memory_grows(situation: Situation) -> Finding | None:
    """A leak fills GPU or host memory before the last step; the one that fills up first."""
    # The lowest memory between steps of each window of the run is compared: caches, evaluations and long samples raise
    # the peaks of a window, but only what is never freed raises its minimum, window after window.
    if not is_warmed_up(situation) or not situation.samples:
        return None
    leaks = find_memory_leaks(situation, thresholds.LEAK_WINDOWS)
    full = [
        (room / leak.growth.bytes_a_step, leak) for leak in leaks if (room := _free_bytes(situation, leak)) is not None
    ]
    soonest = min(full, key=lambda pair: pair[0], default=None)
    if soonest is None or not _fills_before_end(situation, soonest[0]):
        return None
    return _leak_finding(situation, *soonest)


def _fills_before_end(situation: Situation, steps: float) -> bool:
    """Whether `steps` lie before the end of the training, or within a day if its length is unknown."""
    step, total = situation.state.step, situation.state.total_steps
    if step is not None and total is not None:
        return steps < total - step
    step_s = situation.state.rates.step_time_s
    return step_s is not None and steps * step_s < thresholds.LEAK_HORIZON_S


def _free_bytes(situation: Situation, leak: MemoryLeak) -> int | None:
    """Free bytes where the leak is: under the run's own limit, on the GPU or on the host; None if unknown."""
    held = leak.growth.from_bytes + leak.growth.total_bytes
    limit = host_memory_limit(situation) if leak.location == "host" else situation.memory_limit_bytes
    if limit is not None:
        return max(0, limit - held)
    if leak.location == "gpu":
        return _free_gpu_bytes(situation, leak)
    used, total = host_memory_usage(situation, situation.samples[-1])
    return None if used is None or total is None else max(0, round(total - used))


def _free_gpu_bytes(situation: Situation, leak: MemoryLeak) -> int | None:
    """Free bytes of the rank's GPU, including what the allocator has cached but not handed out."""
    [rank] = leak.ranks
    if situation.host not in (None, rank.host or situation.host):  # the samples are of another node
        return None
    gpus = situation.samples[-1].gpus
    own = [gpu.index for gpu in gpus if rank.pid in {process.pid for process in gpu.processes or ()}]
    index = own[0] if own else gpus[0].index if len(gpus) == 1 else None
    for gpu in () if index is None else gpu_samples(situation.samples[-1:], index):
        if gpu.memory_total_bytes is not None and gpu.memory_used_bytes is not None:
            reserved = None if rank.latest is None else rank.latest.reserved_peak_bytes
            cached = 0 if reserved is None else max(0, reserved - leak.growth.from_bytes - leak.growth.total_bytes)
            return gpu.memory_total_bytes - gpu.memory_used_bytes + cached
    return None


def _leak_finding(situation: Situation, steps: float, leak: MemoryLeak) -> Finding:
    step_s = situation.state.rates.step_time_s
    when = f"about {steps:,.0f} steps" + ("" if step_s is None else f", {format_short_duration(steps * step_s)}")
    which = f" on rank {leak.ranks[0].rank}" if leak.location == "gpu" and len(situation.state.ranks) > 1 else ""
    memory = f"GPU memory{which}" if leak.location == "gpu" else "Host memory"
    return Finding(
        cause="memory-grows",
        severity="warning",
        sentence=f"{memory} grows by {leak.growth.bytes_a_step / 1e6:.3g} MB per step: full in {when}",
        evidence=(leak.evidence,),
        confidence="likely",
        where="training",
        remedies=remedies_for("memory-grows", situation, leak.location),
    )
