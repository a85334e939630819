"""The host: cores that others use, memory near its limit, swapping, a small /dev/shm, a disk that fills up."""

from __future__ import annotations

from tuner_tui.advice import thresholds
from tuner_tui.advice.finding import Finding, Severity
from tuner_tui.advice.measure import (
    cpu_pct,
    enough,
    gigabytes,
    middle,
    own_cpu_pct,
    queue_pct,
    recent,
    seconds,
    span_s,
    warmed_up,
)
from tuner_tui.advice.remedies import remedies_for
from tuner_tui.advice.situation import Situation
from tuner_tui.core.units import format_percent, format_share
from tuner_tui.hardware.sample import Sample


def others_use_cpu(situation: Situation) -> Finding | None:
    """Other programs keep the cores busy, and the training stands in the queue for one."""
    samples, part = recent(situation), others_share(situation)
    queue = queue_pct(samples, "main")
    if part is None or queue is None or queue < thresholds.CPU_QUEUE_PCT.value or not warmed_up(situation):
        return None
    counted = any(process.cpu_queue_pct is not None for process in samples[-1].processes)
    return Finding(
        cause="cpu-contended",
        severity="warning",
        sentence=f"Other programs use {format_share(part)} of the processor: training waits {format_percent(queue)} of the time",
        evidence=(
            f"all cores {format_percent(cpu_pct(samples))} over {seconds(span_s(samples))}",
            f"the training's processes take {format_percent(own_cpu_pct(samples))} of one core",
            f"its main thread could run and got no core {format_percent(queue)} of the time"
            + ("" if counted else ", by looks at it once a second: the kernel here does not count that"),
        ),
        confidence="certain" if counted else "likely",
        where="host",
        remedies=remedies_for("cpu-contended", situation),
        lost_share=queue / 100,
    )


def others_share(situation: Situation) -> float | None:
    """The share of all usable cores that others use, where the cores are full and it is much; else None."""
    samples = recent(situation)
    own, cpu = own_cpu_pct(samples), cpu_pct(samples)
    if own is None or cpu is None or situation.inventory is None or not enough(samples):
        return None
    processor = situation.inventory.cpu
    cores = min(processor.affinity_cores, processor.quota_cores or processor.affinity_cores)
    part = cpu / 100 - own / (100 * cores)
    full = cpu >= thresholds.CPU_FULL_PCT.value and part >= thresholds.CPU_OTHERS_SHARE.value
    return part if full else None


def memory_near_limit(situation: Situation) -> Finding | None:
    """The host's memory, or the cgroup's limit, is almost reached."""
    newest = _newest(situation)
    if newest is None:
        return None
    used, limit = memory_in_use(situation, newest)
    if used is None or not limit or used / limit < thresholds.RAM_NEAR_LIMIT_SHARE.value:
        return None
    sentence = f"{gigabytes(limit - used)} of host memory left: the kernel kills when it is gone"
    evidence = f"{gigabytes(used)} of {gigabytes(limit)} used"
    return _finding("host-memory-near-limit", "warning", sentence, evidence, situation)


def memory_in_use(situation: Situation, newest: Sample) -> tuple[float | None, float | None]:
    """Bytes used and the limit that counts: the cgroup's for the training's own processes, else the host's."""
    inventory = situation.inventory
    limit = None if inventory is None else inventory.memory.limit_bytes
    if limit is not None and inventory is not None and limit < inventory.memory.total_bytes:
        rss = [process.rss_bytes for process in newest.processes if process.rss_bytes is not None]
        return (sum(rss) if rss else None), limit
    return newest.host.ram_used_bytes, newest.host.ram_total_bytes


def swapping(situation: Situation) -> Finding | None:
    """Pages come back from swap all the time."""
    samples = recent(situation)
    if not enough(samples) or situation.state.outcome is not None:
        return None
    rate = middle(sample.host.swap_in_bytes_s for sample in samples)
    if rate is None or rate < thresholds.SWAP_IN_BYTES_S.value:
        return None
    sentence = "The host reads its memory back from swap: everything waits for the disk"
    evidence = f"{rate / 1e6:.0f} MB/s from swap over {seconds(span_s(samples))}"
    return _finding("swapping", "warning", sentence, evidence, situation)


def small_shm(situation: Situation) -> Finding | None:
    """Loader workers hand their batches over in /dev/shm, and it is nearly full."""
    newest = _newest(situation)
    workers = newest is not None and any(process.role == "worker" for process in newest.processes)
    free = newest.host.shm_free_bytes if newest is not None and workers else None
    if free is None or free >= thresholds.SHM_NEAR_LIMIT_BYTES.value:
        return None
    sentence = "Shared memory (/dev/shm) is nearly full: loader workers die of it with a bus error"
    return _finding("shm-near-limit", "warning", sentence, f"{free / 1e6:.0f} MB free in /dev/shm", situation)


def disk_nearly_full(situation: Situation) -> Finding | None:
    """Little room where checkpoints go."""
    newest = _newest(situation)
    free = None if newest is None else newest.host.disk_free_bytes
    if free is None or free >= thresholds.DISK_FREE_BYTES.value:
        return None
    sentence = "Little disk is left for checkpoints"
    return _finding("disk-nearly-full", "warning", sentence, f"{gigabytes(free)} free", situation)


def _newest(situation: Situation) -> Sample | None:
    alive = situation.state.outcome is None and situation.samples
    return situation.samples[-1] if alive else None


def _finding(cause: str, severity: Severity, sentence: str, evidence: str, situation: Situation) -> Finding:
    return Finding(cause, severity, sentence, (evidence,), "certain", "host", remedies_for(cause, situation))
