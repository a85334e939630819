"""The sizes of a named model: of the built-in job, from its configuration, or by the size in its name."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache, lru_cache
from typing import Any

from msgspec.structs import replace

from tuner_tui.core.files import read_data_file
from tuner_tui.memory.model_config import (
    BUILT_IN_FILE,
    FILE,
    config_path,
    known_config,
    read_config,
    sizes_in,
    without_quantization,
)
from tuner_tui.memory.model_shape import FAMILIES, FAMILIES_FILE, Family, ModelShape, family_form
from tuner_tui.memory.parameter_counts import count_parameters
from tuner_tui.settings.job import TEXT_TASKS, Task, names_other_task
from tuner_tui.settings.model import Settings

DTYPE_BYTES: Mapping[str, int] = {"float32": 4, "bfloat16": 2, "float16": 2}
DEBERTA = "deberta-v2"
"""Version 3 has the architecture of version 2."""
POSITIONS = 8192
EXPERTS = re.compile(r"moe|(?<![a-z0-9])\d+e(?![a-z0-9])")
"""What is written in the names of mixtures of experts whose number of parameters may be that of the active ones."""
HEAD = 128


@cache
def built_in_shape(name: str, task: Task) -> ModelShape | None:
    """The shape of a model of the built-in job; None for another name, and for a task that it does not have."""
    config = read_data_file(BUILT_IN_FILE).get(name, {}).get(task)
    return None if config is None else shape_from_config(config, name, task)


def known_shape(model: str, task: Task) -> ModelShape | None:
    """The shape of a built-in name, a local folder, or a Hub id: downloaded before, well known or with a size in it.

    None for an architecture or a task without a closed form, and where not even the size is known. Reads at most one
    small file, cached while it is unchanged.
    """
    built_in = built_in_shape(model, task)
    if built_in is not None or not model or task not in TEXT_TASKS:
        return built_in
    config = read_config(model)
    if config_path(model) is not None:
        return None if config is None else shape_from_config(config, model, task)
    plain, bytes_each = without_quantization(model)
    if config is not None:
        shape = shape_from_config(config, plain, task)
    else:
        name = plain.rstrip("/").rpartition("/")[2].lower()
        sizes = sizes_in(name)
        if len(sizes) != 1 or EXPERTS.search(name) is not None or names_other_task(plain):
            return None  # no size, or it may be another number
        shape = _decoder_of_size(sizes.pop(), plain, task)
    return None if shape is None else replace(shape, name=model, quantized_bytes=bytes_each)


def _saved_quantized_bytes(config: Mapping[str, Any]) -> float | None:
    """The bytes per weight that a `config.json` says, by the bits of its quantization; None where it says none."""
    quantization = config.get("quantization_config")
    if not isinstance(quantization, Mapping):
        return None
    by_switch = 4 if quantization.get("load_in_4bit") else 8 if quantization.get("load_in_8bit") else None
    bits = quantization.get("bits") or quantization.get("w_bit") or by_switch
    size: float | None = read_data_file(FILE)["quantized"].get(f"int{bits}")
    return size


def config_to_trace(model: str, task: Task) -> Mapping[str, Any] | None:
    """The configuration of a model that is known by its name alone, where its closed form is not exact."""
    shape = known_shape(model, task)
    if (shape is not None and not shape.approximates) or config_path(model) is not None:
        return None
    config = known_config(model)
    return config if config is not None and "model_type" in config else None


@lru_cache(maxsize=64)
def _decoder_of_size(parameters: float, model: str, task: Task) -> ModelShape:
    """A decoder with so many parameters, in the proportions of Llama."""
    vocab = 128_256 if parameters >= 4e8 else 50_257
    # Decoders that carry their size in their names are saved in 16 bit. They have as many heads of 128 as layers.
    shape = ModelShape(model, "llama", task, 1, HEAD, 1, 1, HEAD, 4 * HEAD, vocab, None, weight_bytes=2, size_only=True)
    # A block of hidden size h has about 15 h² parameters with an MLP four times as wide: in all a cube of the layers.
    while (total := count_parameters(shape, Settings()).total) < parameters:
        layers, hidden = shape.layers + 1, shape.hidden + HEAD
        shape = replace(
            shape, layers=layers, hidden=hidden, heads=layers, kv_heads=max(1, layers // 4), intermediate=4 * hidden
        )
    surplus = (total - parameters) / (3 * shape.hidden * shape.layers)
    return replace(shape, intermediate=max(HEAD, round(shape.intermediate - surplus)))


def shape_from_config(config: Mapping[str, Any], model: str, task: Task) -> ModelShape | None:
    """The shape described by a `config.json`; None for an architecture near no family or an invalid file."""
    try:
        return _read_shape(config, model, task)
    except (KeyError, TypeError, ValueError, ZeroDivisionError):
        return None


def _read_shape(config: Mapping[str, Any], model: str, task: Task) -> ModelShape | None:
    """The sizes of `config` in its family or the nearest one. Raises `KeyError` for a missing size.

    What a family's own configuration leaves out has the default of its class in Transformers. For another architecture
    positions and the width of the MLP are guessed, as they change the estimate less than its uncertainty.
    """
    if "size" in config:
        return _decoder_of_size(config["size"] * 1e6, model, task)
    kind = str(config.get("model_type"))
    family = _family_of(kind, config)
    approximates = "" if family else kind
    keys = read_data_file(FAMILIES_FILE)["config"]
    if any(not str(name).endswith(tuple(keys["classes"])) for name in config.get("architectures") or ()):
        return None
    if family is None:
        if config.get("is_encoder_decoder") or any(word in key for key in config for word in keys["unsupported"]):
            return None
        # Decoders with grouped keys have gated MLPs like Llama; older ones are like GPT-2.
        family = "llama" if "num_key_value_heads" in config else "gpt2" if task == "causal-lm" else "bert"
    llama = family_form("llama")
    hidden, heads = int(_read_size(config, "hidden")), int(_read_size(config, "heads"))
    form = family_form(family)
    positions = None
    if form.positions or any(config.get(name) for name in keys["sizes"]["positions"]):
        positions = int(_read_size(config, "positions", POSITIONS if approximates else None))
    dropout = 0.1 if family == "bert" or kind == "gpt2" else 0.0
    dtype = str(config.get("dtype") or config.get("torch_dtype") or "float32")
    return ModelShape(
        model, family, task, int(_read_size(config, "layers")), hidden, heads,
        int(config.get("num_key_value_heads") or heads), int(config.get("head_dim") or hidden // heads),
        int(_read_size(config, "inner", 4 * hidden if approximates or kind == "gpt2" else None)),
        int(config["vocab_size"]), positions,
        len(config.get("id2label") or "ab"), tied=bool(config.get("tie_word_embeddings", kind not in llama.types)),
        attention_dropout=float(_read_size(config, "attention_dropout", dropout)),
        hidden_dropout=float(_read_size(config, "hidden_dropout", dropout)),
        qkv_bias=kind == "qwen2" or (kind in llama.types and bool(config.get("attention_bias", False))),
        query_norm=kind == "qwen3", relative=kind == DEBERTA,
        dense_head=family == "bert" and kind not in ("bert", DEBERTA) and not approximates,
        weight_bytes=DTYPE_BYTES.get(dtype, 4), approximates=approximates,
        quantized_bytes=_saved_quantized_bytes(config),
    )  # fmt: skip


def _family_of(kind: str, config: Mapping[str, Any]) -> Family | None:
    """The family whose closed form is counted from this architecture's own code; None for any other."""
    if config.get("embedding_size") not in (None, config.get("hidden_size")):
        return None  # ELECTRA's small models project their embeddings to the hidden size
    if kind == DEBERTA and not (
        config.get("share_att_key")
        and "conv_kernel_size" not in config
        and 2 * config.get("position_buckets", 0) == config.get("max_position_embeddings")
    ):
        return None  # as in version 2
    return next((family for family in FAMILIES if kind in family_form(family).types), None)


def _read_size(config: Mapping[str, Any], size: str, otherwise: float | None = None) -> float:
    names = read_data_file(FAMILIES_FILE)["config"]["sizes"][size]
    value = next((config[name] for name in names if config.get(name) is not None), otherwise)
    if value is None:
        raise KeyError(size)
    return float(value)
