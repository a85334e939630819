"""What does not depend on the batch: weights, gradients, optimizer states and copies, on one GPU or sharded."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct
from msgspec.structs import replace

from tuner_tui.memory.activation_memory import is_quantized
from tuner_tui.memory.model_shape import ModelShape, loaded_shape
from tuner_tui.memory.parameter_counts import (
    LinearLayer,
    ParameterCounts,
    count_parameters,
    linear_layers,
    position_parameters,
)
from tuner_tui.memory.training_code import BUILT_IN, TrainingCode
from tuner_tui.settings.dialects.hf import BITSANDBYTES_OPTIMIZERS
from tuner_tui.settings.distributed import Sharding
from tuner_tui.settings.model import Settings

BYTES_8BIT, BYTES_4BIT = 1 + 4 / 256, 1 / 2 + 4 / 128
"""A number of a state with its share of an fp32 scale: one per 256 in 8 bits (bitsandbytes.optim, torchao.optim),
one per 128 in 4 bits (torchao.optim)."""
STATES_PER_PARAMETER: Mapping[str, int] = {
    "sgd": 0, "lomo": 0, "adafactor": 0, "lion": 1, "rmsprop": 1, "adagrad": 1, "ademamix": 3,
}  # fmt: skip
"""Values that an optimizer keeps for each parameter, by a part of its name; Adam and its relatives keep two. Adafactor
keeps a row and a column of each matrix, which is next to nothing."""


class OptimizerBytes(Struct, frozen=True):
    """Bytes per trained parameter: `kept` between steps, `temporary` for all at once within a step.

    `largest` is temporary memory for one tensor at a time, so it counts for the largest tensor only.
    """

    kept: float
    temporary: float = 0.0
    largest: float = 0.0


def optimizer_bytes(name: str, together: bool, weight_bytes: int) -> OptimizerBytes:
    """The bytes of optimizer `name` of TrainingArguments; `together` (foreach): all tensors at once, as on a GPU."""
    states = next((count for part, count in STATES_PER_PARAMETER.items() if part in name), 2)
    if "8bit" in name:
        return OptimizerBytes(states * BYTES_8BIT)
    if "4bit" in name:
        return OptimizerBytes(states * BYTES_4BIT)
    if name == "adafactor":
        return OptimizerBytes(0.0, largest=2 * 4.0)
    if name in BITSANDBYTES_OPTIMIZERS:  # states in fp32, updated in place by one kernel for each tensor
        return OptimizerBytes(states * 4.0)
    if not states or name in ("adamw_torch_fused", "adamw_anyprecision"):
        return OptimizerBytes(states * weight_bytes)
    # With foreach, `_multi_tensor_adam` (torch/optim/adam.py) makes one intermediate of the size of the weights, the
    # square roots of all second moments. On a CPU `_single_tensor_adam` makes them and the update tensor by tensor.
    if together:
        return OptimizerBytes(states * weight_bytes, temporary=weight_bytes)
    return OptimizerBytes(states * weight_bytes, largest=2 * weight_bytes)


def embedding_states_bytes(name: str, embedding: int) -> float:
    """What the states of `embedding` trained embedding weights take more than others.

    Trainer keeps them in fp32 under an 8-bit optimizer of bitsandbytes (`create_optimizer`).
    """
    if name not in BITSANDBYTES_OPTIMIZERS or "8bit" not in name:
        return 0.0
    in_8_bits = optimizer_bytes(name, True, 4).kept
    return embedding * (4 * in_8_bits / BYTES_8BIT - in_8_bits)


class FixedSizes(Struct, frozen=True):
    """The fixed sizes of a training in bytes.

    `copies` are the 16-bit copies of weights that backward needs, `block_copies` those of one block and the head,
    `cached` those of trainable weights, which autocast keeps to its end. `accumulated` gradients persist between micro
    batches, `buckets` are DDP's second copy of them. `word_matrix` is the gradient of a language model's last layer,
    which comes first. `norms` is what DoRA needs for the weight norms of the widest layer: a unit matrix of its inputs,
    and the low-rank product twice. `earlier` are the gradients that exist when the backward pass reaches the first
    block. `summed` is memory of the first GPU at the end of DataParallel's backward pass, where the sum of all
    gradients exists next to its own. `dequantized` is the largest quantized matrix in 16 bit, as it computes.
    `step_copies` are the gradients in fp32 that DeepSpeed's optimizer step makes, `gathered` the whole weights that a
    process holds for a time where they are divided.
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
    step_copies: float = 0.0
    gathered: float = 0.0

    @property
    def before_a_sample(self) -> float:
        """Bytes that do not depend on the batch: weights, gradients and optimizer states."""
        return self.weights + self.gradients + self.states


def fixed_sizes(shape: ModelShape, settings: Settings, processes: int = 1, code: TrainingCode = BUILT_IN) -> FixedSizes:
    shape = loaded_shape(shape, settings)
    full, mixed = settings.peft_method == "none", settings.precision != "fp32"
    numbers, whole = count_parameters(shape, settings, code.adapted), shape.vocab * shape.hidden * code.whole_layers
    if not full:
        numbers = replace(numbers, total=numbers.total + whole, trainable=numbers.trainable + whole)
    each, trained = shape.weight_bytes, trained_bytes(shape, settings, code)
    gradients = float(numbers.trainable * trained)
    casts, adapters_cast = mixed and each == 4, mixed and trained == 4
    block_copies = float(2 * (casts * numbers.layer_linear + adapters_cast * numbers.adapter))
    quantized = is_quantized(shape, settings)
    wide_head = casts or (mixed and quantized and code.upcasts)
    head = 2.0 * shape.vocab * shape.hidden if wide_head and shape.language_model else 0.0
    if quantized:  # each layer is dequantized when it computes, in forward and backward
        block_copies = 2.0 * numbers.adapter * adapters_cast
    layers = linear_layers(shape)
    dequantized = 2.0 * max(layer.weights for layer in layers) if quantized else 0.0
    copies = shape.layers * block_copies + head
    norms = 4.0 * max(layer.inputs * (layer.inputs + 2 * layer.outputs) for layer in layers)
    # The gradients of what comes before the first block come last; a tied matrix already has one.
    first = position_parameters(shape) + (0 if shape.language_model and shape.tied else numbers.embedding)
    return FixedSizes(
        weights=weight_bytes(shape, settings, numbers, code),
        gradients=gradients,
        states=numbers.trainable * optimizer_bytes(settings.optim, True, trained).kept
        + (embedding_states_bytes(settings.optim, numbers.embedding) if full else 0.0),
        copies=copies,
        block_copies=block_copies + head,
        cached=copies if full else (2.0 * numbers.trainable if adapters_cast else 0.0),
        buckets=code.buffer_bytes + (gradients if processes > 1 else 0.0),
        accumulated=gradients if settings.gradient_accumulation_steps > 1 else 0.0,
        word_matrix=float(shape.vocab * shape.hidden * each) if full and shape.language_model else 0.0,
        norms=norms if settings.peft_method == "dora" else 0.0,
        dequantized=dequantized,
        earlier=trained * float(numbers.trainable - numbers.layer_trainable - (first if full else 0)),
        numbers=numbers,
    )


LIVE_NUMBERS = 1_000_000_000
"""So many weights ZeRO 3 gathers at most (`stage3_max_live_parameters`; the default, and so in most files). It holds as
much again, in gaps of the allocator (fitted to published peaks)."""


ZERO_BUCKET_BYTES = 8e8
"""Two buckets of gradients of 2e8 numbers in 16 bit (`ipg_buffer`; the size is that of most files)."""


def shard(sizes: FixedSizes, sharding: Sharding, processes: int, shape: ModelShape, settings: Settings) -> FixedSizes:
    """The sizes of one of `processes` among which the state of a training is divided.

    Read in deepspeed/runtime/zero (`stage_1_and_2.py`, `stage3.py`) and torch/distributed/fsdp/_fully_shard; FSDP keeps
    embedding and output layer whole through forward and backward, and next to the block that computes the following.
    """
    stage, zero, on_host = sharding.stage or 0, sharding.by_deepspeed, sharding.offloads_optimizer
    numbers, compute = sizes.numbers, min(shape.weight_bytes, 4.0 if settings.precision == "fp32" else 2.0)
    ends = shape.vocab * shape.hidden * (1 if shape.tied else 2) if shape.language_model else numbers.embedding
    block = (numbers.total - ends) / shape.layers
    trained_ends, trained_block = (ends, block) if settings.peft_method == "none" else (0.0, numbers.adapter)
    gathered = 0.0
    if stage >= 3:  # of a quantized model its packed numbers
        each = min(compute, sizes.weights / numbers.total)
        gathered = each * (2 * min(numbers.total, LIVE_NUMBERS) if zero else ends + 2 * block)
    gradients, states = sizes.gradients, sizes.states
    if zero and compute == 2:  # an fp32 copy of what trains, with states of its size; gradients in 16 bit
        gradients, states = (
            numbers.trainable * size for size in (2.0, 4 + optimizer_bytes(settings.optim, True, 4).kept)
        )
    share = 1 / processes if stage >= 1 else 1.0
    gradients = gradients * (share if stage >= 2 else 1.0)
    # FSDP divides them in the last micro batch of a step only (`no_sync`, `set_requires_gradient_sync`).
    whole = compute * numbers.trainable if settings.gradient_accumulation_steps > 1 and not zero else 0.0
    stepping = 0 if on_host else round(numbers.trainable * share)
    return replace(
        sizes,
        weights=0.0 if sharding.offloads_weights else sizes.weights * (share if stage >= 3 else 1.0),
        gradients=0.0 if on_host and stage >= 2 else gradients,
        states=0.0 if on_host else states * share,
        gathered=gathered,
        copies=gathered,
        block_copies=gathered,
        cached=gathered,
        buckets=ZERO_BUCKET_BYTES if zero else 2 * compute * trained_block,
        accumulated=max(whole, gradients if sizes.accumulated else 0.0),
        word_matrix=0.0 if zero else compute * trained_ends,
        earlier=gradients + (0.0 if zero else compute * trained_ends),
        numbers=replace(numbers, trainable=stepping),
        step_copies=4.0 * min(stepping, LIVE_NUMBERS) if zero and compute == 2 else 0.0,
    )


OFFLOAD_BUFFERS = 1.5
"""What DeepSpeed's own estimators multiply offloaded memory by (`additional_buffer_factor`)."""


def offloaded_bytes(shape: ModelShape, settings: Settings, sharding: Sharding) -> float:
    """What all processes of a training together keep in the memory of their hosts, without buffers.

    DeepSpeed keeps an fp32 copy, fp32 gradients and optimizer states of what trains (`estimate_zero3_model_states_…`:
    16 bytes a parameter with AdamW, 18 with the weights), FSDP the training's own.
    """
    sizes = fixed_sizes(shape, settings)
    trainable, weights, states = sizes.numbers.trainable, sizes.weights, sizes.gradients + sizes.states
    if sharding.by_deepspeed:
        states = trainable * (4.0 + 4.0 + optimizer_bytes(settings.optim, True, 4).kept)
        weights = min(weights, sizes.numbers.total * (4.0 if settings.precision == "fp32" else 2.0))
    return states * sharding.offloads_optimizer + weights * sharding.offloads_weights


ABSMAX_BLOCK, NESTED_BLOCK = 64, 256
"""Numbers that share a scale (absmax): of 4-bit weights, and of quantized scales (bitsandbytes.functional)."""


def quantized_bytes(settings: Settings, numbers: int, rows: int) -> float:
    """Bytes of weights as bitsandbytes keeps them: int8 with an fp32 scale per row, 4 bits with one per 64 numbers,
    which double quantization keeps in 8 bits, with an fp32 scale per 256 of those.
    """
    if settings.quantization == "int8":
        return numbers + 4.0 * rows
    scale = 1 + 4 / NESTED_BLOCK if settings.bnb_4bit_use_double_quant else 4.0
    return numbers / 2 + numbers / ABSMAX_BLOCK * scale


def weight_bytes(
    shape: ModelShape, settings: Settings, numbers: ParameterCounts, code: TrainingCode = BUILT_IN
) -> float:
    """Bytes of all weights of the loaded `shape`; adapters and their heads train in fp32, whatever lies under them.

    The linear layers of the blocks are quantized; embeddings, norms, biases and the output layer stay.
    """
    if settings.peft_method == "none":
        return float(numbers.total * shape.weight_bytes)
    frozen, trained = numbers.total - numbers.trainable, numbers.trainable * trained_bytes(shape, settings, code)
    if not is_quantized(shape, settings):
        return float(frozen * shape.weight_bytes + trained)
    layers = [*linear_layers(shape)] * shape.layers
    if code.quantizes_output and not shape.tied:
        layers.append(LinearLayer(shape.hidden, shape.vocab, bias=False))
    weights, rows = sum(layer.weights for layer in layers), sum(layer.outputs for layer in layers)
    if shape.quantized_bytes is None:
        quantized = quantized_bytes(settings, weights, rows)
    else:
        quantized = weights * shape.quantized_bytes
    each = 4 if code.upcasts else shape.weight_bytes
    return quantized + (frozen - weights + code.more_embeddings * numbers.embedding) * each + trained


def trained_bytes(shape: ModelShape, settings: Settings, code: TrainingCode = BUILT_IN) -> int:
    """Bytes of a number that trains: all weights as loaded, adapters as the code has them."""
    return shape.weight_bytes if settings.peft_method == "none" else code.adapter_bytes
