"""The training waits for its data: the measured share of the step decides, the loader's load says why."""

from __future__ import annotations

from tuner_tui.advice import thresholds
from tuner_tui.advice.ability import usable_cores
from tuner_tui.advice.finding import Finding
from tuner_tui.advice.measure import (
    cpu_pct,
    enough,
    gpu_busy_pct,
    middle,
    queue_pct,
    recent,
    seconds,
    training_s,
    training_share,
    warmed_up,
    worker_loads,
)
from tuner_tui.advice.remedies import remedies_for
from tuner_tui.advice.rules.host import others_share
from tuner_tui.advice.situation import Situation
from tuner_tui.core.units import format_percent, format_share
from tuner_tui.hardware.sample import Sample


def data_wait(situation: Situation) -> Finding | None:
    """Data wait ÷ step time is above its threshold; which remedy fits depends on what the workers and cores do."""
    part = situation.state.rates.data_wait_share
    if part is None or part < thresholds.DATA_WAIT_HINT.value or not warmed_up(situation):
        return None
    serious = part >= thresholds.DATA_WAIT_WARNING.value
    step_s = situation.state.rates.step_time_s
    if not serious and step_s is not None and part * step_s < thresholds.DATA_WAIT_HINT_S.value:
        return None
    where, why = _why(situation)
    cause = "too-many-workers" if where == "cpu" and crowded(situation) else "data-wait"
    return Finding(
        cause=cause,
        severity="warning" if serious else "hint",
        sentence=f"Training waits for data {format_share(part)} of each step: {why}",
        evidence=_evidence(situation, part),
        confidence="certain" if serious else "likely",
        where=where,
        remedies=remedies_for(cause, situation, where),
        lost_share=part * training_share(situation),
    )


def _why(situation: Situation) -> tuple[str | None, str]:
    """Where in the loading the time goes, and the reason in words."""
    samples, settings = recent(situation), situation.settings
    loads, cpu = worker_loads(samples), cpu_pct(samples)
    full = enough(samples) and cpu is not None and cpu >= thresholds.CPU_FULL_PCT.value
    if full and crowded(situation):
        return "cpu", "every core is busy"
    if others_share(situation) is not None and _queues(samples):
        return "others", "other programs use the cores"
    if full and loads and not _idle(loads):
        return "cpu", "every core is busy"
    if enough(samples) and _one_works(loads):
        return "one-worker", f"1 of {len(loads)} workers is busy, the others idle"
    if enough(samples) and loads and _idle(loads):
        return "storage", "the workers wait too, for storage, a network or one another"
    if not loads and (settings is None or settings.dataloader_num_workers == 0):
        return "main-process", "batches are prepared in the training process"
    return "workers", "the workers are too few or too slow"


def _one_works(loads: tuple[float, ...]) -> bool:
    """One worker at full load, every other one idle: the dataset is not shared out among them."""
    full, idle = thresholds.CORE_FULL_PCT.value, thresholds.WORKER_IDLE_PCT.value
    return len(loads) > 1 and loads[0] >= full and all(load < idle for load in loads[1:])


def _idle(loads: tuple[float, ...]) -> bool:
    """Not even the busiest worker has much to do."""
    return loads[0] < thresholds.WORKER_IDLE_PCT.value


def crowded(situation: Situation) -> bool:
    """More loader processes than cores left beside the training processes, and it is they that fill the cores.

    Where others have the cores they cannot fill them; far too many of them stand in the queue for one then.
    """
    samples = recent(situation)
    cores, loads = usable_cores(situation), worker_loads(samples)
    if cores is None or len(loads) <= max(1, cores - situation.processes):
        return False
    queue = queue_pct(samples, "worker")
    queueing = queue is not None and queue >= thresholds.CPU_QUEUE_PCT.value and len(loads) > 2 * cores
    return queueing or sum(loads) >= 100 * cores * thresholds.WORKERS_FILL_SHARE.value


def _queues(samples: tuple[Sample, ...]) -> bool:
    """Whether a process of the training stands in the queue for a core; taken for granted where nobody can tell."""
    queue = queue_pct(samples)
    return queue is None or queue >= thresholds.CPU_QUEUE_PCT.value


def _evidence(situation: Situation, part: float) -> tuple[str, ...]:
    """The numbers, and for how long."""
    rates, samples = situation.state.rates, recent(situation)
    lines = [f"data wait {format_share(part)} of step time, {seconds(training_s(situation) or 0)} into the training"]
    if rates.step_time_s is not None:
        lines.append(f"a step takes {rates.step_time_s:.3g} s, of it {rates.step_time_s * part:.3g} s waiting")
    loads, busy, cpu = worker_loads(samples), gpu_busy_pct(situation, samples), cpu_pct(samples)
    if loads:
        lines.append("workers at " + ", ".join(format_percent(load) for load in loads[:8]) + " of a core")
    if busy is not None:
        lines.append(f"GPU busy {format_percent(busy)}")
    if cpu is not None:
        lines.append(f"all cores {format_percent(cpu)}")
    reads = middle(sample.host.disk_read_bytes_s for sample in samples)
    if reads is not None and reads >= thresholds.DISK_BUSY_BYTES_S.value:
        lines.append(f"the disk reads {reads / 1e6:.0f} MB/s")
    return tuple(lines)
