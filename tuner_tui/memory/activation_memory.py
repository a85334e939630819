"""The activations that a training keeps from forward for backward, in bytes per sample.

They are counted tensor by tensor from the models' code in Transformers 5.23 and what autograd saves for each operation
(derivatives.yaml in PyTorch). Under autocast the residual stream and what normalisations save stay in fp32; matrix
products save 16-bit copies, one for each linear layer that reads a tensor.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from tuner_tui.memory.device import Device
from tuner_tui.memory.model_shape import ModelShape, family_form, loaded_shape
from tuner_tui.memory.parameter_counts import adapted_layers, block_widths
from tuner_tui.memory.training_code import BUILT_IN, TrainingCode
from tuner_tui.settings.model import Settings

FOUR_BITS = ("nf4", "fp4")


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
