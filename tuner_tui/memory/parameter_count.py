"""Parameter counts of a model: all, those that train, and those of each part."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from tuner_tui.memory.model_shape import ModelShape
from tuner_tui.settings.model import Settings


@dataclass(frozen=True, slots=True)
class LinearLayer:
    """The input and output width of a linear layer, and whether it has a bias."""

    inputs: int
    outputs: int
    bias: bool = True

    @property
    def weights(self) -> int:
        """The number of weights, without biases."""
        return self.inputs * self.outputs

    @property
    def parameters(self) -> int:
        """The number of weights and biases."""
        return self.weights + (self.outputs if self.bias else 0)


@dataclass(frozen=True, slots=True)
class ParameterCounts:
    """Parameter counts of a model and of its parts; `layer…` counts are of one layer."""

    total: int
    trainable: int
    layer: int
    layer_linear: int
    layer_trainable: int
    embedding: int
    head: int
    adapter: int


def linear_layers(shape: ModelShape) -> tuple[LinearLayer, ...]:
    """The linear layers of one block."""
    hidden, inner = shape.hidden, shape.intermediate
    queries, keys = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
    if shape.family == "bert":
        square = LinearLayer(hidden, hidden)
        return (square, square, square, square, LinearLayer(hidden, inner), LinearLayer(inner, hidden))
    if shape.family == "gpt2":
        return (
            LinearLayer(hidden, 3 * hidden),
            LinearLayer(hidden, hidden),
            LinearLayer(hidden, inner),
            LinearLayer(inner, hidden),
        )
    if shape.family == "modernbert":
        sizes = ((hidden, 3 * hidden), (hidden, hidden), (hidden, 2 * inner), (inner, hidden))
        return tuple(LinearLayer(inputs, outputs, False) for inputs, outputs in sizes)
    bias = shape.qkv_bias
    attention = (LinearLayer(hidden, queries, bias), LinearLayer(hidden, keys, bias), LinearLayer(hidden, keys, bias))
    mlp = (LinearLayer(hidden, inner, False), LinearLayer(hidden, inner, False), LinearLayer(inner, hidden, False))
    return (*attention, LinearLayer(queries, hidden, False), *mlp)


def norm_parameters(shape: ModelShape) -> int:
    """Parameters of the normalisations of one block."""
    each = {"bert": 4, "gpt2": 4, "modernbert": 2, "llama": 2}[shape.family]
    return each * shape.hidden + (2 * shape.head_dim if shape.query_norm else 0)


def position_parameters(shape: ModelShape) -> int:
    """Parameters of position embeddings and what belongs to them: in no block, word embedding or head."""
    hidden = shape.hidden
    if shape.family == "bert":
        return (shape.positions + 2 + 2) * hidden  # positions, two token types, a normalisation
    if shape.family == "gpt2":
        return (shape.positions + 2) * hidden
    return hidden if shape.family == "modernbert" else 0


def head_parameters(shape: ModelShape) -> int:
    """Parameters after the last block: its normalisation where there is one, pooling, and the output."""
    hidden = shape.hidden
    if shape.family == "bert":
        return LinearLayer(hidden, hidden).parameters + LinearLayer(hidden, shape.labels).parameters
    if shape.family == "modernbert":  # the final normalisation, a dense layer with its own, the classifier
        return hidden + hidden * hidden + hidden + LinearLayer(hidden, shape.labels).parameters - hidden
    final = 0 if shape.family == "gpt2" else hidden
    if not shape.language_model:
        return final + hidden * shape.labels
    return final + (0 if shape.tied else shape.vocab * hidden)


def adapter_parameters(layers: Iterable[LinearLayer], settings: Settings) -> int:
    """Parameters of the adapters of linear layers: two matrices each, and DoRA's magnitudes."""
    if settings.peft_method == "none":
        return 0
    magnitudes = settings.peft_method == "dora"
    return sum(settings.lora_r * (one.inputs + one.outputs) + magnitudes * one.outputs for one in layers)


def trainable_head_parameters(shape: ModelShape, settings: Settings) -> int:
    """Parameters that train after the last block: the new classifier, and adapters of the dense layer before it."""
    if shape.language_model:
        return 0
    if shape.dense_head:
        return head_parameters(shape)
    dense = [LinearLayer(shape.hidden, shape.hidden)] if shape.family in ("bert", "modernbert") else []
    bias = shape.family in ("bert", "modernbert")
    return LinearLayer(shape.hidden, shape.labels, bias).parameters + adapter_parameters(dense, settings)


def count_parameters(shape: ModelShape, settings: Settings) -> ParameterCounts:
    """The parameters of `shape` trained with `settings`."""
    matrices = sum(one.parameters for one in linear_layers(shape))
    layer = matrices + norm_parameters(shape)
    embedding = shape.vocab * shape.hidden
    ends = embedding + position_parameters(shape) + head_parameters(shape)
    total = ends + shape.layers * layer
    adapter = adapter_parameters(linear_layers(shape), settings)
    if settings.peft_method == "none":
        return ParameterCounts(total, total, layer, matrices, layer, embedding, head_parameters(shape), 0)
    trainable = shape.layers * adapter + trainable_head_parameters(shape, settings)
    return ParameterCounts(
        total + trainable, trainable, layer, matrices, adapter, embedding, head_parameters(shape), adapter
    )
