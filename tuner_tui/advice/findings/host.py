"""Findings on the host: CPU contention, memory near its limit, swapping, a small /dev/shm, a full disk."""

from __future__ import annotations

from tuner_tui.advice import thresholds
from tuner_tui.advice.finding import Finding, FindingSeverity
from tuner_tui.advice.findings.run_metrics import (
    covers_window,
    cpu_pct,
    cpu_queue_pct,
    is_warmed_up,
    median_known,
    recent_samples,
    span_s,
    training_cpu_pct,
)
from tuner_tui.advice.remedies.catalog import remedies_for
from tuner_tui.advice.situation import Situation
from tuner_tui.core.units import format_percent, format_share, format_short_duration, format_size
from tuner_tui.hardware.sample import Sample


def cpu_contended(situation: Situation) -> Finding | None:
    """Other programs keep the cores busy, and the training waits for a core."""
    samples, part = recent_samples(situation), other_programs_share(situation)
    queue = cpu_queue_pct(samples, "main")
    if part is None or queue is None or queue < thresholds.CPU_QUEUE_PCT or not is_warmed_up(situation):
        return None
    free_cores = max(1, int((situation.usable_cores or 1) * (1 - part)))
    counted = any(process.cpu_queue_pct is not None for process in samples[-1].processes)
    return Finding(
        cause="cpu-contended",
        severity="warning",
        sentence=f"Other programs use {format_share(part)} of the CPU: training waits for a core "
        f"{format_percent(queue)} of the time",
        evidence=(
            f"all cores {format_percent(cpu_pct(samples))} over {format_short_duration(span_s(samples))}",
            f"the training's processes use {format_percent(training_cpu_pct(samples))} of one core",
            f"its main thread was ready but had no core {format_percent(queue)} of the time"
            + ("" if counted else " (sampled once a second; this kernel does not count it)"),
        ),
        confidence="certain" if counted else "likely",
        where="host",
        remedies=remedies_for("cpu-contended", situation, str(free_cores)),
        lost_share=queue / 100,
    )


def other_programs_share(situation: Situation) -> float | None:
    """The share of all usable cores that other programs use; None unless the cores are full and the share is high."""
    samples = recent_samples(situation)
    own, cpu = training_cpu_pct(samples), cpu_pct(samples)
    if own is None or cpu is None or situation.inventory is None or not covers_window(samples):
        return None
    processor = situation.inventory.cpu
    cores = min(processor.affinity_cores, processor.quota_cores or processor.affinity_cores)
    part = cpu / 100 - own / (100 * cores)
    full = cpu >= thresholds.CPU_FULL_PCT and part >= thresholds.CPU_OTHERS_SHARE
    return part if full else None


def host_memory_near_limit(situation: Situation) -> Finding | None:
    """Host memory, or the cgroup's limit, is almost reached."""
    newest = _newest(situation)
    if newest is None:
        return None
    used, limit = host_memory_usage(situation, newest)
    if used is None or not limit or used / limit < thresholds.RAM_NEAR_LIMIT_SHARE:
        return None
    sentence = f"{format_size(limit - used)} of host memory left; the kernel kills processes when it runs out"
    evidence = f"{format_size(used)} of {format_size(limit)} used"
    return _finding("host-memory-near-limit", "warning", sentence, evidence, situation)


def host_memory_usage(situation: Situation, newest: Sample) -> tuple[float | None, float | None]:
    """Bytes in use and their limit: of the training's processes under a cgroup limit, else of the host."""
    inventory = situation.inventory
    limit = None if inventory is None else inventory.memory.limit_bytes
    if limit is not None and inventory is not None and limit < inventory.memory.total_bytes:
        rss = [process.rss_bytes for process in newest.processes if process.rss_bytes is not None]
        return (sum(rss) if rss else None), limit
    return newest.host.ram_used_bytes, newest.host.ram_total_bytes


def swapping(situation: Situation) -> Finding | None:
    """Pages are read back from swap continuously."""
    samples = recent_samples(situation)
    if not covers_window(samples) or situation.state.outcome is not None:
        return None
    rate = median_known(sample.host.swap_in_bytes_s for sample in samples)
    if rate is None or rate < thresholds.SWAP_IN_BYTES_S:
        return None
    sentence = "The host is swapping: everything waits for the disk"
    evidence = f"{rate / 1e6:.0f} MB/s read from swap over {format_short_duration(span_s(samples))}"
    return _finding("swapping", "warning", sentence, evidence, situation)


def small_shm(situation: Situation) -> Finding | None:
    """Little space is left in /dev/shm, through which loader workers pass batches."""
    newest = _newest(situation)
    workers = newest is not None and any(process.role == "worker" for process in newest.processes)
    free = newest.host.shm_free_bytes if newest is not None and workers else None
    if free is None or free >= thresholds.SHM_NEAR_LIMIT_BYTES:
        return None
    sentence = "Shared memory (/dev/shm) is nearly full: loader workers will crash with a bus error"
    return _finding("shm-near-limit", "warning", sentence, f"{free / 1e6:.0f} MB free in /dev/shm", situation)


def disk_nearly_full(situation: Situation) -> Finding | None:
    """Little disk space is left for checkpoints."""
    newest = _newest(situation)
    free = None if newest is None else newest.host.disk_free_bytes
    if free is None or free >= thresholds.DISK_FREE_BYTES:
        return None
    sentence = "Disk space for checkpoints is low"
    return _finding("disk-nearly-full", "warning", sentence, f"{format_size(free)} free", situation)


def _newest(situation: Situation) -> Sample | None:
    alive = situation.state.outcome is None and situation.samples
    return situation.samples[-1] if alive else None


def _finding(cause: str, severity: FindingSeverity, sentence: str, evidence: str, situation: Situation) -> Finding:
    return Finding(cause, severity, sentence, (evidence,), "certain", "host", remedies_for(cause, situation))
