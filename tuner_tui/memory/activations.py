"""What a training keeps from forward for backward, in bytes a sample.

Counted tensor by tensor from the models' code in Transformers 5.23 and what autograd saves for each operation. Under
autocast the residual stream and what normalisations save stay in fp32; matrix products save 16-bit copies, one for each
linear layer that reads the tensor.
"""

from __future__ import annotations

from dataclasses import dataclass

from tuner_tui.memory.device import Device
from tuner_tui.memory.shapes import ModelShape
from tuner_tui.settings.model import Settings


@dataclass(frozen=True, slots=True)
class Activations:
    """Bytes a sample: kept by a block, by a checkpointed block, by embedding and head, and taken at the loss.

    `layer_extra` is what a block's backward pass takes beside what it keeps.
    """

    layer: float
    checkpoint: float
    ends: float
    loss: float
    layer_extra: float


@dataclass(frozen=True, slots=True)
class Numerics:
    """Bytes of a number in matrix products (`compute`), in the residual stream, of a dropout mask."""

    compute: int
    stream: int
    mask: int
    casts: bool

    @classmethod
    def of(cls, shape: ModelShape, settings: Settings, device: Device) -> Numerics:
        """Those of one training: autocast keeps what was fp32 and computes in 16 bit."""
        mixed = settings.precision != "fp32"
        compute = 2 if mixed else shape.weight_bytes
        return cls(compute, shape.weight_bytes, 1 if device.on_gpu else compute, mixed and shape.weight_bytes == 4)


def activations(shape: ModelShape, settings: Settings, device: Device) -> Activations:
    """The activations of one sample of `max_length` tokens."""
    numerics = Numerics.of(shape, settings, device)
    tokens = min(settings.max_length, shape.positions)
    layer = tokens * _BLOCKS[shape.family](shape, numerics) + _attention(shape, settings, device, numerics, tokens)
    stream = tokens * shape.hidden * numerics.stream
    loss = tokens * shape.vocab * 12.0 if shape.language_model else 0.0
    return Activations(layer, stream, 3 * stream, loss, 2 * tokens * shape.intermediate * numerics.compute)


def _bert_block(shape: ModelShape, n: Numerics) -> float:
    hidden, inner = shape.hidden, shape.intermediate
    inputs = 4 * n.compute if n.casts else 2 * n.stream  # query, key, value and the first dense layer read casts
    masks = 2 * n.mask if shape.hidden_dropout else 0
    return hidden * (inputs + 4 * n.compute + 2 * n.stream + masks) + inner * 2 * n.compute


def _modernbert_block(shape: ModelShape, n: Numerics) -> float:
    hidden, inner = shape.hidden, shape.intermediate
    inputs = 2 * n.compute if n.casts else 2 * n.stream
    return hidden * (inputs + 4 * n.compute + 2 * n.stream) + inner * 4 * n.compute


def _gpt2_block(shape: ModelShape, n: Numerics) -> float:
    hidden, inner = shape.hidden, shape.intermediate
    inputs = 2 * n.compute if n.casts else 2 * n.stream
    masks = 2 * n.mask if shape.hidden_dropout else 0
    gelu = 16 if n.casts else 5 * n.compute
    return hidden * (inputs + 4 * n.compute + 2 * n.stream + masks) + inner * gelu


def _llama_block(shape: ModelShape, n: Numerics) -> float:
    hidden, inner = shape.hidden, shape.intermediate
    queries, keys = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
    inputs = 5 * n.compute if n.casts else 2 * n.stream
    return hidden * (inputs + 4 * n.stream) + (2 * queries + 2 * keys) * n.compute + inner * 4 * n.compute


_BLOCKS = {"bert": _bert_block, "modernbert": _modernbert_block, "gpt2": _gpt2_block, "llama": _llama_block}


def _attention(shape: ModelShape, settings: Settings, device: Device, n: Numerics, tokens: int) -> float:
    """What attention keeps beside queries, keys, values and its output."""
    scores = shape.heads * tokens * tokens
    dropout = shape.attention_dropout > 0
    if settings.attn_implementation == "eager":
        return scores * (n.compute + (4 if n.casts else 0) + (n.mask + n.compute if dropout else 0))
    if not device.on_gpu and dropout:  # torch's CPU flash kernel takes no dropout: the plain form
        return scores * (2 * n.compute + n.mask)
    return shape.heads * tokens * 4.0
