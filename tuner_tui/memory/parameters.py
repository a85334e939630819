"""How many parameters a model has, how many of them train, and how large the largest is."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from tuner_tui.memory.shapes import ModelShape
from tuner_tui.settings.model import Settings


@dataclass(frozen=True, slots=True)
class Linear:
    """One linear layer's width before and after, and whether it adds a bias."""

    inputs: int
    outputs: int
    bias: bool = True

    @property
    def parameters(self) -> int:
        """Its weights and biases."""
        return self.inputs * self.outputs + (self.outputs if self.bias else 0)


@dataclass(frozen=True, slots=True)
class Parameters:
    """Counts: all, those that train, of one layer, of the word embedding, of adapters."""

    total: int
    trainable: int
    layer: int
    layer_linear: int
    layer_trainable: int
    embedding: int
    head: int
    adapter: int


def linears(shape: ModelShape) -> tuple[Linear, ...]:
    """The linear layers of one block."""
    hidden, inner = shape.hidden, shape.intermediate
    queries, keys = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
    if shape.family == "bert":
        square = Linear(hidden, hidden)
        return (square, square, square, square, Linear(hidden, inner), Linear(inner, hidden))
    if shape.family == "gpt2":
        return (Linear(hidden, 3 * hidden), Linear(hidden, hidden), Linear(hidden, inner), Linear(inner, hidden))
    if shape.family == "modernbert":
        sizes = ((hidden, 3 * hidden), (hidden, hidden), (hidden, 2 * inner), (inner, hidden))
        return tuple(Linear(inputs, outputs, False) for inputs, outputs in sizes)
    bias = shape.qkv_bias
    attention = (Linear(hidden, queries, bias), Linear(hidden, keys, bias), Linear(hidden, keys, bias))
    mlp = (Linear(hidden, inner, False), Linear(hidden, inner, False), Linear(inner, hidden, False))
    return (*attention, Linear(queries, hidden, False), *mlp)


def norms(shape: ModelShape) -> int:
    """Parameters of the normalisations of one block."""
    each = {"bert": 4, "gpt2": 4, "modernbert": 2, "llama": 2}[shape.family]
    return each * shape.hidden + (2 * shape.head_dim if shape.query_norm else 0)


def outside(shape: ModelShape) -> int:
    """Parameters in neither a block, nor the word embedding, nor the head."""
    hidden = shape.hidden
    if shape.family == "bert":
        return (shape.positions + 2 + 2) * hidden  # positions, two token types, a normalisation
    if shape.family == "gpt2":
        return (shape.positions + 2) * hidden
    return hidden if shape.family == "modernbert" else 0


def head(shape: ModelShape) -> int:
    """Parameters after the last block: its normalisation where there is one, pooling, and the output."""
    hidden = shape.hidden
    if shape.family == "bert":
        return Linear(hidden, hidden).parameters + Linear(hidden, shape.labels).parameters
    if shape.family == "modernbert":  # the final normalisation, a dense layer with its own, the classifier
        return hidden + hidden * hidden + hidden + Linear(hidden, shape.labels).parameters - hidden
    final = 0 if shape.family == "gpt2" else hidden
    if not shape.language_model:
        return final + hidden * shape.labels
    return final + (0 if shape.tied else shape.vocab * hidden)


def adapter_parameters(layers: Iterable[Linear], settings: Settings) -> int:
    """Parameters of the adapters of linear layers: two matrices each, and DoRA's magnitudes."""
    if settings.peft_method == "none":
        return 0
    magnitudes = settings.peft_method == "dora"
    return sum(settings.lora_r * (one.inputs + one.outputs) + magnitudes * one.outputs for one in layers)


def head_beside_adapters(shape: ModelShape, settings: Settings) -> int:
    """What trains after the last block: the new classifier in full, and adapters of the dense layer before it."""
    if shape.language_model:
        return 0
    if shape.dense_head:
        return head(shape)
    dense = [Linear(shape.hidden, shape.hidden)] if shape.family in ("bert", "modernbert") else []
    bias = shape.family in ("bert", "modernbert")
    return Linear(shape.hidden, shape.labels, bias).parameters + adapter_parameters(dense, settings)


def count(shape: ModelShape, settings: Settings) -> Parameters:
    """The parameters of `shape` trained with `settings`."""
    matrices = sum(one.parameters for one in linears(shape))
    layer = matrices + norms(shape)
    embedding = shape.vocab * shape.hidden
    ends = embedding + outside(shape) + head(shape)
    total = ends + shape.layers * layer
    adapter = adapter_parameters(linears(shape), settings)
    if settings.peft_method == "none":
        return Parameters(total, total, layer, matrices, layer, embedding, head(shape), 0)
    trainable = shape.layers * adapter + head_beside_adapters(shape, settings)
    return Parameters(total + trainable, trainable, layer, matrices, adapter, embedding, head(shape), adapter)
