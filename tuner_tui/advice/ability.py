"""What this box and this interpreter can run: yes, no, or not known. Advice never offers what is known to fail."""

from __future__ import annotations

from tuner_tui.advice.situation import Situation
from tuner_tui.settings.model import Precision

CAPABILITY_NEEDED = {"bf16": (8, 0), "tf32": (8, 0), "flash": (8, 0), "fp16": (5, 3)}


def has_package(situation: Situation, name: str) -> bool | None:
    """Whether the training interpreter has the package; None where the interpreter is not known."""
    if situation.interpreter is None:
        return None
    return name in situation.interpreter.packages


def has_gpu(situation: Situation) -> bool | None:
    """Whether the box has a GPU; None where the box is not known."""
    return None if situation.inventory is None else bool(situation.inventory.gpus)


def able(situation: Situation, name: str) -> bool | None:
    """Whether every card of the box can do `name` (bf16, tf32, flash, fp16): by capability, never by asking torch."""
    if situation.inventory is None:
        return None
    if not situation.inventory.gpus:
        return False
    needed = CAPABILITY_NEEDED[name]
    known = [gpu.capability for gpu in situation.inventory.gpus if gpu.capability is not None]
    return all(capability >= needed for capability in known) if known else None


def best_precision(situation: Situation) -> Precision:
    """The fastest precision the box is known to run: bf16, else fp16 on a GPU, else fp32."""
    if able(situation, "bf16"):
        return "bf16"
    return "fp16" if able(situation, "fp16") else "fp32"


def usable_cores(situation: Situation) -> int | None:
    """Whole cores this training may use, by affinity and cgroup quota."""
    return None if situation.inventory is None else situation.inventory.cpu.usable_cores
