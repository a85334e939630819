"""Counts the parameters of a model and of its adapters."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct

from tuner_tui.memory.model_shape import ModelShape, family_form
from tuner_tui.settings.model import Settings


class LinearLayer(Struct, frozen=True):
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


class ParameterCounts(Struct, frozen=True):
    """Parameter counts of a model and of its parts; `layer…` counts are of one layer."""

    total: int
    trainable: int
    layer_linear: int
    layer_trainable: int
    embedding: int
    adapter: int


def linear_layers(shape: ModelShape) -> tuple[LinearLayer, ...]:
    form, widths = family_form(shape.family), block_widths(shape)
    biased = 3 if shape.qkv_bias else form.biased
    sizes = ((widths[inputs], sum(widths[name] for name in outputs.split(" + "))) for inputs, outputs in form.layers)
    return tuple(LinearLayer(*size, number < biased) for number, size in enumerate(sizes))


def adapted_layers(shape: ModelShape, roles: Sequence[str] = ()) -> tuple[LinearLayer, ...]:
    """The linear layers of one block with adapters: those with `roles`, all without any."""
    layers = zip(linear_layers(shape), family_form(shape.family).roles, strict=True)
    return tuple(layer for layer, role in layers if not roles or role in roles)


def block_widths(shape: ModelShape) -> Mapping[str, int]:
    """The widths in a block by the names of `families.yaml`."""
    queries, keys = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
    return {"hidden": shape.hidden, "inner": shape.intermediate, "queries": queries, "keys": keys}


def position_parameters(shape: ModelShape) -> int:
    """Parameters of position embeddings and what belongs to them: in no block, word embedding or head."""
    form = family_form(shape.family)
    return (form.vectors + (shape.positions or 0 if form.positions else 0)) * shape.hidden


def head_parameters(shape: ModelShape) -> int:
    """Parameters after the last block: its normalisation where there is one, pooling, and the output."""
    form, hidden = family_form(shape.family), shape.hidden
    if form.dense_head:
        return LinearLayer(hidden, hidden).parameters + LinearLayer(hidden, shape.labels).parameters
    final = hidden if form.final_norm else 0
    if not shape.language_model:
        return final + hidden * shape.labels
    return final + (0 if shape.tied else shape.vocab * hidden)


def adapter_parameters(layers: Iterable[LinearLayer], settings: Settings) -> int:
    """Parameters of the adapters of linear layers: two matrices each, and DoRA's magnitudes."""
    if settings.peft_method == "none":
        return 0
    magnitudes = settings.peft_method == "dora"
    return sum(settings.lora_r * (layer.inputs + layer.outputs) + magnitudes * layer.outputs for layer in layers)


def trainable_head_parameters(shape: ModelShape, settings: Settings) -> int:
    """Parameters that train after the last block: the new classifier, and adapters of the dense layer before it."""
    if shape.language_model:
        return 0
    if shape.dense_head:
        return head_parameters(shape)
    has_dense = family_form(shape.family).dense_head
    dense = [LinearLayer(shape.hidden, shape.hidden)] if has_dense else []
    return LinearLayer(shape.hidden, shape.labels, has_dense).parameters + adapter_parameters(dense, settings)


def count_parameters(shape: ModelShape, settings: Settings, adapted: Sequence[str] = ()) -> ParameterCounts:
    """The parameters of `shape` trained with `settings`, and with adapters on the layers of roles `adapted`."""
    matrices = sum(layer.parameters for layer in linear_layers(shape))
    norms = family_form(shape.family).norms * shape.hidden + (2 * shape.head_dim if shape.query_norm else 0)
    layer = matrices + norms
    embedding = shape.vocab * shape.hidden
    ends = embedding + position_parameters(shape) + head_parameters(shape)
    total = ends + shape.layers * layer
    if settings.peft_method == "none":
        return ParameterCounts(total, total, matrices, layer, embedding, 0)
    adapter = adapter_parameters(adapted_layers(shape, adapted), settings)
    trainable = shape.layers * adapter + trainable_head_parameters(shape, settings)
    return ParameterCounts(total + trainable, trainable, matrices, adapter, embedding, adapter)
