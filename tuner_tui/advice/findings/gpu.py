"""Findings on the GPU: throttling, other processes, driver errors, memory near its limit, low utilisation."""

from __future__ import annotations

from collections import Counter

from tuner_tui.advice import thresholds
from tuner_tui.advice.finding import Finding
from tuner_tui.advice.findings.run_metrics import (
    covers_window,
    cpu_pct,
    gpu_busy_pct,
    gpu_indexes,
    gpu_median,
    gpu_samples,
    is_warmed_up,
    recent_samples,
    span_s,
    training_pids,
    training_s,
)
from tuner_tui.advice.oom_analysis import EXPANDABLE
from tuner_tui.advice.remedies.catalog import remedies_for
from tuner_tui.advice.situation import Situation
from tuner_tui.core.units import format_percent, format_share, format_short_duration, format_size
from tuner_tui.hardware.driver import format_xid, xid_meaning
from tuner_tui.hardware.sample import GpuSample
from tuner_tui.runs.events.types import Steps

HARMFUL_THROTTLE_REASONS = ("thermal", "hardware slowdown", "power brake", "reliability", "board limit")
"""Throttle reasons that are not configured, unlike a power cap or fixed clocks."""

XID_FAULTS = {
    "card": "NVIDIA lists it as a hardware, power, cooling or slot fault",
    "program": "NVIDIA lists it as usually a program error, rarely faulty memory",
    "unknown": "NVIDIA lists several possible causes",
}


def throttled(situation: Situation) -> Finding | None:
    """A GPU reduced its clocks in most of the recent samples."""
    samples = recent_samples(situation)
    if not covers_window(samples) or situation.state.outcome is not None:
        return None
    for index in gpu_indexes(situation, samples):
        figures = gpu_samples(samples, index)
        reasons = Counter(word for gpu in figures for word in gpu.throttle if word.startswith(HARMFUL_THROTTLE_REASONS))
        word, count = reasons.most_common(1)[0] if reasons else ("", 0)
        if figures and count / len(figures) >= thresholds.THROTTLED_SHARE:
            return _throttled_finding(situation, figures[-1], word, count / len(figures), span_s(samples))
    return None


def _throttled_finding(situation: Situation, gpu: GpuSample, word: str, part: float, span: float) -> Finding:
    """The GPU reduced its clocks, because of heat, power or a fault, in most of the recent samples."""
    figures = [f"{word} in {format_share(part)} of the last {format_short_duration(span)}"]
    if gpu.temperature_c is not None:
        figures.append(f"{gpu.temperature_c:.0f} °C")
    if gpu.clock_sm_mhz is not None:
        figures.append(f"clock {gpu.clock_sm_mhz} MHz")
    return Finding(
        cause="throttled",
        severity="warning",
        sentence=f"GPU {gpu.index} reduces its clocks: {word}",
        evidence=tuple(figures),
        confidence="certain",
        where=f"gpu {gpu.index}",
        remedies=remedies_for("throttled", situation),
    )


def other_process(situation: Situation) -> Finding | None:
    """Another program uses the training's GPU. Only reported if the training's own processes are visible on it."""
    samples = recent_samples(situation)
    if not samples or situation.state.outcome is not None:
        return None
    pids = training_pids(situation)
    for gpu in samples[-1].gpus:
        listed = gpu.processes or ()
        if not {process.pid for process in listed} & pids:
            continue
        others = [process for process in listed if process.pid not in pids]
        held = sum(process.memory_bytes or 0 for process in others)
        if held >= thresholds.OTHER_PROCESS_BYTES:
            named = ", ".join(f"{process.command or 'process'} ({process.pid})" for process in others[:3])
            return Finding(
                cause="other-process",
                severity="warning",
                sentence=f"Another process is on GPU {gpu.index}: {named}",
                evidence=(f"it holds {format_size(held)} of the GPU",),
                confidence="certain",
                where=f"gpu {gpu.index}",
                remedies=remedies_for("other-process", situation),
            )
    return None


def lost_gpu(situation: Situation) -> Finding | None:
    """A GPU does not respond to the driver any more."""
    newest = situation.samples[-1] if situation.samples else None
    lost = [] if newest is None or situation.state.outcome else [gpu for gpu in newest.gpus if gpu.lost]
    if not lost:
        return None
    age = "" if lost[0].age_s is None else f", for {format_short_duration(lost[0].age_s)}"
    return Finding(
        cause="gpu-lost",
        severity="failed",
        sentence=f"GPU {lost[0].index} no longer responds",
        evidence=(f"the driver lost {lost[0].name}{age}",),
        confidence="certain",
        where=f"gpu {lost[0].index}",
    )


def driver_error(situation: Situation) -> Finding | None:
    """The driver reported a critical error (Xid) on a GPU of the training. Also reported after the run has ended."""
    if not situation.samples:
        return None
    mine = {index for sample in situation.samples for index in gpu_indexes(situation, (sample,))}
    reporting = [gpu for gpu in situation.samples[-1].gpus if gpu.xid is not None and (not mine or gpu.index in mine)]
    gpu = reporting[0] if reporting else None
    if gpu is None or gpu.xid is None:
        return None
    number = gpu.xid
    fault = xid_meaning(number).fault
    age = (
        () if gpu.xid_age_s is None else (f"reported {format_short_duration(gpu.xid_age_s)} before the newest sample",)
    )
    return Finding(
        cause="gpu-error",
        severity="warning",
        sentence=f"GPU {gpu.index} reported {format_xid(number)}",
        evidence=(*age, XID_FAULTS[fault]),
        confidence="certain",
        where=f"gpu {gpu.index}",
        remedies=remedies_for("gpu-error", situation, fault),
    )


def gpu_memory_near_limit(situation: Situation) -> Finding | None:
    """Tensors almost fill the GPU's memory, or the allocator had to free its cache to continue."""
    samples = recent_samples(situation)
    if not samples or not is_warmed_up(situation):
        return None
    latest = [rank.latest for rank in situation.state.ranks.values() if rank.latest is not None]
    retries = max((counters.alloc_retries or 0 for counters in latest), default=0)
    # The driver counts what PyTorch's allocator caches as used, although the next batch can have it. A training on
    # batches of many lengths fills its GPU that way and never runs out. With several ranks the least cache counts.
    cached = min(map(_cached_bytes, latest), default=0)
    for index in gpu_indexes(situation, samples):
        figures = gpu_samples(samples[-1:], index)
        used, total = (figures[0].memory_used_bytes, figures[0].memory_total_bytes) if figures else (None, None)
        if used is None or not total:
            continue
        full = thresholds.VRAM_NEAR_LIMIT_SHARE * total
        if used < full or (used - cached < full and not retries):
            continue
        evidence = [f"{format_size(used)} of {format_size(total)} used"]
        if cached:
            evidence.append(f"{format_size(cached)} of it cached by PyTorch beyond the peak of all tensors")
        if retries:
            evidence.append(f"the allocator emptied its cache {retries} times to continue")
        fragmented = retries and cached > total - used
        return Finding(
            cause="gpu-memory-near-limit",
            severity="warning" if retries else "hint",
            sentence=f"GPU {index} has {format_size(total - used + cached)} free: a longer batch may not fit",
            evidence=tuple(evidence),
            confidence="likely" if retries else "possible",
            where="training",
            remedies=(
                *((EXPANDABLE,) if fragmented else ()),
                *remedies_for("gpu-memory-near-limit", situation, "training"),
            ),
        )
    return None


def _cached_bytes(counters: Steps) -> int:
    """What the allocator reserved beyond the peak of all tensors; 0 if it was not measured."""
    if counters.reserved_peak_bytes is None or counters.allocated_peak_bytes is None:
        return 0
    return max(0, counters.reserved_peak_bytes - counters.allocated_peak_bytes)


def gpu_underused(situation: Situation) -> Finding | None:
    """The GPU idles although the training does not wait for data."""
    busy = _settled_utilisation(situation)
    if busy is None or busy >= thresholds.GPU_BUSY_GOOD_PCT or waits_for_data(situation):
        return None
    if launch_bound(situation) is not None:
        return None
    samples = recent_samples(situation)
    cpu = cpu_pct(samples)
    both = cpu is not None and cpu < thresholds.CPU_LOW_PCT and busy < thresholds.GPU_VERY_LOW_PCT
    very_low = "very-low" if busy < thresholds.GPU_VERY_LOW_PCT else None
    load_level = "both-low" if both else very_low
    load = (
        ()
        if cpu is None
        else (f"all cores {format_percent(cpu)}" + (": neither the GPU nor the CPU is busy" if both else ""),)
    )
    return Finding(
        cause="gpu-underused",
        severity="warning" if busy < thresholds.GPU_VERY_LOW_PCT else "hint",
        sentence=f"The GPU is busy only {format_percent(busy)} of the time and does not wait for data",
        evidence=(
            f"GPU busy {format_percent(busy)} over {format_short_duration(span_s(samples))}",
            *load, *_data_wait_evidence(situation), *_memory_evidence(situation),
        ),
        confidence="likely",
        where="training",
        remedies=remedies_for("gpu-underused", situation, load_level),
    )  # fmt: skip


def gpu_memory_unused(situation: Situation) -> Finding | None:
    """A busy GPU has much memory left, and there is something to use it for."""
    busy = _settled_utilisation(situation)
    if busy is None or busy < thresholds.GPU_BUSY_GOOD_PCT or waits_for_data(situation):
        return None
    figures = _fullest(situation)
    if figures is None or figures[0] / figures[1] >= thresholds.VRAM_LOW_SHARE:
        return None
    remedies = remedies_for("gpu-memory-unused", situation)
    if situation.settings is not None and not remedies:
        return None
    used, total = figures
    return Finding(
        cause="gpu-memory-unused",
        severity="hint",
        sentence=f"{format_size(total - used)} of GPU memory are unused: a larger batch may be faster",
        evidence=(f"{format_size(used)} of {format_size(total)} used", f"GPU busy {format_percent(busy)}"),
        confidence="possible",
        where="training",
        remedies=remedies,
    )


def _fullest(situation: Situation) -> tuple[int, int] | None:
    """Used and total memory of the training's fullest GPU, in bytes."""
    samples = recent_samples(situation)
    figures = [
        (gpu.memory_used_bytes, gpu.memory_total_bytes)
        for index in gpu_indexes(situation, samples)
        for gpu in gpu_samples(samples, index)
        if gpu.memory_used_bytes is not None and gpu.memory_total_bytes
    ]
    return max(figures, key=lambda one: one[0] / one[1], default=None)


def launch_bound(situation: Situation) -> Finding | None:
    """High GPU-Util at low power with very short steps: the GPU waits for kernel launches."""
    busy, micro_s = _settled_utilisation(situation), micro_step_s(situation)
    if busy is None or micro_s is None or busy < thresholds.GPU_LOW_PCT or waits_for_data(situation):
        return None
    power = _power_share(situation)
    if power is None or power >= thresholds.POWER_LOW_SHARE or micro_s >= thresholds.SHORT_STEP_S:
        return None
    return Finding(
        cause="launch-bound",
        severity="hint",
        sentence="The GPU runs many small kernels: GPU-Util is high, power is low",
        evidence=(
            f"GPU busy {format_percent(busy)}, at {format_share(power)} of its power limit",
            f"a micro step takes {micro_s * 1000:.0f} ms",
        ),
        confidence="likely",
        where="training",
        remedies=remedies_for("launch-bound", situation),
    )


def slow_kernels(situation: Situation) -> Finding | None:
    """The GPU is busy, and a supported feature that would make its work cheaper is off."""
    busy = _settled_utilisation(situation)
    if busy is None or busy < thresholds.GPU_BUSY_GOOD_PCT or waits_for_data(situation):
        return None
    remedies = remedies_for("slow-kernels", situation)
    if not remedies:
        return None
    return Finding(
        cause="slow-kernels",
        severity="hint",
        sentence="The GPU is busy, but the same work can run faster on it",
        evidence=(f"GPU busy {format_percent(busy)}", f"not in use: {', '.join(remedy.title for remedy in remedies)}"),
        confidence="likely",
        where="training",
        remedies=remedies,
    )


def compiling(situation: Situation) -> Finding | None:
    """`torch.compile` has been compiling for a while."""
    state = situation.state
    if state.phase != "compiling" or state.phase_since_t is None or state.outcome is not None:
        return None
    since_s = situation.now_s - state.phase_since_t
    if since_s < thresholds.COMPILING_S:
        return None
    return Finding(
        cause="compiling",
        severity="hint",
        sentence=f"The model compiles, for {format_short_duration(since_s)} so far; steps are faster afterwards",
        evidence=(f"phase compiling for {format_short_duration(since_s)}",),
        confidence="certain",
        where="training",
        remedies=remedies_for("compiling", situation),
    )


def waits_for_data(situation: Situation) -> bool:
    """Whether the data loader is the bottleneck, so that GPU figures say nothing about the GPU."""
    part = situation.state.rates.data_wait_share
    return part is not None and part >= thresholds.DATA_WAIT_HINT


def micro_step_s(situation: Situation) -> float | None:
    """Seconds per micro batch; None if the step time is unknown."""
    step_s = situation.state.rates.step_time_s
    accumulation = 1 if situation.settings is None else situation.settings.gradient_accumulation_steps
    return None if step_s is None else step_s / accumulation


def _settled_utilisation(situation: Situation) -> float | None:
    """Median GPU-Util over the window if it contains nothing but settled training; else None."""
    samples = recent_samples(situation)
    settled = is_warmed_up(situation) and situation.state.phase == "training" and covers_window(samples)
    long_enough = (situation.now_s - (situation.state.phase_since_t or situation.now_s)) >= span_s(samples)
    return gpu_busy_pct(situation, samples) if settled and long_enough else None


def _power_share(situation: Situation) -> float | None:
    samples = recent_samples(situation)
    for index in gpu_indexes(situation, samples):
        power = gpu_median(samples, index, lambda gpu: gpu.power_w)
        limit = gpu_median(samples, index, lambda gpu: gpu.power_limit_w)
        if power is not None and limit:
            return power / limit
    return None


def _data_wait_evidence(situation: Situation) -> tuple[str, ...]:
    part = situation.state.rates.data_wait_share
    since = format_short_duration(training_s(situation) or 0)
    return () if part is None else (f"data wait {format_share(part)} of step time, {since} into the training",)


def _memory_evidence(situation: Situation) -> tuple[str, ...]:
    figures = _fullest(situation)
    return () if figures is None else (f"memory {format_share(figures[0] / figures[1])} of the GPU",)
