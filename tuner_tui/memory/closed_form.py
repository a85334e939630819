"""Closed form of a training step's memory: one straight line in the micro batch per phase that may set the peak.

In the backward pass activations go as gradients come, block by block: it peaks at its beginning or at its end.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from tuner_tui.memory.activations import ActivationBytes, activation_bytes
from tuner_tui.memory.device import Device
from tuner_tui.memory.model_shape import (
    ModelShape,
    ParameterCounts,
    count_parameters,
    linear_layers,
    loaded_shape,
    position_parameters,
)
from tuner_tui.settings.model import Settings


@dataclass(frozen=True, slots=True)
class OptimizerBytes:
    """Bytes per trained parameter: `kept` between steps, `temporary` for all at once within a step.

    `largest` is temporary memory for one tensor at a time, so it counts for the largest tensor only.
    """

    kept: float
    temporary: float = 0.0
    largest: float = 0.0


BLOCKWISE_8BIT = 1 + 4 / 256
"""A state of bitsandbytes: one byte per number and an fp32 scale per 256 (blocksize in bitsandbytes.optim)."""


def optimizer_bytes(name: str, together: bool, weight_bytes: int) -> OptimizerBytes:
    """The bytes of optimizer `name` of TrainingArguments; `together` (foreach): all tensors at once, as on a GPU.

    `adamw_torch` then makes one intermediate of the size of the weights
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


@dataclass(frozen=True, slots=True)
class MemoryPhase:
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
        """Bytes at micro batch `batch`."""
        return self.base_bytes + self.sample * batch


@dataclass(frozen=True, slots=True)
class FixedSizes:
    """The fixed sizes of a training in bytes.

    `copies` are the 16-bit copies of weights that backward needs, `block_copies` those of one block and the head,
    `cached` those of trainable weights, which autocast keeps to its end. `accumulated` gradients persist between micro
    batches, `buckets` are DDP's second copy of them. `word_matrix` is the gradient of a language model's last layer,
    which comes first. `norms` is what DoRA needs for the weight norms of the widest layer: a unit matrix of its inputs,
    and the low-rank product twice. `earlier` are the gradients that exist when the backward pass reaches the first
    block. `summed` is memory of the first card at the end of DataParallel's backward pass, where the sum of all
    gradients exists next to its own. `dequantized` is the largest quantized matrix in 16 bit, as it computes.
    """

    weights: float
    gradients: float
    states: float
    copies: float
    block_copies: float
    cached: float
    buckets: float
    accumulated: float
    word_matrix: float
    norms: float
    earlier: float
    numbers: ParameterCounts
    summed: float = 0.0
    dequantized: float = 0.0

    @property
    def before_a_sample(self) -> float:
        """Bytes that do not depend on the batch: weights, gradients and optimizer states."""
        return self.weights + self.gradients + self.states


def memory_phases(
    shape: ModelShape, settings: Settings, device: Device, processes: int = 1, foreach: bool | None = None
) -> tuple[MemoryPhase, ...]:
    """The moments of a step after the first one, when gradients are set to None and optimizer states exist.

    `foreach` says whether the optimizer works on all tensors at once; None: as torch chooses on `device`.
    """
    shape = loaded_shape(shape, settings)
    acts, sizes = (
        gather_logits(activation_bytes(shape, settings, device), device),
        fixed_sizes(shape, settings, processes),
    )
    sizes = replace(sizes, summed=sizes.gradients if device.cards > 1 else 0.0)
    together = device.on_gpu if foreach is None else foreach
    return (
        *_forward_and_backward(shape, settings, acts, sizes),
        _optimizer_step(shape, settings, sizes, together),
        MemoryPhase(
            "evaluation", sizes.weights + sizes.cached, sizes.buckets, sizes.states,
            sizes.norms + sizes.dequantized + acts.evaluation * settings.per_device_eval_batch_size, 0,
        ),
    )  # fmt: skip


def gather_logits(acts: ActivationBytes, device: Device) -> ActivationBytes:
    """Adds the logits of all cards, which the first one gathers in fp32 (torch/nn/parallel/data_parallel.py)."""
    if device.cards == 1:
        return acts
    logits = acts.logits * 4 * device.cards
    return replace(acts, loss_forward=acts.loss_forward + logits, evaluation=acts.evaluation + logits)


def fixed_sizes(shape: ModelShape, settings: Settings, processes: int = 1) -> FixedSizes:
    """The fixed sizes of one of `processes`."""
    shape = loaded_shape(shape, settings)
    numbers = count_parameters(shape, settings)
    full, mixed = settings.peft_method == "none", settings.precision != "fp32"
    each, trained = shape.weight_bytes, trained_bytes(shape, settings)
    gradients = float(numbers.trainable * trained)
    casts, adapters_cast = mixed and each == 4, mixed and trained == 4
    block_copies = float(2 * (casts * numbers.layer_linear + adapters_cast * numbers.adapter))
    head = 2.0 * shape.vocab * shape.hidden if casts and shape.language_model else 0.0
    if settings.quantization != "none":  # each layer is dequantized when it computes, in forward and backward
        block_copies = 2.0 * numbers.adapter
    dequantized = 0.0 if settings.quantization == "none" else 2.0 * max(one.weights for one in linear_layers(shape))
    copies = shape.layers * block_copies + head
    return FixedSizes(
        weights=weight_bytes(shape, settings, numbers),
        gradients=gradients,
        states=numbers.trainable * optimizer_bytes(settings.optim, True, trained).kept,
        copies=copies,
        block_copies=block_copies + head,
        cached=copies if full else (2.0 * numbers.trainable if adapters_cast else 0.0),
        buckets=gradients if processes > 1 else 0.0,
        accumulated=gradients if settings.gradient_accumulation_steps > 1 else 0.0,
        word_matrix=float(shape.vocab * shape.hidden * each) if full and shape.language_model else 0.0,
        norms=_dora_norm_bytes(shape) if settings.peft_method == "dora" else 0.0,
        dequantized=dequantized,
        earlier=trained
        * float(numbers.trainable - numbers.layer_trainable - (_pre_block_parameters(shape, numbers) if full else 0)),
        numbers=numbers,
    )


ABSMAX_BLOCK, NESTED_BLOCK = 64, 256
"""Numbers that share a scale (absmax): of 4-bit weights, and of quantized scales (bitsandbytes.functional)."""


def quantized_bytes(settings: Settings, numbers: int, rows: int) -> float:
    """Bytes of quantized weight matrices with their scales, as bitsandbytes keeps them.

    int8 has an fp32 scale per row. 4-bit weights have one per 64 numbers, which double quantization keeps in 8 bits,
    with an fp32 scale per 256 of those.
    """
    if settings.quantization == "int8":
        return numbers + 4.0 * rows
    scale = 1 + 4 / NESTED_BLOCK if settings.bnb_4bit_use_double_quant else 4.0
    return numbers / 2 + numbers / ABSMAX_BLOCK * scale


def weight_bytes(shape: ModelShape, settings: Settings, numbers: ParameterCounts) -> float:
    """Bytes of all weights of the loaded `shape`: adapters and their heads train in fp32, whatever lies under them.

    bitsandbytes quantizes the linear layers of the blocks; embeddings, norms, biases and the output layer stay.
    """
    if settings.peft_method == "none":
        return float(numbers.total * shape.weight_bytes)
    frozen = float((numbers.total - numbers.trainable) * shape.weight_bytes)
    if settings.quantization != "none":
        layers = linear_layers(shape)
        weights, rows = sum(one.weights for one in layers), sum(one.outputs for one in layers)
        frozen += shape.layers * (quantized_bytes(settings, weights, rows) - weights * shape.weight_bytes)
    return frozen + numbers.trainable * trained_bytes(shape, settings)


def trained_bytes(shape: ModelShape, settings: Settings) -> int:
    """Bytes of a number that trains: adapters are fp32, all weights as loaded."""
    return shape.weight_bytes if settings.peft_method == "none" else 4


def _pre_block_parameters(shape: ModelShape, numbers: ParameterCounts) -> int:
    """Parameters before the first block, whose gradients come last; a tied matrix already has one."""
    shared = shape.language_model and shape.tied
    return position_parameters(shape) + (0 if shared else numbers.embedding)


def _dora_norm_bytes(shape: ModelShape) -> float:
    return 4.0 * max(one.inputs * (one.inputs + 2 * one.outputs) for one in linear_layers(shape))


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
        phase("forward", before, 0, sizes.norms + sizes.dequantized, kept + again),
        phase("loss", before, 0, 0, kept + acts.loss_forward),
        phase("loss", copies, 0, 0, kept + acts.loss_backward),
        phase("backward", copies, sizes.word_matrix, sizes.dequantized, kept + again + acts.block_extra),
        phase("end of backward", 0, sizes.earlier, sizes.dequantized, acts.ends + acts.block + acts.block_extra),
        phase("end of backward", 0, sizes.gradients, max(tied, sizes.summed), acts.checkpoint),
    )


def _optimizer_step(shape: ModelShape, settings: Settings, sizes: FixedSizes, together: bool) -> MemoryPhase:
    each = optimizer_bytes(settings.optim, together, trained_bytes(shape, settings))
    numbers = sizes.numbers
    full = settings.peft_method == "none"
    largest = (
        max(numbers.embedding, shape.hidden * shape.intermediate) if full else settings.lora_r * shape.intermediate
    )
    temporary = numbers.trainable * each.temporary + largest * each.largest
    return MemoryPhase("optimizer step", sizes.weights, sizes.gradients + sizes.buckets, sizes.states, temporary, 0)
