"""How well the card is used while its data is there: GPU-Util alone says little, so power and step time stand by."""

from __future__ import annotations

from tuner_tui.advice import thresholds
from tuner_tui.advice.finding import Finding
from tuner_tui.advice.measure import (
    card_median,
    cards,
    cpu_pct,
    enough,
    gpu_busy_pct,
    recent,
    seconds,
    span_s,
    training_s,
    warmed_up,
)
from tuner_tui.advice.remedies import remedies_for
from tuner_tui.advice.situation import Situation
from tuner_tui.core.units import format_percent, format_share


def underused(situation: Situation) -> Finding | None:
    """The card idles though the training does not wait for data."""
    busy = _busy(situation)
    if busy is None or busy >= thresholds.GPU_LOW_PCT.value or waits_for_data(situation):
        return None
    samples = recent(situation)
    cpu = cpu_pct(samples)
    both = cpu is not None and cpu < thresholds.CPU_LOW_PCT.value and busy < thresholds.GPU_VERY_LOW_PCT.value
    load = (
        ()
        if cpu is None
        else (f"all cores {format_percent(cpu)}" + (": neither card nor processor is busy" if both else ""),)
    )
    return Finding(
        cause="gpu-underused",
        severity="warning" if busy < thresholds.GPU_VERY_LOW_PCT.value else "hint",
        sentence=f"The GPU is busy only {format_percent(busy)} of the time, and does not wait for data",
        evidence=(
            f"GPU busy {format_percent(busy)} over {seconds(span_s(samples))}", *load, *_wait(situation), *_memory(situation),
        ),
        confidence="likely",
        where="training",
        remedies=remedies_for("gpu-underused", situation, "both-low" if both else None),
    )  # fmt: skip


def launch_bound(situation: Situation) -> Finding | None:
    """Busy by GPU-Util but at low power with very short steps: the card waits for kernels to be launched."""
    busy, micro_s = _busy(situation), micro_step_s(situation)
    if busy is None or micro_s is None or busy < thresholds.GPU_LOW_PCT.value or waits_for_data(situation):
        return None
    power = _power_share(situation)
    if power is None or power >= thresholds.POWER_LOW_SHARE.value or micro_s >= thresholds.SHORT_STEP_S.value:
        return None
    return Finding(
        cause="launch-bound",
        severity="hint",
        sentence="The GPU runs many small kernels: busy by the clock, idle by its power",
        evidence=(
            f"GPU busy {format_percent(busy)}, at {format_share(power)} of its power limit",
            f"a micro step takes {micro_s * 1000:.0f} ms",
        ),
        confidence="likely",
        where="training",
        remedies=remedies_for("launch-bound", situation),
    )


def slow_kernels(situation: Situation) -> Finding | None:
    """The card is busy, and something that would make its work cheaper is not in use."""
    busy = _busy(situation)
    if busy is None or busy < thresholds.GPU_BUSY_GOOD_PCT.value or waits_for_data(situation):
        return None
    remedies = tuple(r for r in remedies_for("slow-kernels", situation) if "torch_compile" not in r.change)
    if not remedies:
        return None
    return Finding(
        cause="slow-kernels",
        severity="hint",
        sentence="The GPU is busy, and this box can do the same work faster",
        evidence=(f"GPU busy {format_percent(busy)}", f"not in use: {', '.join(remedy.title for remedy in remedies)}"),
        confidence="likely",
        where="training",
        remedies=remedies,
    )


def compiling(situation: Situation) -> Finding | None:
    """The first steps are slow because they compile."""
    state = situation.state
    if state.phase != "compiling" or state.phase_since_t is None or state.outcome is not None:
        return None
    since_s = situation.now_s - state.phase_since_t
    if since_s < thresholds.COMPILING_S.value:
        return None
    return Finding(
        cause="compiling",
        severity="hint",
        sentence=f"The model compiles, for {seconds(since_s)} so far; steps will be faster afterwards",
        evidence=(f"phase compiling for {seconds(since_s)}",),
        confidence="certain",
        where="training",
        remedies=remedies_for("compiling", situation),
    )


def waits_for_data(situation: Situation) -> bool:
    """Whether the loader is the limit: then nothing about the card is."""
    part = situation.state.rates.data_wait_share
    return part is not None and part >= thresholds.DATA_WAIT_HINT.value


def micro_step_s(situation: Situation) -> float | None:
    """Seconds a micro batch takes; None where the step time is not known."""
    step_s = situation.state.rates.step_time_s
    accumulation = 1 if situation.settings is None else situation.settings.gradient_accumulation_steps
    return None if step_s is None else step_s / accumulation


def _busy(situation: Situation) -> float | None:
    """GPU-Util over the window, while it was all training."""
    samples = recent(situation)
    settled = warmed_up(situation) and situation.state.phase == "training" and enough(samples)
    long_enough = (situation.now_s - (situation.state.phase_since_t or situation.now_s)) >= span_s(samples)
    return gpu_busy_pct(situation, samples) if settled and long_enough else None


def _power_share(situation: Situation) -> float | None:
    samples = recent(situation)
    for index in cards(situation, samples):
        power = card_median(samples, index, lambda gpu: gpu.power_w)
        limit = card_median(samples, index, lambda gpu: gpu.power_limit_w)
        if power is not None and limit:
            return power / limit
    return None


def _wait(situation: Situation) -> tuple[str, ...]:
    part = situation.state.rates.data_wait_share
    since = seconds(training_s(situation) or 0)
    return () if part is None else (f"data wait {format_share(part)} of step time, {since} into the training",)


def _memory(situation: Situation) -> tuple[str, ...]:
    samples = recent(situation)
    for gpu in samples[-1].gpus:
        if gpu.index in cards(situation, samples) and gpu.memory_used_bytes is not None and gpu.memory_total_bytes:
            return (f"memory {format_share(gpu.memory_used_bytes / gpu.memory_total_bytes)} of the card",)
    return ()
