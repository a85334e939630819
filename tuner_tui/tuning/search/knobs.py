"""The changes of one knob other than the micro batch, each with the most it can gain.

The bounds follow from where the time of a step goes, and from the largest factor known for each change.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from tuner_tui.advice.thresholds import JUDGEMENT, NOTES_3090, NOTES_T4
from tuner_tui.settings.model import Settings, Value, format_value
from tuner_tui.tuning.search.results import SettingsResult
from tuner_tui.tuning.search.space import PERSISTENT, PIN, PREFETCH, WORKERS, SearchSpace
from tuner_tui.tuning.trial import StepBreakdown

SAMPLING = "train_sampling_strategy"
WORKER_MARGIN = 1.25
"""Safety factor on the loading time when the number of workers is computed."""


@dataclass(frozen=True, slots=True)
class Factor:
    """A factor with its unit and its source."""

    value: float
    unit: str
    source: str


SIXTEEN_BIT = Factor(16, "× the products of FP32", "NVIDIA A100 data sheet: 312 over 19.5 TFLOPS, dense")
SIXTEEN_BIT_AFTER_TF32 = Factor(2, "× the products of TF32", "NVIDIA A100 data sheet: 312 over 156 TFLOPS, dense")
SIXTEEN_BIT_ON_CPU = Factor(2, "× FP32", f"{JUDGEMENT}: only processors with AMX gain, most lose")
TF32 = Factor(8, "× the products of FP32", "NVIDIA A100 data sheet: 156 over 19.5 TFLOPS")
COMPILE = Factor(1.5, "× a step", f"{NOTES_T4}, {NOTES_3090}: 1.1–1.5×")
SDPA_OVER_EAGER = Factor(3, "× a step", "FlashAttention (Dao et al. 2022): GPT-2 at 1,024 tokens")
FLASH_OVER_SDPA = Factor(1.15, "× a step", f"{JUDGEMENT}: SDPA runs the same kind of kernel, padding included")
FLASH_3_OVER_SDPA = Factor(2, "× attention", "FlashAttention-3 (Shah et al. 2024): 1.5–2.0× on H100")
RECOMPUTING = Factor(4 / 3, "× a step", "one more forward pass (Chen et al. 2016), a third of forward and backward")
CHECKPOINTING_COST = Factor(1.2, "× a step", f"{NOTES_T4}, {NOTES_3090}: about 20 % slower")
CHECKPOINTING_ACTIVATIONS = Factor(0.6, "of the activations", f"{NOTES_T4}, {NOTES_3090}: about 40 % less")
KEPT_ACTIVATIONS = Factor(
    6,
    "× the activations",
    f"{JUDGEMENT}: a layer keeps up to 17 times its input (Korthikanti et al. 2022), one is live",
)
FEWER_WORKERS = Factor(0.15, "of throughput", f"{JUDGEMENT}: workers take cores from the training")
SMALLER_ON_CPU = Factor(0.1, "of throughput", f"{JUDGEMENT}: caches may hold a smaller batch")


def gain_without(share: float | None) -> float | None:
    """Return the gain if this share of a step's time vanished, or None if the share is unknown."""
    if share is None:
        return None
    return 1 / (1 - min(max(share, 0.0), 0.99)) - 1


def compute_share(breakdown: StepBreakdown) -> float:
    """Return the share of a step in forward and backward: what is neither data wait nor optimizer step."""
    return max(0.0, 1 - (breakdown.data_wait or 0.0) - (breakdown.optimizer or 0.0))


def compute_bound(breakdown: StepBreakdown, factor: Factor) -> float | None:
    """Bound of a change that computes forward and backward `factor` times as fast."""
    return gain_without(compute_share(breakdown) * (1 - 1 / factor.value))


@dataclass(frozen=True, slots=True)
class KnobChange:
    """A change of one knob away from the best settings.

    Attributes:
        knob: The field that changes.
        values: New values of the knob and of the fields that change with it.
        bound: Maximum gain in throughput, as a share; None if unknown.
        reason: What the bound is based on.
        from_other: Derived from settings other than the best. Such a change is not reported if it is skipped.
    """

    knob: str
    values: Mapping[str, Value]
    bound: float | None
    reason: str
    from_other: bool = False

    @property
    def value(self) -> str:
        """The knob's new value as text."""
        return format_value(self.knob, self.values[self.knob])


def knob_changes(best: SettingsResult, space: SearchSpace) -> Iterator[KnobChange]:
    """Yield every change of one knob away from the best settings, whatever its bound."""
    now, parts = best.settings, best.breakdown
    if now.precision == "fp32":  # never back, and never from one 16-bit type to the other
        sixteen_bit = SIXTEEN_BIT_AFTER_TF32 if now.tf32 else SIXTEEN_BIT
        for value in _other_values("precision", now, space):
            factor = sixteen_bit if space.on_gpu else SIXTEEN_BIT_ON_CPU
            yield _compute_change("precision", value, parts, factor)
        if True in _other_values("tf32", now, space):  # under autocast, matrix products are in 16 bit already
            yield _compute_change("tf32", True, parts, TF32)
    for value in _other_values("attn_implementation", now, space):
        over_sdpa = {"flash_attention_2": FLASH_OVER_SDPA, "flash_attention_3": FLASH_3_OVER_SDPA}.get(str(value))
        kernel = SDPA_OVER_EAGER if now.attn_implementation == "eager" else over_sdpa
        if kernel is not None and value != "eager":
            yield _compute_change("attn_implementation", value, parts, kernel)
    if True in _other_values("torch_compile", now, space):
        yield _compute_change("torch_compile", True, parts, COMPILE)
    # Another optimizer than the same with fused kernels would change the result of the training.
    if now.optim == "adamw_torch" and "adamw_torch_fused" in _other_values("optim", now, space):
        bound = gain_without(parts.optimizer)
        yield KnobChange("optim", {"optim": "adamw_torch_fused"}, bound, "the optimizer's share of the step")
    if "group_by_length" in _other_values(SAMPLING, now, space):
        bound = None if parts.padding is None else gain_without(parts.padding * compute_share(parts))
        yield KnobChange(SAMPLING, {SAMPLING: "group_by_length"}, bound, "the share of padding")
    yield from loader_changes(now, parts, space)


def loader_changes(now: Settings, breakdown: StepBreakdown, space: SearchSpace) -> Iterator[KnobChange]:
    """As many workers as the data wait calls for, then prefetching, persistent workers and pinned memory."""
    wait, reason = gain_without(breakdown.data_wait), "the wait for data"
    for count in _more_workers(now, breakdown, space):
        yield KnobChange(WORKERS, _with_workers(count, now, space), wait, reason)
    if now.dataloader_num_workers > 0:
        ready = now.dataloader_prefetch_factor or 2  # PyTorch's default
        for value in _other_values(PREFETCH, now, space):
            if isinstance(value, int) and value > ready:
                yield KnobChange(PREFETCH, {PREFETCH: value}, wait, reason)
                break
        if not now.dataloader_persistent_workers and True in _other_values(PERSISTENT, now, space):
            yield KnobChange(PERSISTENT, {PERSISTENT: True}, wait, reason)
    if not now.dataloader_pin_memory and True in _other_values(PIN, now, space):
        yield KnobChange(PIN, {PIN: True}, wait, reason)
    # Workers and training compete for cores without a GPU, or when there is a worker for every core.
    smaller = [count for count in _counts(now, space) if count < now.dataloader_num_workers]
    crowded = space.cores is not None and now.dataloader_num_workers >= space.cores
    if smaller and (crowded or not space.on_gpu):
        change = _with_workers(smaller[-1], now, space)
        yield KnobChange(WORKERS, change, FEWER_WORKERS.value, "workers use cores of the training process")


def _more_workers(now: Settings, breakdown: StepBreakdown, space: SearchSpace) -> tuple[int, ...]:
    larger = [count for count in _counts(now, space) if count > now.dataloader_num_workers]
    wait = breakdown.data_wait
    if not larger or wait is None:
        return tuple(larger[:1])
    # The fewest workers that hide the loading behind the computing. Without workers, the wait is the loading itself;
    # n workers that still leave a wait spend the whole step loading.
    loading = wait if now.dataloader_num_workers == 0 else float(now.dataloader_num_workers)
    needed = math.ceil(WORKER_MARGIN * loading / max(1 - wait, 0.01))
    enough = [count for count in larger if count >= needed]
    return tuple(enough[:1]) or (larger[-1],)


def _counts(now: Settings, space: SearchSpace) -> list[int]:
    return sorted(value for value in _other_values(WORKERS, now, space) if isinstance(value, int))


def _with_workers(count: int, now: Settings, space: SearchSpace) -> dict[str, Value]:
    # Without workers, prefetching and persistence are invalid; with workers, keep them between epochs.
    change: dict[str, Value] = {WORKERS: count}
    if count == 0:
        return {**change, PREFETCH: None, PERSISTENT: False}
    if not now.dataloader_persistent_workers and True in _other_values(PERSISTENT, now, space):
        change[PERSISTENT] = True
    return change


def _other_values(name: str, now: Settings, space: SearchSpace) -> list[Value]:
    present = getattr(now, name)
    return [value for value in space.candidates.get(name, ()) if value != present]


def _compute_change(knob: str, value: Value, parts: StepBreakdown, factor: Factor) -> KnobChange:
    reason = f"computing, {factor.value:.3g} {factor.unit} at best ({factor.source})"
    return KnobChange(knob, {knob: value}, compute_bound(parts, factor), reason)
