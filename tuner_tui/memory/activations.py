"""Activations that a training keeps from forward for backward, in bytes per sample.

Counted tensor by tensor from the models' code in Transformers 5.23 and what autograd saves for each operation. Under
autocast the residual stream and what normalisations save stay in fp32; matrix products save 16-bit copies, one for
each linear layer that reads a tensor.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from tuner_tui.memory.device import Device
from tuner_tui.memory.model_shape import Family, ModelShape, linear_layers, loaded_shape
from tuner_tui.settings.model import Settings


@dataclass(frozen=True, slots=True)
class NumberSizes:
    """Bytes per number in matrix products (`compute`), in the residual stream and in dropout masks.

    `casts`: autocast makes a 16-bit copy of each operand of a matrix product, weights included. `wide`: autocast runs
    powers and normalisations in fp32, as on a GPU, unlike on a CPU.
    """

    compute: int
    stream: int
    mask: int
    casts: bool
    wide: bool

    @property
    def normed(self) -> int:
        """Bytes kept by a matrix product that is the only reader of a normalisation's output."""
        return self.compute if self.casts else self.stream


def number_sizes(shape: ModelShape, settings: Settings, device: Device) -> NumberSizes:
    """The number sizes of a training; autocast keeps weights in fp32 and computes in 16 bit."""
    mixed = settings.precision != "fp32"
    compute = 2 if mixed else shape.weight_bytes
    casts = mixed and shape.weight_bytes == 4
    return NumberSizes(
        compute=compute,
        stream=shape.weight_bytes,
        mask=1 if device.on_gpu else compute,
        casts=casts,
        wide=casts and device.on_gpu,
    )


@dataclass(frozen=True, slots=True)
class AttentionBytes:
    """Bytes per sample and block: kept for backward, and temporary ones of its backward pass and of an evaluation."""

    kept: float
    extra: float = 0.0
    evaluation: float = 0.0


def attention_bytes(
    shape: ModelShape, settings: Settings, device: Device, n: NumberSizes, tokens: int
) -> AttentionBytes:
    """What attention keeps: its scores, or the sums of a fused kernel; and the mask of padded texts."""
    scores = float(shape.heads * tokens * tokens)
    sums, repeated = shape.heads * tokens * 4.0, _repeated_key_bytes(shape, tokens, n)
    if settings.attn_implementation == "eager":
        kept = repeated + scores * _eager_score_bytes(shape, n, device) - _joint_qkv_bytes(shape, n, tokens)
        return AttentionBytes(kept, scores * 4, scores * 8)
    if settings.attn_implementation.startswith("flash"):
        return AttentionBytes(sums)
    if _uses_math_kernel(shape, settings, device):
        return AttentionBytes(
            repeated + _math_kernel_bytes(shape, n, scores, tokens), scores * 4, repeated + scores * 8
        )
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


def _joint_qkv_bytes(shape: ModelShape, n: NumberSizes, tokens: int) -> float:
    """ModernBERT's joint tensor of query, key and value, which is freed when the values are copied out of it."""
    return 2.0 * tokens * shape.hidden * n.compute if shape.family == "modernbert" else 0.0


def _uses_math_kernel(shape: ModelShape, settings: Settings, device: Device) -> bool:
    """True when torch falls back to the math kernel, which keeps the scores.

    On a CPU the fused kernel does not support dropout. On a GPU none supports grouped queries in fp32 (assumed from
    aten/src/ATen/native/transformers/cuda/sdp_utils.cpp).
    """
    if not device.on_gpu:
        return shape.attention_dropout > 0
    grouped = shape.kv_heads < shape.heads and shape.language_model
    return grouped and settings.precision == "fp32" and shape.weight_bytes == 4


def _math_kernel_bytes(shape: ModelShape, n: NumberSizes, scores: float, tokens: int) -> float:
    """Softmax, dropout's mask and result; in 16 bit all of it, and queries, keys and values, are cast to fp32."""
    kept = 3 if shape.attention_dropout else 1
    if n.compute == 4:
        return scores * kept * 4
    return scores * kept * 4 + 3 * (4 - n.compute) * tokens * shape.heads * shape.head_dim


def _repeated_key_bytes(shape: ModelShape, tokens: int, n: NumberSizes) -> float:
    """Keys and values repeated for every head, where the kernel does not support grouped ones."""
    return 2.0 * (shape.heads - shape.kv_heads) * shape.head_dim * tokens * n.compute


def block_bytes(shape: ModelShape, settings: Settings, numerics: NumberSizes) -> float:
    """Bytes kept by one block per token; adapters add their inputs and outputs."""
    adapted = settings.peft_method != "none"
    kept = BLOCK_BYTES[shape.family](shape, numerics, adapted)
    if not adapted:
        return kept
    ranks = len(linear_layers(shape)) * settings.lora_r * numerics.compute
    copied = shape.heads * shape.head_dim * numerics.compute if numerics.casts else 0  # of the attention output
    return kept + ranks + copied + (_dora_bytes(shape, numerics) if settings.peft_method == "dora" else 0)


def _dora_bytes(shape: ModelShape, n: NumberSizes) -> float:
    """DoRA keeps the outputs of the frozen and the low-rank layer; in 16 bit the former also without its bias."""
    return float(sum(one.outputs * (3 if one.bias and n.casts else 2) for one in linear_layers(shape)) * n.compute)


def bert_block(shape: ModelShape, n: NumberSizes, adapted: bool) -> float:
    """Query, key, value and the first dense layer read the stream; two normalisations follow their additions."""
    inputs = 4 * n.compute if n.casts else 2 * n.stream
    masks = 2 * n.mask if shape.hidden_dropout else 0
    return shape.hidden * (inputs + 4 * n.compute + 2 * n.stream + masks) + shape.intermediate * 2 * n.compute


def modernbert_block(shape: ModelShape, n: NumberSizes, adapted: bool) -> float:
    """The joint tensor of query, key and value is kept as well as the rotated query and key; a gated MLP."""
    return shape.hidden * (2 * n.normed + 6 * n.compute + 2 * n.stream) + shape.intermediate * 4 * n.compute


def gpt2_block(shape: ModelShape, n: NumberSizes, adapted: bool) -> float:
    """GELU as a formula in Python keeps five tensors; on a GPU autocast runs its power and what follows in fp32."""
    masks = 2 * n.mask if shape.hidden_dropout else 0
    gelu = 16 if n.wide else 5 * n.compute
    return shape.hidden * (2 * n.normed + 4 * n.compute + 2 * n.stream + masks) + shape.intermediate * gelu


def llama_block(shape: ModelShape, n: NumberSizes, adapted: bool) -> float:
    """Each RMS normalisation keeps its input in fp32 and, where its weight trains, the scaled input."""
    queries, keys = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
    inputs = 5 * n.compute if n.casts else 2 * n.stream
    norms = 2 * 4 + (0 if adapted else 2 * n.stream)
    query_norms = (queries + keys) * (4 + (0 if adapted else n.compute)) if shape.query_norm else 0
    return (
        query_norms
        + shape.hidden * (inputs + norms)
        + (2 * queries + 2 * keys) * n.compute
        + shape.intermediate * 4 * n.compute
    )


BLOCK_BYTES: Mapping[Family, Callable[[ModelShape, NumberSizes, bool], float]] = {
    "bert": bert_block,
    "modernbert": modernbert_block,
    "gpt2": gpt2_block,
    "llama": llama_block,
}


@dataclass(frozen=True, slots=True)
class ActivationBytes:
    """Bytes per sample: kept by a block, by a checkpointed block, and by embedding and final layers (`ends`).

    `block_extra` are temporary bytes of a block's backward pass, `loss_forward` and `loss_backward` the peaks of a
    language model's loss, `evaluation` a forward pass without gradients. `logits` is their number.
    """

    block: float
    checkpoint: float
    ends: float
    block_extra: float
    loss_forward: float
    loss_backward: float
    evaluation: float
    logits: float


def activation_bytes(shape: ModelShape, settings: Settings, device: Device) -> ActivationBytes:
    """The activations of one sample of `max_length` tokens."""
    shape = loaded_shape(shape, settings)
    n = number_sizes(shape, settings, device)
    adapted = settings.peft_method != "none"
    tokens = min(settings.max_length, shape.positions)
    scores = attention_bytes(shape, settings, device, n, tokens)
    logits = float(tokens * shape.vocab) if shape.language_model else 0.0
    return ActivationBytes(
        block=tokens * block_bytes(shape, settings, n) + scores.kept,
        checkpoint=float(tokens * shape.hidden * n.stream),
        ends=0.0 if adapted else tokens * shape.hidden * _embedding_and_head_bytes(shape, n),
        block_extra=max(tokens * _mlp_backward_bytes(shape, n, adapted), scores.extra),
        loss_forward=logits * _loss_forward_bytes(n),
        loss_backward=logits * 12,  # the log-softmax, its gradient and that of the logits, each in fp32
        evaluation=max(logits * _loss_forward_bytes(n), tokens * _evaluation_bytes(shape, n) + scores.evaluation),
        logits=logits,
    )


def _loss_forward_bytes(n: NumberSizes) -> int:
    """Bytes per logit: itself in 16 bit, its copy in fp32 and the log-softmax; no copy where it is fp32 already."""
    return 10 if n.compute == 2 else 8


def _embedding_and_head_bytes(shape: ModelShape, n: NumberSizes) -> float:
    """Bytes per hidden unit and token kept before the first block and after the last one."""
    mask = n.mask if shape.hidden_dropout else 0
    if shape.family == "bert":
        return n.stream + mask
    final = 2 * n.stream if shape.family == "llama" else n.stream
    return mask + final + (n.normed if shape.language_model else 0)


def _mlp_backward_bytes(shape: ModelShape, n: NumberSizes, adapted: bool) -> float:
    """Temporary bytes per token while the backward pass of a block is in its MLP.

    The gradient of an adapted layer has two parts, under autocast with a copy in fp32.
    """
    hidden, inner = shape.hidden, shape.intermediate
    if adapted:
        return 8.0 * (inner + hidden) if n.casts else 2.0 * n.compute * inner
    if shape.family == "gpt2":
        return 12.0 * inner if n.wide else 1.65 * n.compute * inner
    tensors = 2 if shape.family == "modernbert" else 1
    return float(tensors * n.compute * inner + (4 * hidden if n.casts else 0))


def _evaluation_bytes(shape: ModelShape, n: NumberSizes) -> float:
    """Bytes per token of one block in a forward pass without gradients."""
    widest = 4 if shape.family == "modernbert" else 2
    return float(shape.hidden * (2 * n.stream + 2 * n.compute) + shape.intermediate * widest * n.compute)
