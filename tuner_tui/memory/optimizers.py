"""What each optimizer keeps between steps and takes within one, in bytes a trained number."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class OptimizerBytes:
    """Bytes a trained number of `weight_bytes`: `kept` between steps, `temporary` for all at once within a step.

    `largest` is what the step takes for one tensor at a time, to be counted for the largest one only.
    """

    kept: float
    temporary: float = 0.0
    largest: float = 0.0


BLOCKWISE_8BIT = 1 + 4 / 256
"""A state of bitsandbytes: a byte a number and an fp32 scale every 256 (blocksize in bitsandbytes.optim)."""


def optimizer_bytes(name: str, together: bool, weight_bytes: int) -> OptimizerBytes:
    """The optimizer `name` of TrainingArguments; `together`: it works on all tensors at once, as on a GPU.

    `adamw_torch` then (foreach) makes one intermediate of the size of the weights
    (torch/optim/adam.py, `_multi_tensor_adam`: the square roots of the second moments); on a CPU it goes tensor by
    tensor. Fused kernels make none.
    """
    if name in ("adamw_torch_fused", "adamw_anyprecision"):
        return OptimizerBytes(2 * weight_bytes)
    if "8bit" in name:
        states = 1 if "lion" in name or "rmsprop" in name else 2
        return OptimizerBytes(states * BLOCKWISE_8BIT)
    if "4bit" in name:
        return OptimizerBytes(1.0 + 4 / 128)
    if name == "sgd":
        return OptimizerBytes(0.0)
    if name == "adafactor":
        return OptimizerBytes(0.0, largest=2 * 4.0)
    if name in ("lion_32bit", "paged_lion_32bit", "rmsprop_bnb", "rmsprop_bnb_32bit"):
        return OptimizerBytes(4.0)
    if name.startswith("paged_") or name in ("ademamix", "lomo", "adalomo"):
        return OptimizerBytes({"ademamix": 12.0, "lomo": 0.0, "adalomo": 0.0}.get(name, 8.0))
    if together:
        return OptimizerBytes(2 * weight_bytes, temporary=weight_bytes)
    return OptimizerBytes(2 * weight_bytes, largest=2 * weight_bytes)
