"""Findings on memory and disk: host memory, swap, /dev/shm or disk nearly full, and memory that grows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from msgspec import Struct

from tuner_tui.advice import thresholds
from tuner_tui.advice.finding import Finding
from tuner_tui.advice.findings.rows import finding
from tuner_tui.advice.findings.run_metrics import (
    covers_window,
    gpu_samples,
    is_warmed_up,
    median_known,
    recent_samples,
    span_s,
)
from tuner_tui.advice.situation import Situation
from tuner_tui.core.units import format_short_duration, format_size
from tuner_tui.hardware.sample import Sample
from tuner_tui.runs.events.run_state import MemoryGrowth, RankState, find_growth

MemoryLocation = Literal["gpu", "host"]


def host_memory_near_limit(situation: Situation) -> Finding | None:
    newest = _newest(situation)
    used, limit = (None, None) if newest is None else _host_memory_usage(situation, newest)
    if used is None or not limit or used / limit < thresholds.RAM_NEAR_LIMIT_SHARE:
        return None
    evidence = f"{format_size(used)} of {format_size(limit)} used"
    return finding("host-memory-near-limit", situation, evidence, left=format_size(limit - used))


def _host_memory_usage(situation: Situation, newest: Sample) -> tuple[float | None, float | None]:
    """Bytes in use and their limit: of the training's processes under a cgroup limit, else of the host."""
    inventory = situation.inventory
    limit = None if inventory is None else inventory.memory.limit_bytes
    if limit is not None and inventory is not None and limit < inventory.memory.total_bytes:
        rss = [process.rss_bytes for process in newest.processes if process.rss_bytes is not None]
        return (sum(rss) if rss else None), limit
    return newest.host.ram_used_bytes, newest.host.ram_total_bytes


def swapping(situation: Situation) -> Finding | None:
    samples = recent_samples(situation)
    rate = median_known(sample.host.swap_in_bytes_s for sample in samples)
    if not covers_window(samples) or situation.state.outcome is not None or (rate or 0) < thresholds.SWAP_IN_BYTES_S:
        return None
    evidence = f"{(rate or 0) / 1e6:.0f} MB/s read from swap over {format_short_duration(span_s(samples))}"
    return finding("swapping", situation, evidence)


def small_shm(situation: Situation) -> Finding | None:
    newest = _newest(situation)
    roles = () if newest is None else [process.role for process in newest.processes]
    free = newest.host.shm_free_bytes if newest is not None and "worker" in roles else None
    if free is None or free >= thresholds.SHM_NEAR_LIMIT_BYTES:
        return None
    return finding("shm-near-limit", situation, f"{free / 1e6:.0f} MB free in /dev/shm")


def disk_nearly_full(situation: Situation) -> Finding | None:
    newest = _newest(situation)
    free = None if newest is None else newest.host.disk_free_bytes
    if free is None or free >= thresholds.DISK_FREE_BYTES:
        return None
    return finding("disk-nearly-full", situation, f"{format_size(free)} free")


def _newest(situation: Situation) -> Sample | None:
    return situation.samples[-1] if situation.state.outcome is None and situation.samples else None


class MemoryLeak(Struct, frozen=True):
    """Memory that grows with every step: of one rank on its GPU, or of all ranks together on the host."""

    location: MemoryLocation
    growth: MemoryGrowth
    rank: RankState | None = None

    @property
    def evidence(self) -> str:
        """The growth as evidence: first and last size, and the number of steps between."""
        growth = self.growth
        sizes = f"{format_size(growth.from_bytes)} → {format_size(growth.from_bytes + growth.total_bytes)}"
        return f"{sizes} held between steps, over {growth.steps:,} steps"


def find_memory_leaks(situation: Situation, least: int) -> tuple[MemoryLeak, ...]:
    """Significant steady growth over at least `least` windows of the run: GPUs first, then the host."""
    ranks = situation.state.ranks.values()
    on_gpus = ((rank, find_growth(rank.allocated_minima, least)) for rank in ranks)
    leaks = [MemoryLeak("gpu", growth, rank) for rank, growth in on_gpus if growth is not None]
    on_host = [growth for rank in ranks if (growth := find_growth(rank.anonymous_minima, least)) is not None]
    if on_host:
        leaks.append(MemoryLeak("host", _total_growth(on_host)))
    floor, share = thresholds.LEAK_BYTES, thresholds.LEAK_SHARE
    return tuple(leak for leak in leaks if leak.growth.total_bytes >= max(floor, share * leak.growth.from_bytes))


def leak_before_oom(situation: Situation, location: MemoryLocation) -> MemoryLeak | None:
    """A leak at `location` before memory ran out. Fewer windows are enough than for a live run, but the growth must be
    large."""
    share = thresholds.LEAK_SHARE_AT_END
    leaks = (leak for leak in find_memory_leaks(situation, thresholds.LEAK_WINDOWS_AT_END) if leak.location == location)
    return next((leak for leak in leaks if leak.growth.total_bytes >= share * leak.growth.from_bytes), None)


def _total_growth(growths: Sequence[MemoryGrowth]) -> MemoryGrowth:
    return MemoryGrowth(
        sum(growth.bytes_a_step for growth in growths),
        sum(growth.total_bytes for growth in growths),
        max(growth.steps for growth in growths),
        sum(growth.from_bytes for growth in growths),
    )


def memory_grows(situation: Situation) -> Finding | None:
    # The lowest memory between steps of each window of the run is compared: caches, evaluations and long samples raise
    # the peaks of a window, but only what is never freed raises its minimum, window after window.
    if not is_warmed_up(situation) or not situation.samples:
        return None
    leaks = find_memory_leaks(situation, thresholds.LEAK_WINDOWS)
    room = ((_free_bytes(situation, leak), leak) for leak in leaks)
    full = [(free / leak.growth.bytes_a_step, leak) for free, leak in room if free is not None]
    steps, leak = min(full, key=lambda pair: pair[0], default=(0.0, None))
    if leak is None or not _fills_before_end(situation, steps):
        return None
    step_s = situation.state.rates.step_time_s
    when = f"about {steps:,.0f} steps" + ("" if step_s is None else f", {format_short_duration(steps * step_s)}")
    which = f" on rank {leak.rank.rank}" if leak.rank is not None and len(situation.state.ranks) > 1 else ""
    memory = "Host memory" if leak.rank is None else f"GPU memory{which}"
    megabytes = f"{leak.growth.bytes_a_step / 1e6:.3g}"
    return finding(
        "memory-grows", situation, leak.evidence, ladder=leak.location, memory=memory, megabytes=megabytes, when=when
    )


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
    limit = situation.host_memory_limit_bytes if leak.rank is None else situation.memory_limit_bytes
    if limit is not None:
        return max(0, limit - held)
    if leak.rank is not None:
        return _free_gpu_bytes(situation, leak.rank, held)
    used, total = _host_memory_usage(situation, situation.samples[-1])
    return None if used is None or total is None else max(0, round(total - used))


def _free_gpu_bytes(situation: Situation, rank: RankState, held: int) -> int | None:
    """Free bytes of the rank's GPU, including what the allocator has cached but not handed out."""
    if situation.host not in (None, rank.host or situation.host):  # the samples are of another node
        return None
    gpus = situation.samples[-1].gpus
    mine = [gpu.index for gpu in gpus if rank.pid in {process.pid for process in gpu.processes or ()}]
    index = mine[0] if mine else gpus[0].index if len(gpus) == 1 else None
    for gpu in () if index is None else gpu_samples(situation.samples[-1:], index):
        if gpu.memory_total_bytes is not None and gpu.memory_used_bytes is not None:
            reserved = (None if rank.latest is None else rank.latest.reserved_peak_bytes) or 0
            return gpu.memory_total_bytes - gpu.memory_used_bytes + max(0, reserved - held)
    return None
