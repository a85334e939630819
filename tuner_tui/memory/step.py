"""The moments of a training step at which memory may peak, each a straight line in the micro batch."""

from __future__ import annotations

from dataclasses import dataclass

from tuner_tui.memory.activations import activations
from tuner_tui.memory.device import Device
from tuner_tui.memory.optimizers import optimizer_bytes
from tuner_tui.memory.parameters import count
from tuner_tui.memory.shapes import ModelShape
from tuner_tui.settings.model import Settings


@dataclass(frozen=True, slots=True)
class Moment:
    """What the tensors take at one moment: fixed bytes by part, and activations a sample."""

    name: str
    weights: float
    gradients: float
    optimizer: float
    temporary: float
    sample: float

    @property
    def base_bytes(self) -> float:
        """What does not depend on the batch."""
        return self.weights + self.gradients + self.optimizer + self.temporary

    def bytes_at(self, batch: int) -> float:
        """All of it at `batch`."""
        return self.base_bytes + self.sample * batch


def moments(shape: ModelShape, settings: Settings, device: Device, processes: int) -> tuple[Moment, ...]:
    """The moments of a step after the first one, when gradients are set to None and optimizer states exist."""
    numbers = count(shape, settings)
    acts = activations(shape, settings, device)
    each = optimizer_bytes(settings.optim, device, shape.weight_bytes)
    weights = numbers.total * shape.weight_bytes
    gradients = numbers.trainable * shape.weight_bytes * (2 if processes > 1 else 1)
    states = numbers.trainable * each.kept
    mixed = settings.precision != "fp32" and shape.weight_bytes == 4
    copies = float(shape.layers * numbers.layer_linear * 2 if mixed else 0)
    if settings.gradient_checkpointing:
        kept = shape.layers * acts.checkpoint + acts.ends
        copies = copies / shape.layers
    else:
        kept = shape.layers * acts.layer + acts.ends
    accumulated = gradients if settings.gradient_accumulation_steps > 1 else 0
    largest = max(numbers.embedding, numbers.layer)
    step = numbers.trainable * each.temporary + min(largest, numbers.trainable) * each.largest
    one_layer = (acts.layer if settings.gradient_checkpointing else 0) + acts.layer_extra
    return (
        Moment("loss", weights + copies, accumulated, states, 0, kept + acts.loss),
        Moment("backward", weights + copies, accumulated, states, 0, kept + one_layer),
        Moment("backward's end", weights, gradients, states, 0, acts.ends + acts.layer + acts.layer_extra),
        Moment("optimizer step", weights, gradients, states, step, 0),
    )
