"""The sizes of a model and the form of its family."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Literal, get_args

from msgspec import Struct
from msgspec.structs import replace

from tuner_tui.core.files import read_data_file
from tuner_tui.settings.job import Task
from tuner_tui.settings.model import Settings

FAMILIES_FILE = Path(__file__).with_name("families.yaml")
Family = Literal["bert", "modernbert", "gpt2", "llama"]
FAMILIES: tuple[Family, ...] = get_args(Family)


class ModelShape(Struct, frozen=True):
    """The sizes of one model, as counts. `head_dim` is the width of one attention head.

    `weight_bytes` is the size of one weight as saved (`loaded_shape` has it as loaded), `labels` the number of outputs
    of a classifier. `qkv_bias` and `query_norm` distinguish relatives of Llama, `dense_head` relatives of BERT: a
    classifier of two layers instead of a pooling layer and one layer, and `relative`: positions are keys and queries of
    their own (DeBERTa), for which there is no fused kernel. `approximates` is the architecture that this
    family stands for; empty for the family itself. `positions` is None where their number is not known and nothing is
    kept for each. `size_only`: of the model only the number of parameters is known. `quantized_bytes` is the size of a
    weight of its blocks' linear layers with its share of a scale, where they are saved quantized.
    """

    name: str
    family: Family
    task: Task
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    intermediate: int
    vocab: int
    positions: int | None
    labels: int = 2
    tied: bool = True
    attention_dropout: float = 0.0
    hidden_dropout: float = 0.0
    qkv_bias: bool = False
    query_norm: bool = False
    dense_head: bool = False
    relative: bool = False
    weight_bytes: int = 4
    approximates: str = ""
    size_only: bool = False
    quantized_bytes: float | None = None

    @property
    def language_model(self) -> bool:
        """True when it computes a logit for every token of the vocabulary at every position."""
        return self.task == "causal-lm"


class FamilyForm(Struct, frozen=True, kw_only=True):
    """What a model of a family consists of, a row of `families.yaml`, which explains the fields."""

    types: Sequence[str]
    layers: Sequence[tuple[str, str]]
    roles: Sequence[str]
    norms: int
    kept: Mapping[str, Mapping[str, float]]
    ends: Mapping[str, float]
    mlp_backward: Mapping[str, float]
    widest: int
    biased: int = 0
    positions: bool = False
    vectors: int = 0
    dense_head: bool = False
    final_norm: bool = False


@cache
def family_form(family: Family) -> FamilyForm:
    return FamilyForm(**read_data_file(FAMILIES_FILE)[family])


def loaded_shape(shape: ModelShape, settings: Settings) -> ModelShape:
    """The shape with `weight_bytes` as the weights are loaded: fp32 where all train, as saved under an adapter.

    The built-in job loads them by the same rule (`trainer/models.py`, `weights_dtype`).
    """
    by_rule = shape.weight_bytes if settings.peft_method != "none" else 4
    size = {"auto": by_rule, "saved": shape.weight_bytes, "fp32": 4, "bf16": 2}[settings.weights_dtype]
    return shape if size == shape.weight_bytes else replace(shape, weight_bytes=size)
