"""What the GPUs and the interpreter of a situation support: True, False, or None where it is unknown."""

from __future__ import annotations

from tuner_tui.advice.recommend.target import visible_cards
from tuner_tui.advice.situation import Situation
from tuner_tui.hardware.gpu.capabilities import MINIMUM_CAPABILITY
from tuner_tui.settings.model import Precision


def has_package(situation: Situation, name: str) -> bool | None:
    """Whether the training interpreter has the package; None where the interpreter is not known."""
    if situation.interpreter is None:
        return None
    return name in situation.interpreter.packages


def has_gpu(situation: Situation) -> bool | None:
    """Whether the training sees a GPU; None where the box is not known."""
    return None if situation.inventory is None else bool(visible_cards(situation.inventory))


def supports(situation: Situation, name: str) -> bool | None:
    """Whether every card of the training can do `name` (bf16, tf32, flash, fp16): by capability, not by asking torch.

    None where the box, or a card's capability, is not known.
    """
    if situation.inventory is None:
        return None
    capabilities = [card.capability for card in visible_cards(situation.inventory)]
    if (
        any(capability is not None and capability < MINIMUM_CAPABILITY[name] for capability in capabilities)
        or not capabilities
    ):
        return False
    return None if None in capabilities else True


def best_precision(situation: Situation) -> Precision:
    """The fastest precision the box is known to run: bf16, else fp16 on a GPU, else fp32."""
    if supports(situation, "bf16"):
        return "bf16"
    return "fp16" if supports(situation, "fp16") else "fp32"


def usable_cores(situation: Situation) -> int | None:
    """Whole cores this training may use, by affinity and cgroup quota."""
    return None if situation.inventory is None else situation.inventory.cpu.usable_cores
