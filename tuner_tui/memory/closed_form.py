"""Closed form of a training step's memory: one straight line in the micro batch per phase that may set the peak.

First the activations that a training keeps from forward for backward, in bytes per sample. They are counted tensor by
tensor from the models' code in Transformers 5.23 and what autograd saves for each operation (derivatives.yaml in
PyTorch). Under autocast the residual stream and what normalisations save stay in fp32; matrix products save 16-bit
copies, one for each linear layer that reads a tensor.

Then what does not depend on the batch: weights, gradients, optimizer states and copies. In the backward pass
activations go as gradients come, block by block: it peaks at its beginning or at its end.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path

from msgspec import Struct, convert
from msgspec.structs import replace

from tuner_tui.core.files import read_data_file
from tuner_tui.memory.device import Device
from tuner_tui.memory.model_shape import (
    LinearLayer,
    ModelShape,
    ParameterCounts,
    adapted_layers,
    block_widths,
    count_parameters,
    family_form,
    linear_layers,
    loaded_shape,
    position_parameters,
)
from tuner_tui.settings.dialects.hf import BITSANDBYTES_OPTIMIZERS
from tuner_tui.settings.distributed import Sharding
from tuner_tui.settings.model import Settings

CODE_FILE = Path(__file__).with_name("training_code.yaml")


class TrainingCode(Struct, frozen=True):
    """What code that trains does with memory beyond the settings: a row of training_code.yaml, which explains it."""

    logit_bytes: tuple[float, float] = (10, 12)
    adapter_bytes: int = 4
    upcasts: bool = False
    fused_gelu: bool = False
    adapted: tuple[str, ...] = ()
    buffer_bytes: float = 0.0
    keeps_inputs: bool = False
    holds_graph: bool = False
    unties: bool = False
    quantizes_output: bool = False
    more_embeddings: int = 0
    whole_layers: int = 0
    uncertainty: float = 0.1
    unknown: str = ""


BUILT_IN = TrainingCode()
FOUR_BITS = ("nf4", "fp4")


@cache
def training_code(name: str) -> TrainingCode:
    """The row of `training_code.yaml`; the built-in job's for a tool without one."""
    return convert(read_data_file(CODE_FILE).get(name, {}), TrainingCode)


def is_quantized(shape: ModelShape, settings: Settings) -> bool:
    """Whether the linear layers of the blocks are quantized under an adapter: by the settings, or as saved."""
    return settings.peft_method != "none" and (settings.quantization != "none" or shape.quantized_bytes is not None)


class NumberSizes(Struct, frozen=True):
    """Bytes per number in matrix products (`compute`), in the residual stream and in dropout masks.

    `casts`: autocast makes a 16-bit copy of each operand of a matrix product, weights included. `wide`: autocast runs
    powers and normalisations in fp32, as on a GPU, unlike on a CPU.
    """

    compute: int
    stream: int
    mask: int
    casts: bool
    wide: bool


def number_sizes(shape: ModelShape, settings: Settings, device: Device, code: TrainingCode = BUILT_IN) -> NumberSizes:
    """The number sizes of a training; autocast keeps weights in fp32 and computes in 16 bit."""
    mixed = settings.precision != "fp32"
    stream = 4 if code.upcasts and is_quantized(shape, settings) else shape.weight_bytes
    compute = 2 if mixed else stream
    casts = mixed and stream == 4
    return NumberSizes(
        compute=compute, stream=stream, mask=1 if device.on_gpu else compute, casts=casts, wide=casts and device.on_gpu
    )


class AttentionBytes(Struct, frozen=True):
    """Bytes per sample and block: kept for backward, and temporary ones of its backward pass and of an evaluation."""

    kept: float
    extra: float = 0.0
    evaluation: float = 0.0


def attention_bytes(
    shape: ModelShape, settings: Settings, device: Device, n: NumberSizes, tokens: int
) -> AttentionBytes:
    """What attention keeps: its scores, or the sums of a fused kernel; and the mask of padded texts."""
    scores = float(shape.heads * tokens * tokens)
    sums = shape.heads * tokens * 4.0
    # Keys and values are repeated for every head, where the kernel does not support grouped ones.
    repeated = 2.0 * (shape.heads - shape.kv_heads) * shape.head_dim * tokens * n.compute
    if shape.relative:
        # Keys and queries of all positions, repeated for each sample; the products with them, which `gather` keeps.
        positions = float(shape.positions or 0)
        products = 2 * shape.heads * tokens * positions * n.compute
        kept = scores * _eager_score_bytes(shape, n, device) + 2 * positions * shape.hidden * n.compute + products
        return AttentionBytes(kept, scores * 4 + products / 2, scores * 8 + products)
    if settings.attn_implementation == "eager":
        # ModernBERT's joint tensor of query, key and value is freed when the values are copied out of it.
        joint = 2.0 * tokens * shape.hidden * n.compute if shape.family == "modernbert" else 0.0
        return AttentionBytes(repeated + scores * _eager_score_bytes(shape, n, device) - joint, scores * 4, scores * 8)
    if settings.attn_implementation.startswith("flash"):
        return AttentionBytes(sums)
    if _uses_math_kernel(shape, settings, device):
        # Softmax, dropout's mask and result; in 16 bit all of it, and queries, keys and values, are cast to fp32.
        kept = scores * (3 if shape.attention_dropout else 1) * 4
        kept += 3 * (4 - n.compute) * tokens * shape.heads * shape.head_dim
        return AttentionBytes(repeated + kept, scores * 4, repeated + scores * 8)
    mask = 0.0 if shape.language_model else float(tokens * tokens * n.compute)
    return AttentionBytes(
        sums + mask + (0.0 if shape.language_model else repeated)
    )  # with a mask keys are repeated here too


def _eager_score_bytes(shape: ModelShape, n: NumberSizes, device: Device) -> int:
    """Bytes per score: the softmax, the operand of the product with the values, and the mask of dropout.

    Adding the attention mask turns 16-bit scores into fp32. BERT applies dropout before it casts, others after.
    """
    mixed = n.compute == 2
    softmax = 4 if mixed else n.compute
    if not shape.attention_dropout:
        return softmax + (n.compute if mixed else 0)
    late = shape.family == "bert" and not device.on_gpu
    return softmax + n.compute + (softmax if late else n.mask)


def _uses_math_kernel(shape: ModelShape, settings: Settings, device: Device) -> bool:
    """True when torch falls back to the math kernel, which keeps the scores.

    On a CPU the fused kernel does not support dropout. On a GPU only flash attention supports grouped queries, in 16
    bit from Ampere on (`enable_gqa` in the documentation of `scaled_dot_product_attention`; not measured). Without a
    mask, Transformers passes them grouped (`use_gqa_in_sdpa` in integrations/sdpa_attention.py).
    """
    if not device.on_gpu:
        return shape.attention_dropout > 0
    grouped = shape.kv_heads < shape.heads and shape.language_model
    in_fp32 = settings.precision == "fp32" and shape.weight_bytes == 4
    return grouped and (in_fp32 or not device.flash)


def block_bytes(shape: ModelShape, settings: Settings, numerics: NumberSizes, code: TrainingCode = BUILT_IN) -> float:
    """Bytes kept by one block per token; adapters add their inputs and outputs."""
    adapted = settings.peft_method != "none"
    copied = adapter_copy_bytes(settings, numerics, code)
    widths, units = block_widths(shape), unit_bytes(shape, numerics, adapted, copied)
    form = family_form(shape.family)
    kept = sum(widths[name] * _total(each, units) for name, each in form.kept.items())
    if code.fused_gelu and shape.family == "gpt2":  # its input and its output
        kept -= widths["inner"] * (_total(family_form("gpt2").kept["inner"], units) - 2 * numerics.compute)
    if shape.query_norm:  # the input in fp32 and, where the weight trains, the scaled one
        kept += (widths["queries"] + widths["keys"]) * (4 + (0 if adapted else numerics.compute))
    if not adapted:
        return kept
    layers, roles = adapted_layers(shape, code.adapted), set(code.adapted or form.roles)
    # The form counts the inputs of all layers: one that no adapter reads is not kept.
    unread = len({*form.roles} - roles - {"output", "down"}) * units["copied"]
    unread += sum(not roles & readers for readers in READERS) * units["uncopied"]
    if code.keeps_inputs and settings.quantization in FOUR_BITS:
        unread = 0 if copied == 0 else -len(READERS) * numerics.compute
        kept += widths["inner"] * numerics.compute * (copied > 0 and "down" in roles)
    elif "down" not in roles:
        kept -= widths["inner"] * numerics.compute
    kept -= widths["hidden"] * unread
    ranks = len(layers) * settings.lora_r * numerics.compute
    attention_output = widths["queries"] * copied if "output" in roles else 0
    masks = sum(layer.inputs for layer in layers) * numerics.mask if settings.lora_dropout else 0
    # DoRA keeps the outputs of the frozen and the low-rank layer; in 16 bit the former also without its bias.
    outputs = sum(layer.outputs * (3 if layer.bias and numerics.casts else 2) for layer in layers)
    kept += ranks + attention_output + masks
    return kept + (outputs * numerics.compute if settings.peft_method == "dora" else 0)


READERS = ({"query", "key", "value"}, {"gate", "up"})
"""The layers that read the same tensor of the model's width."""


def adapter_copy_bytes(settings: Settings, n: NumberSizes, code: TrainingCode) -> int:
    """Bytes per number of the copy of its input that each adapter keeps; 0 where all keep the same tensor.

    peft casts the input to the adapter's fp32, and autocast casts that to 16 bit, for each adapter anew (`forward` in
    peft/tuners/lora/layer.py). Dropout makes a tensor of its own for each, too.
    """
    if settings.peft_method == "none":
        return 0
    if n.casts:
        return n.compute
    if n.compute == 4 or code.adapter_bytes == 2:
        return n.compute if settings.lora_dropout else 0
    return 2 if settings.precision != "fp32" else 4


def unit_bytes(shape: ModelShape, n: NumberSizes, adapted: bool, copied: int = 0) -> Mapping[str, float]:
    """Bytes of the kinds of numbers by which `families.yaml` counts; `copied` are those of adapters' inputs."""
    copied = n.compute if n.casts else copied
    return {
        "compute": n.compute,
        "stream": n.stream,
        "fp32": 4,
        "copied": copied,
        "uncopied": 0 if copied else n.stream,
        "trained": 0 if adapted else n.stream,
        "mask": n.mask if shape.hidden_dropout else 0,
        "widened": 4 if n.wide else 0,
        "narrow": 0 if n.wide else n.compute,
    }


def _total(counts: Mapping[str, float], units: Mapping[str, float]) -> float:
    return sum(count * units[name] for name, count in counts.items())


class ActivationBytes(Struct, frozen=True):
    """Bytes per sample: kept by a block, by a checkpointed block, and by embedding and final layers (`ends`).

    `block_extra` are temporary bytes of a block's backward pass, `loss_forward` and `loss_backward` the peaks of a
    language model's loss, `evaluation` a forward pass without gradients, `held` inputs of 4-bit layers that the last
    micro batch leaves until the next loss.
    """

    block: float
    checkpoint: float
    ends: float
    block_extra: float
    loss_forward: float
    loss_backward: float
    evaluation: float
    held: float = 0.0


def activation_bytes(
    shape: ModelShape, settings: Settings, device: Device, code: TrainingCode = BUILT_IN
) -> ActivationBytes:
    """The activations of one sample of `max_length` tokens."""
    shape = loaded_shape(shape, settings)
    n = number_sizes(shape, settings, device, code)
    adapted = settings.peft_method != "none"
    tokens = min(settings.max_length, shape.positions or settings.max_length)
    scores = attention_bytes(shape, settings, device, n, tokens)
    logits = float(tokens * shape.vocab) if shape.language_model else 0.0
    form = family_form(shape.family)
    ends = _total(form.ends, unit_bytes(shape, n, adapted))
    if shape.language_model and shape.family != "bert":  # the output layer alone reads what the last norm makes
        ends += n.compute if n.casts else n.stream
    widened = 4.0 if form.final_norm and n.stream == 2 else 0.0  # the copy of its input that the last norm makes
    # A logit in 16 bit, its copy in fp32 and the log-softmax; no copy where it is fp32 already.
    forward, backward = code.logit_bytes
    loss_forward = logits * (forward if n.compute == 2 else 8)
    # The first of several GPUs gathers the logits of all in fp32 (torch/nn/parallel/data_parallel.py).
    gathered = 4 * logits * device.gpu_count if device.gpu_count > 1 else 0.0
    widths = block_widths(shape)
    inputs = n.compute * tokens * (2 * widths["hidden"] + widths["queries"] + widths["inner"])
    held = code.holds_graph and code.keeps_inputs and settings.quantization in FOUR_BITS
    # Of one block in a forward pass without gradients.
    widest = shape.hidden * (2 * n.stream + 2 * n.compute) + shape.intermediate * form.widest * n.compute
    return ActivationBytes(
        block=tokens * block_bytes(shape, settings, n, code) + scores.kept,
        checkpoint=float(tokens * shape.hidden * n.stream),
        ends=tokens * shape.hidden * (widened if adapted else ends),
        block_extra=max(tokens * _mlp_backward_bytes(shape, n, adapted), scores.extra),
        loss_forward=loss_forward + gathered,
        loss_backward=logits * backward,  # the log-softmax, its gradient and that of the logits, each in fp32
        evaluation=max(loss_forward, tokens * widest + scores.evaluation) + gathered,
        held=float(shape.layers * inputs) if held and not settings.gradient_checkpointing else 0.0,
    )


def _mlp_backward_bytes(shape: ModelShape, n: NumberSizes, adapted: bool) -> float:
    """Temporary bytes per token while the backward pass of a block is in its MLP.

    The gradient of an adapted layer has two parts, under autocast with a copy in fp32.
    """
    hidden, inner = shape.hidden, shape.intermediate
    if adapted:
        return 8.0 * (inner + hidden) if n.casts else 2.0 * n.compute * inner
    each = _total(family_form(shape.family).mlp_backward, unit_bytes(shape, n, adapted))
    return each * inner + (4.0 * hidden if n.casts and shape.family != "gpt2" else 0.0)


class OptimizerBytes(Struct, frozen=True):
    """Bytes per trained parameter: `kept` between steps, `temporary` for all at once within a step.

    `largest` is temporary memory for one tensor at a time, so it counts for the largest tensor only.
    """

    kept: float
    temporary: float = 0.0
    largest: float = 0.0


BYTES_8BIT, BYTES_4BIT = 1 + 4 / 256, 1 / 2 + 4 / 128
"""A number of a state with its share of an fp32 scale: one per 256 in 8 bits (bitsandbytes.optim, torchao.optim),
one per 128 in 4 bits (torchao.optim)."""
STATES_PER_PARAMETER: Mapping[str, int] = {
    "sgd": 0, "lomo": 0, "adafactor": 0, "lion": 1, "rmsprop": 1, "adagrad": 1, "ademamix": 3,
}  # fmt: skip
"""Values that an optimizer keeps for each parameter, by a part of its name; Adam and its relatives keep two. Adafactor
keeps a row and a column of each matrix, which is next to nothing."""


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
