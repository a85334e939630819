"""What one block keeps from forward for backward, in bytes a token, but for its attention scores.

Counted tensor by tensor from the models' code in Transformers 5.23 and what autograd saves for each operation. Under
autocast the residual stream and what normalisations save stay in fp32; matrix products save 16-bit copies, one for each
linear layer that reads a tensor.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tuner_tui.memory.numerics import Numerics
from tuner_tui.memory.parameters import linears
from tuner_tui.memory.shapes import Family, ModelShape
from tuner_tui.settings.model import Settings


def block_bytes(shape: ModelShape, settings: Settings, numerics: Numerics) -> float:
    """Bytes that one block keeps for one token; adapters add what they read and make."""
    adapted = settings.peft_method != "none"
    kept = BLOCKS[shape.family](shape, numerics, adapted)
    if not adapted:
        return kept
    ranks = len(linears(shape)) * settings.lora_r * numerics.compute
    copied = shape.heads * shape.head_dim * numerics.compute if numerics.casts else 0  # of what attention gives
    return kept + ranks + copied + (_dora(shape, numerics) if settings.peft_method == "dora" else 0)


def _dora(shape: ModelShape, n: Numerics) -> float:
    """DoRA keeps the results of the frozen and of the low-rank layer; in 16 bit the first also without its bias."""
    return float(sum(one.outputs * (3 if one.bias and n.casts else 2) for one in linears(shape)) * n.compute)


def bert_block(shape: ModelShape, n: Numerics, adapted: bool) -> float:
    """Query, key, value and the first dense layer read the stream; two normalisations after their additions."""
    inputs = 4 * n.compute if n.casts else 2 * n.stream
    masks = 2 * n.mask if shape.hidden_dropout else 0
    return shape.hidden * (inputs + 4 * n.compute + 2 * n.stream + masks) + shape.intermediate * 2 * n.compute


def modernbert_block(shape: ModelShape, n: Numerics, adapted: bool) -> float:
    """The joint tensor of query, key and value lives on beside the rotated query and key; a gated MLP."""
    return shape.hidden * (2 * n.normed + 6 * n.compute + 2 * n.stream) + shape.intermediate * 4 * n.compute


def gpt2_block(shape: ModelShape, n: Numerics, adapted: bool) -> float:
    """GELU by its formula in Python keeps five tensors; on a GPU autocast makes its power and what follows fp32."""
    masks = 2 * n.mask if shape.hidden_dropout else 0
    gelu = 16 if n.wide else 5 * n.compute
    return shape.hidden * (2 * n.normed + 4 * n.compute + 2 * n.stream + masks) + shape.intermediate * gelu


def llama_block(shape: ModelShape, n: Numerics, adapted: bool) -> float:
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


BLOCKS: Mapping[Family, Callable[[ModelShape, Numerics, bool], float]] = {
    "bert": bert_block,
    "modernbert": modernbert_block,
    "gpt2": gpt2_block,
    "llama": llama_block,
}
