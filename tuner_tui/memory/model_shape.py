"""The sizes of a model that memory depends on, read from its `config.json` or known by name.

Closed forms exist for four families: BERT, ModernBERT, GPT-2 and Llama, and what is built like them. Another
architecture gets the nearest family, and says so, or no shape at all; then it has to be traced. Nothing is imported to
find out.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

from tuner_tui.memory.known_models import known_config
from tuner_tui.settings.model import Settings

Family = Literal["bert", "modernbert", "gpt2", "llama"]
Task = Literal["classification", "causal-lm"]

BERT_LIKE = ("bert", "roberta", "xlm-roberta", "camembert", "electra")
LLAMA_LIKE = ("llama", "mistral", "qwen2", "qwen3", "smollm3", "granite")
DTYPE_BYTES: Mapping[str, int] = {"float32": 4, "bfloat16": 2, "float16": 2}
POSITIONS = 8192


@dataclass(frozen=True, slots=True)
class ModelShape:
    """The sizes of one model, as counts. `head_dim` is the width of one attention head.

    `weight_bytes` is the size of one weight as saved (`loaded_shape` has it as loaded), `labels` the number of outputs
    of a classifier. `qkv_bias` and `query_norm` distinguish relatives of Llama, `dense_head` relatives of BERT: a
    classifier of two layers instead of a pooling layer and one layer. `approximates` is the architecture that this
    family stands for; empty for the family itself.
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
    positions: int
    labels: int = 2
    tied: bool = True
    attention_dropout: float = 0.0
    hidden_dropout: float = 0.0
    qkv_bias: bool = False
    query_norm: bool = False
    dense_head: bool = False
    weight_bytes: int = 4
    approximates: str = ""

    @property
    def language_model(self) -> bool:
        """True when it computes a logit for every token of the vocabulary at every position."""
        return self.task == "causal-lm"


def loaded_shape(shape: ModelShape, settings: Settings) -> ModelShape:
    """The shape with `weight_bytes` as the weights are loaded: fp32 where all train, as saved under an adapter.

    The built-in job loads them by the same rule (`trainer/models/load.py`, `weights_dtype`).
    """
    by_rule = shape.weight_bytes if settings.peft_method != "none" else 4
    each = {"auto": by_rule, "saved": shape.weight_bytes, "fp32": 4, "bf16": 2}[settings.weights_dtype]
    return shape if each == shape.weight_bytes else replace(shape, weight_bytes=each)


def bert_shape(name: str, layers: int, hidden: int, heads: int) -> ModelShape:
    """A BERT of the usual proportions (Devlin et al. 2018)."""
    return ModelShape(
        name, "bert", "classification", layers, hidden, heads, heads, hidden // heads, 4 * hidden, 30_522, 512,
        attention_dropout=0.1, hidden_dropout=0.1,
    )  # fmt: skip


TINY_ENCODER = ModelShape("tiny", "modernbert", "classification", 2, 128, 4, 4, 32, 256, 4096, POSITIONS)
TINY_DECODER = ModelShape("tiny", "llama", "causal-lm", 2, 128, 4, 2, 32, 384, 4096, POSITIONS)
GPT2 = ModelShape(
    "gpt2", "gpt2", "causal-lm", 12, 768, 12, 12, 64, 3072, 50_257, 1024, attention_dropout=0.1, hidden_dropout=0.1
)
LLAMA_1B = ModelShape("llama-1b", "llama", "causal-lm", 16, 2048, 32, 8, 64, 8192, 128_256, 131_072)
ENCODERS = (TINY_ENCODER, bert_shape("bert-base", 12, 768, 12), bert_shape("bert-large", 24, 1024, 16))
BUILT_IN: Mapping[tuple[str, Task], ModelShape] = {
    **{(shape.name, "classification"): shape for shape in ENCODERS},
    **{(shape.name, "classification"): replace(shape, task="classification") for shape in (GPT2, LLAMA_1B)},
    **{(shape.name, "causal-lm"): shape for shape in (TINY_DECODER, GPT2, LLAMA_1B)},
}
"""The shapes of the built-in job, the same as in `trainer/shapes.py` builds them."""


def known_shape(model: str, task: Task) -> ModelShape | None:
    """The shape of a built-in name, a local folder, or a Hub id that was downloaded before or is well known.

    None without a readable `config.json` or for an architecture without a closed form. Reads at most one small file,
    cached while it is unchanged.
    """
    if (model, task) in BUILT_IN:
        return BUILT_IN[model, task]
    path = config_path(model) if model else None
    if path is None:
        config = known_config(model)
        return None if config is None else shape_from_config(config, model, task)
    try:
        return _read_config(path, path.stat().st_mtime_ns, model, task)
    except OSError:
        return None


def config_path(model: str) -> Path | None:
    """The model's `config.json`: in its folder, else the newest one in the Hub's cache; None without one."""
    local = Path(model).expanduser() / "config.json"
    if local.is_file():
        return local
    snapshots = hub_cache() / f"models--{model.replace('/', '--')}" / "snapshots"
    found = sorted(snapshots.glob("*/config.json"), key=lambda path: path.stat().st_mtime_ns)
    return found[-1] if found else None


def hub_cache(environment: Mapping[str, str] = os.environ) -> Path:
    """The folder in which huggingface_hub caches downloads."""
    if environment.get("HF_HUB_CACHE"):
        return Path(environment["HF_HUB_CACHE"])
    home = environment.get("HF_HOME") or Path(environment.get("XDG_CACHE_HOME") or "~/.cache", "huggingface")
    return Path(home).expanduser() / "hub"


@lru_cache(maxsize=32)
def _read_config(path: Path, stamp: int, model: str, task: Task) -> ModelShape | None:
    try:
        config = json.loads(path.read_text("utf-8"))
    except (ValueError, RecursionError):
        return None
    return shape_from_config(config, model, task) if isinstance(config, dict) else None


def shape_from_config(config: Mapping[str, Any], model: str, task: Task) -> ModelShape | None:
    """The shape described by a `config.json`; None for an architecture near no family or an invalid file."""
    try:
        shape = _builder(config)(config, model, task)
        return None if shape is None else replace(shape, weight_bytes=_weight_bytes(config))
    except (KeyError, TypeError, ValueError, ZeroDivisionError):
        return None


def _builder(config: Mapping[str, Any]) -> Callable[[Mapping[str, Any], str, Task], ModelShape | None]:

    kind = str(config.get("model_type"))
    if kind in BERT_LIKE and config.get("embedding_size") in (None, config.get("hidden_size")):
        return _bert_from_config
    if kind in LLAMA_LIKE:
        return _llama_from_config
    return {"gpt2": _gpt2_from_config, "modernbert": _modernbert_from_config}.get(kind, nearest_shape)


def _weight_bytes(config: Mapping[str, Any]) -> int:
    """Bytes per weight as saved."""
    return DTYPE_BYTES.get(str(config.get("dtype") or config.get("torch_dtype") or "float32"), 4)


def _labels(config: Mapping[str, Any]) -> int:
    return len(config.get("id2label") or "ab")


def _bert_from_config(config: Mapping[str, Any], model: str, task: Task) -> ModelShape:
    hidden, heads = int(config["hidden_size"]), int(config["num_attention_heads"])
    return ModelShape(
        model, "bert", task, int(config["num_hidden_layers"]), hidden, heads, heads, hidden // heads,
        int(config["intermediate_size"]), int(config["vocab_size"]), int(config["max_position_embeddings"]),
        _labels(config),
        attention_dropout=float(config.get("attention_probs_dropout_prob", 0.1)),
        hidden_dropout=float(config.get("hidden_dropout_prob", 0.1)),
        dense_head=config["model_type"] != "bert",
    )  # fmt: skip


def _modernbert_from_config(config: Mapping[str, Any], model: str, task: Task) -> ModelShape:
    hidden, heads = int(config["hidden_size"]), int(config["num_attention_heads"])
    return ModelShape(
        model, "modernbert", task, int(config["num_hidden_layers"]), hidden, heads, heads, hidden // heads,
        int(config["intermediate_size"]), int(config["vocab_size"]), int(config["max_position_embeddings"]),
        _labels(config),
    )  # fmt: skip


def _gpt2_from_config(config: Mapping[str, Any], model: str, task: Task) -> ModelShape:
    hidden, heads = int(config["n_embd"]), int(config["n_head"])
    return ModelShape(
        model, "gpt2", task, int(config["n_layer"]), hidden, heads, heads, hidden // heads,
        int(config.get("n_inner") or 4 * hidden), int(config["vocab_size"]), int(config["n_positions"]),
        _labels(config),
        attention_dropout=float(config.get("attn_pdrop", 0.1)),
        hidden_dropout=float(config.get("resid_pdrop", 0.1)),
    )  # fmt: skip


def _llama_from_config(config: Mapping[str, Any], model: str, task: Task) -> ModelShape:
    hidden, heads = int(config["hidden_size"]), int(config["num_attention_heads"])
    kind = config["model_type"]
    return ModelShape(
        model, "llama", task, int(config["num_hidden_layers"]), hidden, heads,
        int(config.get("num_key_value_heads") or heads), int(config.get("head_dim") or hidden // heads),
        int(config["intermediate_size"]), int(config["vocab_size"]), int(config["max_position_embeddings"]),
        _labels(config), tied=bool(config.get("tie_word_embeddings", False)),
        attention_dropout=float(config.get("attention_dropout", 0.0)),
        qkv_bias=kind == "qwen2" or bool(config.get("attention_bias", False)), query_norm=kind == "qwen3",
    )  # fmt: skip


SIZE_KEYS: Mapping[str, tuple[str, ...]] = {
    "hidden": ("hidden_size", "d_model", "n_embd", "dim"),
    "layers": ("num_hidden_layers", "n_layers", "n_layer"),
    "heads": ("num_attention_heads", "n_heads", "n_head"),
    "inner": ("intermediate_size", "ffn_dim", "ffn_hidden_size", "d_inner", "n_inner", "hidden_dim"),
    "positions": ("max_position_embeddings", "n_positions", "max_seq_len"),
    "attention_dropout": ("attention_probs_dropout_prob", "attention_dropout", "attn_pdrop"),
    "hidden_dropout": ("hidden_dropout_prob", "hidden_dropout", "resid_pdrop", "dropout"),
}
"""The keys that `config.json` uses for each size."""
UNSUPPORTED_KEYS = (
    "expert", "state_size", "ssm", "conv", "hidden_groups", "relative", "encoder_layers", "text_config", "vision",
    "audio",
)  # fmt: skip
"""A key that contains one of these words belongs to a model that is near none of the families."""


def nearest_shape(config: Mapping[str, Any], model: str, task: Task) -> ModelShape | None:
    """The sizes of `config` in the nearest family, for a rough estimate; None where none is near.

    Raises `KeyError` for a missing size.
    """
    if config.get("is_encoder_decoder") or any(word in key for key in config for word in UNSUPPORTED_KEYS):
        return None
    hidden, heads = int(_read_size(config, "hidden")), int(_read_size(config, "heads"))
    family = _nearest_family(config, task)
    dropout = 0.1 if family == "bert" else 0.0
    return ModelShape(
        model, family, task, int(_read_size(config, "layers")), hidden, heads,
        int(config.get("num_key_value_heads") or heads), int(config.get("head_dim") or hidden // heads),
        int(_read_size(config, "inner", 4 * hidden)), int(config["vocab_size"]),
        int(_read_size(config, "positions", POSITIONS)),
        len(config.get("id2label") or "ab"), tied=bool(config.get("tie_word_embeddings", True)),
        attention_dropout=float(_read_size(config, "attention_dropout", dropout)),
        hidden_dropout=float(_read_size(config, "hidden_dropout", dropout)),
        approximates=str(config.get("model_type")),
    )  # fmt: skip


def _nearest_family(config: Mapping[str, Any], task: Task) -> Family:
    """Decoders with grouped keys have gated MLPs like Llama; older ones are like GPT-2."""
    if "num_key_value_heads" in config:
        return "llama"
    return "gpt2" if task == "causal-lm" else "bert"


def _read_size(config: Mapping[str, Any], size: str, otherwise: float | None = None) -> float:
    found = next((config[name] for name in SIZE_KEYS[size] if config.get(name) is not None), otherwise)
    if found is None:
        raise KeyError(size)
    return float(found)
