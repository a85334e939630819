"""The setting that removes each kind of memory, and how much the peak falls by it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from tuner_tui.advice.recommend.memory_estimator import JobMemoryEstimator
from tuner_tui.settings.fields import Value
from tuner_tui.settings.model import Settings

RECOMPUTED = frozenset({"attention", "MLP", "normalisation", "residual stream and other"})
"""Kinds of activations that gradient checkpointing computes again instead of keeping."""


@dataclass(frozen=True, slots=True)
class MemoryRemedy:
    """The change that removes a kind of memory, and the bytes by which the whole peak falls; None if unknown."""

    change: Mapping[str, Value]
    saved_bytes: int | None


def memory_remedies(estimator: JobMemoryEstimator, settings: Settings, kinds: Iterable[str]) -> dict[str, MemoryRemedy]:
    """The remedy of each kind that has one with these settings.

    Savings are by the closed form; a change that saves nothing is no remedy.
    """
    before = estimator.closed_form(settings)
    found = {}
    for kind in kinds:
        change = _change(kind, settings)
        if change is not None:
            after = estimator.closed_form(settings.changed(**change))
            saved = None if before is None or after is None else before.total_bytes - after.total_bytes
            if saved is None or saved > 0:
                found[kind] = MemoryRemedy(change, saved)
    return found


def _change(kind: str, settings: Settings) -> dict[str, Value] | None:
    full = settings.peft_method == "none"
    if kind == "attention probabilities" and settings.attn_implementation == "eager":
        return {"attn_implementation": "sdpa"}
    if kind in (*RECOMPUTED, "attention probabilities") and not settings.gradient_checkpointing:
        return {"gradient_checkpointing": True}
    if kind in ("optimizer states", "temporary in the optimizer step") and "8bit" not in settings.optim:
        return {"optim": "adamw_bnb_8bit"}
    if kind == "gradients" and full:
        return {"peft_method": "lora"}
    if kind in ("weights", "16-bit copies of weights") and not full and settings.quantization == "none":
        return {"quantization": "nf4"}
    if kind == "logits and loss" and settings.per_device_train_batch_size > 1:
        half = settings.per_device_train_batch_size // 2
        return {
            "per_device_train_batch_size": half,
            "gradient_accumulation_steps": settings.effective_batch() // half,
        }
    return None
