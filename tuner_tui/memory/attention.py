"""What attention keeps beside queries, keys, values and its output, in bytes a sample and block."""

from __future__ import annotations

from dataclasses import dataclass

from tuner_tui.memory.device import Device
from tuner_tui.memory.numerics import Numerics
from tuner_tui.memory.shapes import ModelShape
from tuner_tui.settings.model import Settings


@dataclass(frozen=True, slots=True)
class Attention:
    """Bytes a sample: kept by a block, and taken beside it while its backward pass or an evaluation runs."""

    kept: float
    extra: float = 0.0
    evaluation: float = 0.0


def attention(shape: ModelShape, settings: Settings, device: Device, n: Numerics, tokens: int) -> Attention:
    """Scores where they are kept, else the sums of a fused kernel; and the mask of padded texts."""
    scores = float(shape.heads * tokens * tokens)
    sums, repeated = shape.heads * tokens * 4.0, _repeated_keys(shape, tokens, n)
    if settings.attn_implementation == "eager":
        kept = repeated + scores * _eager(shape, n, device) - _joint(shape, n, tokens)
        return Attention(kept, scores * 4, scores * 8)
    if settings.attn_implementation.startswith("flash"):
        return Attention(sums)
    if _plain(shape, settings, device):
        return Attention(repeated + _plain_bytes(shape, n, scores, tokens), scores * 4, repeated + scores * 8)
    mask = 0.0 if shape.language_model else float(tokens * tokens * n.compute)
    return Attention(
        sums + mask + (0.0 if shape.language_model else repeated)
    )  # with a mask keys are repeated here too


def _eager(shape: ModelShape, n: Numerics, device: Device) -> int:
    """A score's bytes: the softmax, what the product with the values reads, and the mask of dropout.

    Adding the attention mask makes scores fp32 where they were 16 bit. BERT drops out before it casts, others after.
    """
    mixed = n.compute == 2
    softmax = 4 if mixed else n.compute
    if not shape.attention_dropout:
        return softmax + (n.compute if mixed else 0)
    late = shape.family == "bert" and not device.on_gpu
    return softmax + n.compute + (softmax if late else n.mask)


def _joint(shape: ModelShape, n: Numerics, tokens: int) -> float:
    """ModernBERT's joint tensor does not live on where values are copied out of it."""
    return 2.0 * tokens * shape.hidden * n.compute if shape.family == "modernbert" else 0.0


def _plain(shape: ModelShape, settings: Settings, device: Device) -> bool:
    """Whether torch falls back to the plain form, which keeps the scores.

    On a CPU its fused kernel takes no dropout. On a GPU none takes grouped queries in fp32 (assumed from
    aten/src/ATen/native/transformers/cuda/sdp_utils.cpp).
    """
    if not device.on_gpu:
        return shape.attention_dropout > 0
    grouped = shape.kv_heads < shape.heads and shape.language_model
    return grouped and settings.precision == "fp32" and shape.weight_bytes == 4


def _plain_bytes(shape: ModelShape, n: Numerics, scores: float, tokens: int) -> float:
    """Softmax, dropout's mask and result; in 16 bit all of it and queries, keys and values are made fp32 first."""
    kept = 3 if shape.attention_dropout else 1
    if n.compute == 4:
        return scores * kept * 4
    return scores * kept * 4 + 3 * (4 - n.compute) * tokens * shape.heads * shape.head_dim


def _repeated_keys(shape: ModelShape, tokens: int, n: Numerics) -> float:
    """Keys and values once for every head, where grouped ones cannot be read as they are."""
    return 2.0 * (shape.heads - shape.kv_heads) * shape.head_dim * tokens * n.compute
