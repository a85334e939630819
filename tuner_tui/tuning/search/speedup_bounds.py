"""Upper bounds on the speed-up of each knob, from where the time of a step goes."""

from __future__ import annotations

from dataclasses import dataclass

from tuner_tui.advice.thresholds import JUDGEMENT, NOTES_3090, NOTES_T4
from tuner_tui.tuning.trial import StepBreakdown


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


def padding_bound(breakdown: StepBreakdown) -> float | None:
    """Bound of grouping samples by length: forward and backward compute no padding."""
    return None if breakdown.padding is None else gain_without(breakdown.padding * compute_share(breakdown))


def compute_bound(breakdown: StepBreakdown, factor: Factor) -> float | None:
    """Bound of a change that computes forward and backward `factor` times as fast."""
    return gain_without(compute_share(breakdown) * (1 - 1 / factor.value))
