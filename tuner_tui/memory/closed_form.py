"""Closed form of a training step's memory: one straight line in the micro batch per phase that may set the peak.

Activations and what does not depend on the batch are computed elsewhere. In the backward pass activations go as
gradients come, block by block: it peaks at its beginning or at its end.
"""

from __future__ import annotations

from msgspec import Struct
from msgspec.structs import replace

from tuner_tui.memory.activation_memory import ActivationBytes, activation_bytes
from tuner_tui.memory.device import Device
from tuner_tui.memory.fixed_memory import FixedSizes, fixed_sizes, optimizer_bytes, shard, trained_bytes
from tuner_tui.memory.model_shape import ModelShape, loaded_shape
from tuner_tui.memory.training_code import BUILT_IN, TrainingCode
from tuner_tui.settings.distributed import Sharding
from tuner_tui.settings.model import Settings


class MemoryPhase(Struct, frozen=True):
    """The tensors in one phase of a step: fixed bytes by part, and activation bytes per sample (`sample`)."""

    name: str
    weights: float
    gradients: float
    optimizer: float
    temporary: float
    sample: float

    @property
    def base_bytes(self) -> float:
        """Bytes that do not depend on the batch."""
        return self.weights + self.gradients + self.optimizer + self.temporary

    def bytes_at(self, batch: int) -> float:
        return self.base_bytes + self.sample * batch


def memory_phases(
    shape: ModelShape,
    settings: Settings,
    device: Device,
    processes: int = 1,
    foreach: bool | None = None,
    code: TrainingCode = BUILT_IN,
    sharding: Sharding | None = None,
) -> tuple[MemoryPhase, ...]:
    """The moments of a step after the first one, when gradients are set to None and optimizer states exist.

    `foreach` says whether the optimizer works on all tensors at once; None: as torch chooses on `device`. The state of
    the training is divided among the `processes` as `sharding` says, whose stage must be known.
    """
    computed = settings
    if sharding is not None and settings.precision != "fp32":
        # Both compute in 16 bit throughout. FSDP keeps its part of what trains in fp32, DeepSpeed a copy of it.
        computed = settings.changed(weights_dtype="bf16")
        is_wide = not sharding.by_deepspeed and settings.peft_method == "none"
        loaded = settings.changed(weights_dtype="fp32") if is_wide else settings
        settings = computed if sharding.by_deepspeed else loaded
    shape = loaded_shape(replace(shape, tied=False) if code.unties else shape, settings)
    acts, sizes = activation_bytes(shape, computed, device, code), fixed_sizes(shape, settings, processes, code)
    sizes = replace(sizes, summed=sizes.gradients if device.gpu_count > 1 else 0.0)
    if sharding is not None:
        sizes = shard(sizes, sharding, processes, shape, settings)
    together = device.on_gpu if foreach is None else foreach
    temporary = sizes.norms + sizes.dequantized + acts.evaluation * settings.per_device_eval_batch_size
    return (
        *_forward_and_backward(shape, settings, acts, sizes),
        _optimizer_step(shape, settings, sizes, together, code),
        *evaluation_phases(settings, sizes.weights + sizes.cached, sizes.buckets, sizes.states, temporary),
    )


def evaluation_phases(
    settings: Settings, weights: float, gradients: float, states: float, temporary: float
) -> tuple[MemoryPhase, ...]:
    """The evaluation, which no other batch than its own changes; nothing for a training without one."""
    if settings.eval_strategy == "no":
        return ()
    name = f"evaluation, eval batch {settings.per_device_eval_batch_size}"
    return (MemoryPhase(name, weights, gradients, states, temporary, 0),)


def _forward_and_backward(
    shape: ModelShape, settings: Settings, acts: ActivationBytes, sizes: FixedSizes
) -> tuple[MemoryPhase, ...]:
    checkpointed = settings.gradient_checkpointing
    kept = shape.layers * (acts.checkpoint if checkpointed else acts.block) + acts.ends
    copies = sizes.block_copies if checkpointed else sizes.copies
    before = max(sizes.cached, sizes.block_copies) if checkpointed else sizes.copies
    again = acts.block if checkpointed else 0.0
    tied = 2 * sizes.word_matrix if shape.tied else 0.0  # it gets two gradients and their sum

    def phase(name: str, copied: float, gradients: float, temporary: float, sample: float) -> MemoryPhase:
        held = max(sizes.accumulated, gradients) + sizes.buckets
        return MemoryPhase(name, sizes.weights + copied, held, sizes.states, temporary, sample)

    return (
        phase("forward", before, 0, sizes.norms + sizes.dequantized, kept + again + acts.held),
        phase("loss", before, 0, 0, kept + acts.loss_forward + acts.held),
        phase("loss", copies, 0, 0, kept + acts.loss_backward),
        phase("backward", copies, sizes.word_matrix, sizes.dequantized, kept + again + acts.block_extra),
        phase(
            "end of backward",
            sizes.gathered,
            sizes.earlier,
            sizes.dequantized,
            acts.ends + acts.block + acts.block_extra,
        ),
        phase("end of backward", sizes.gathered, sizes.gradients, max(tied, sizes.summed), acts.checkpoint),
    )


def _optimizer_step(
    shape: ModelShape, settings: Settings, sizes: FixedSizes, together: bool, code: TrainingCode
) -> MemoryPhase:
    each = optimizer_bytes(settings.optim, together, trained_bytes(shape, settings, code))
    numbers, largest = sizes.numbers, settings.lora_r * shape.intermediate
    if settings.peft_method == "none":
        largest = max(numbers.embedding, shape.hidden * shape.intermediate)
    temporary = numbers.trainable * each.temporary + largest * each.largest + sizes.step_copies
    return MemoryPhase("optimizer step", sizes.weights, sizes.gradients + sizes.buckets, sizes.states, temporary, 0)
