"""Findings on the GPU: throttling, other processes, driver errors, memory near its limit, low utilisation."""

from __future__ import annotations

from collections import Counter
from itertools import chain

from tuner_tui.advice import thresholds
from tuner_tui.advice.finding import Finding
from tuner_tui.advice.findings.rows import finding
from tuner_tui.advice.findings.run_metrics import (
    covers_window,
    cpu_pct,
    gpu_busy_pct,
    gpu_figures,
    gpu_indexes,
    is_warmed_up,
    median_known,
    recent_samples,
    span_s,
    training_pids,
    training_share,
)
from tuner_tui.advice.remedies.catalog import remedies_for
from tuner_tui.advice.remedies.table import remedy
from tuner_tui.advice.situation import Situation
from tuner_tui.core.units import format_percent, format_share, format_short_duration, format_size
from tuner_tui.hardware.driver import format_xid, xid_meaning
from tuner_tui.runs.events.types import Steps

HARMFUL_THROTTLE_REASONS = ("thermal", "hardware slowdown", "power brake", "reliability", "board limit")
"""Throttle reasons that are not configured, unlike a power cap or fixed clocks."""
XID_FAULTS = {
    "gpu": "NVIDIA lists it as a hardware, power, cooling or slot fault",
    "program": "NVIDIA lists it as usually a program error, rarely faulty memory",
    "unknown": "NVIDIA lists several possible causes",
}


def throttled(situation: Situation) -> Finding | None:
    samples = recent_samples(situation)
    if not covers_window(samples) or situation.state.outcome is not None:
        return None
    for figures in gpu_figures(situation, samples):
        reasons = Counter(word for gpu in figures for word in gpu.throttle if word.startswith(HARMFUL_THROTTLE_REASONS))
        reason, count = reasons.most_common(1)[0] if reasons else ("", 0)
        if not figures or count / len(figures) < thresholds.THROTTLED_SHARE:
            continue
        gpu, span = figures[-1], format_short_duration(span_s(samples))
        often = f"{reason} in {format_share(count / len(figures))} of the last {span}"
        read = ((gpu.temperature_c, "{:.0f} °C"), (gpu.clock_sm_mhz, "clock {} MHz"))
        shown = (form.format(value) for value, form in read if value is not None)
        return finding("throttled", situation, often, *shown, gpu=gpu.index, reason=reason)
    return None


def other_process(situation: Situation) -> Finding | None:
    samples = recent_samples(situation)
    if not samples or situation.state.outcome is not None:
        return None
    pids = training_pids(situation)
    for gpu in samples[-1].gpus:
        listed = gpu.processes or ()
        others = [process for process in listed if process.pid not in pids]
        held = sum(process.memory_bytes or 0 for process in others)
        if len(others) < len(listed) and held >= thresholds.OTHER_PROCESS_BYTES:
            named = ", ".join(f"{process.command or 'process'} ({process.pid})" for process in others[:3])
            evidence = f"it holds {format_size(held)} of the GPU"
            return finding("other-process", situation, evidence, gpu=gpu.index, processes=named)
    return None


def lost_gpu(situation: Situation) -> Finding | None:
    lost = [gpu for sample in situation.samples[-1:] for gpu in sample.gpus if gpu.lost]
    if not lost or situation.state.outcome is not None:
        return None
    age = "" if lost[0].age_s is None else f", for {format_short_duration(lost[0].age_s)}"
    return finding("gpu-lost", situation, f"the driver lost {lost[0].name}{age}", gpu=lost[0].index)


def driver_error(situation: Situation) -> Finding | None:
    faulty = [(gpu, gpu.xid) for sample in situation.samples[-1:] for gpu in sample.gpus if gpu.xid is not None]
    mine = {index for sample in situation.samples if faulty for index in gpu_indexes(situation, (sample,))}
    for gpu, xid in faulty:
        if mine and gpu.index not in mine:
            continue
        fault, age = xid_meaning(xid).fault, gpu.xid_age_s
        when = () if age is None else (f"reported {format_short_duration(age)} before the newest sample",)
        evidence = (*when, XID_FAULTS[fault])
        return finding("gpu-error", situation, *evidence, ladder=fault, gpu=gpu.index, error=format_xid(xid))
    return None


def gpu_memory_near_limit(situation: Situation) -> Finding | None:
    samples = recent_samples(situation)
    if not samples or not is_warmed_up(situation):
        return None
    retries = max((counters.alloc_retries or 0 for counters in situation.state.counters), default=0)
    # The driver counts what PyTorch's allocator caches as used, although the next batch can have it. A training on
    # batches of many lengths fills its GPU that way and never runs out. With several ranks the least cache counts.
    cached = min(map(_cached_bytes, situation.state.counters), default=0)
    for figures in gpu_figures(situation, samples[-1:]):
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
        remedies = remedies_for("gpu-memory-near-limit", situation, "training")
        if retries and cached > total - used:
            remedies = (remedy("expandable-segments"), *remedies)
        return finding(
            "gpu-memory-near-limit", situation, *evidence, severity="warning" if retries else "hint",
            confidence="likely" if retries else "possible", remedies=remedies, gpu=figures[0].index,
            free=format_size(total - used + cached),
        )  # fmt: skip
    return None


def _cached_bytes(counters: Steps) -> int:
    """What the allocator reserved beyond the peak of all tensors; 0 if it was not measured."""
    if counters.reserved_peak_bytes is None or counters.allocated_peak_bytes is None:
        return 0
    return max(0, counters.reserved_peak_bytes - counters.allocated_peak_bytes)


def gpu_underused(situation: Situation) -> Finding | None:
    busy = _settled_utilisation(situation)
    if busy is None or busy >= thresholds.GPU_BUSY_GOOD_PCT or launch_bound(situation) is not None:
        return None
    samples, data_wait, memory = recent_samples(situation), situation.state.rates.data_wait_share, _fullest(situation)
    cpu, very_low = cpu_pct(samples), busy < thresholds.GPU_VERY_LOW_PCT
    both = very_low and cpu is not None and cpu < thresholds.CPU_LOW_PCT
    neither = ": neither the GPU nor the CPU is busy" if both else ""
    evidence = (
        f"GPU busy {format_percent(busy)} over {format_short_duration(span_s(samples))}",
        "" if cpu is None else f"CPU {format_percent(cpu)} busy{neither}",
        "" if data_wait is None else f"data wait {format_share(data_wait)} of step time",
        "" if memory is None else f"memory {format_share(memory[0] / memory[1])} of the GPU",
    )
    ladder = "both-low" if both else "very-low" if very_low else None
    return finding(
        "gpu-underused", situation, *filter(None, evidence), severity="warning" if very_low else "hint", ladder=ladder,
        busy=format_percent(busy),
    )  # fmt: skip


def gpu_memory_unused(situation: Situation) -> Finding | None:
    busy, figures = _settled_utilisation(situation), _fullest(situation)
    if busy is None or busy < thresholds.GPU_BUSY_GOOD_PCT or figures is None:
        return None
    used, total = figures
    if used / total >= thresholds.VRAM_LOW_SHARE:
        return None
    remedies = remedies_for("gpu-memory-unused", situation)
    if situation.settings is not None and not remedies:
        return None
    evidence = (f"{format_size(used)} of {format_size(total)} used", f"GPU busy {format_percent(busy)}")
    return finding("gpu-memory-unused", situation, *evidence, remedies=remedies, unused=format_size(total - used))


def _fullest(situation: Situation) -> tuple[int, int] | None:
    """Used and total memory of the training's fullest GPU, in bytes."""
    figures = [
        (gpu.memory_used_bytes, gpu.memory_total_bytes)
        for gpu in chain(*gpu_figures(situation, recent_samples(situation)))
        if gpu.memory_used_bytes is not None and gpu.memory_total_bytes
    ]
    return max(figures, key=lambda memory: memory[0] / memory[1], default=None)


def launch_bound(situation: Situation) -> Finding | None:
    profiled = situation.state.profiled
    if profiled is not None and profiled.bound == "launch":
        return finding(
            "launch-bound", situation, profiled.sentence, *profiled.evidence, row="launch-bound-profiled",
            lost_share=profiled.share * training_share(situation), share=format_share(profiled.share),
        )  # fmt: skip
    busy, power, step_s = _settled_utilisation(situation), _power_share(situation), situation.state.rates.step_time_s
    if busy is None or step_s is None or power is None or busy < thresholds.GPU_LOW_PCT:
        return None
    micro_s = step_s / (1 if situation.settings is None else situation.settings.gradient_accumulation_steps)
    if power >= thresholds.POWER_LOW_SHARE or micro_s >= thresholds.SHORT_STEP_S:
        return None
    load = f"GPU busy {format_percent(busy)}, at {format_share(power)} of its power limit"
    return finding("launch-bound", situation, load, f"a micro step takes {micro_s * 1000:.0f} ms")


def slow_kernels(situation: Situation) -> Finding | None:
    busy = _settled_utilisation(situation)
    if busy is None or busy < thresholds.GPU_BUSY_GOOD_PCT:
        return None
    remedies = remedies_for("slow-kernels", situation)
    unused = f"not in use: {', '.join(remedy.title for remedy in remedies)}"
    load = f"GPU busy {format_percent(busy)}"
    return finding("slow-kernels", situation, load, unused, remedies=remedies) if remedies else None


def compiling(situation: Situation) -> Finding | None:
    state = situation.state
    if state.phase != "compiling" or state.phase_since_t is None or state.outcome is not None:
        return None
    age_s = situation.now_s - state.phase_since_t
    age, is_long = format_short_duration(age_s), age_s >= thresholds.COMPILING_S
    return finding("compiling", situation, f"phase compiling for {age}", since=age) if is_long else None


def _settled_utilisation(situation: Situation) -> float | None:
    """Median GPU-Util over the window; None unless it has nothing but settled training that does not wait for data."""
    samples, data_wait = recent_samples(situation), situation.state.rates.data_wait_share
    settled = is_warmed_up(situation) and situation.state.phase == "training" and covers_window(samples)
    long_enough = (situation.now_s - (situation.state.phase_since_t or situation.now_s)) >= span_s(samples)
    # Where the data loader is the bottleneck, its figures say nothing about the GPU.
    waits = data_wait is not None and data_wait >= thresholds.DATA_WAIT_HINT
    return gpu_busy_pct(situation, samples) if settled and long_enough and not waits else None


def _power_share(situation: Situation) -> float | None:
    for figures in gpu_figures(situation, recent_samples(situation)):
        power, limit = median_known(gpu.power_w for gpu in figures), median_known(gpu.power_limit_w for gpu in figures)
        if power is not None and limit:
            return power / limit
    return None
