"""Shapes of models: read from a configuration or known by name, and their number of parameters.

Sizes as in the models' own `config.json` on the Hub (2025); only what memory depends on.

Closed forms exist for four families: BERT, ModernBERT, GPT-2 and Llama, and what is built like them. Another
architecture gets the nearest family, and says so, or no shape at all; then it has to be traced. Nothing is imported to
find out.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

from tuner_tui.settings.model import Settings


def _llama(
    kind: str, layers: int, hidden: int, heads: int, kv: int, inner: int, vocab: int, tied: bool, head: int = 0
) -> dict[str, Any]:
    return {
        "model_type": kind, "num_hidden_layers": layers, "hidden_size": hidden, "num_attention_heads": heads,
        "num_key_value_heads": kv, "head_dim": head or hidden // heads, "intermediate_size": inner, "vocab_size": vocab,
        "max_position_embeddings": 32_768, "tie_word_embeddings": tied, "torch_dtype": "bfloat16",
    }  # fmt: skip


def _encoder(
    kind: str, layers: int, hidden: int, heads: int, vocab: int, positions: int = 512, inner: int = 0
) -> dict[str, Any]:
    return {
        "model_type": kind, "num_hidden_layers": layers, "hidden_size": hidden, "num_attention_heads": heads,
        "intermediate_size": inner or 4 * hidden, "vocab_size": vocab, "max_position_embeddings": positions,
    }  # fmt: skip


CONFIGS: Mapping[str, Mapping[str, Any]] = {
    "llama-3.2-1b": _llama("llama", 16, 2048, 32, 8, 8192, 128_256, True, 64),
    "llama-3.2-3b": _llama("llama", 28, 3072, 24, 8, 8192, 128_256, True),
    "llama-3.1-8b": _llama("llama", 32, 4096, 32, 8, 14_336, 128_256, False),
    "meta-llama-3.1-8b": _llama("llama", 32, 4096, 32, 8, 14_336, 128_256, False),
    "meta-llama-3-8b": _llama("llama", 32, 4096, 32, 8, 14_336, 128_256, False),
    "llama-2-7b": _llama("llama", 32, 4096, 32, 32, 11_008, 32_000, False),
    "llama-2-13b": _llama("llama", 40, 5120, 40, 40, 13_824, 32_000, False),
    "tinyllama-1.1b": _llama("llama", 22, 2048, 32, 4, 5632, 32_000, False),
    "smollm2-135m": _llama("llama", 30, 576, 9, 3, 1536, 49_152, True),
    "smollm2-360m": _llama("llama", 32, 960, 15, 5, 2560, 49_152, True),
    "smollm2-1.7b": _llama("llama", 24, 2048, 32, 32, 8192, 49_152, True),
    "mistral-7b": _llama("mistral", 32, 4096, 32, 8, 14_336, 32_768, False),
    "qwen2.5-0.5b": _llama("qwen2", 24, 896, 14, 2, 4864, 151_936, True),
    "qwen2.5-1.5b": _llama("qwen2", 28, 1536, 12, 2, 8960, 151_936, True),
    "qwen2.5-3b": _llama("qwen2", 36, 2048, 16, 2, 11_008, 151_936, True),
    "qwen2.5-7b": _llama("qwen2", 28, 3584, 28, 4, 18_944, 152_064, False),
    "qwen2.5-14b": _llama("qwen2", 48, 5120, 40, 8, 13_824, 152_064, False),
    "qwen2.5-32b": _llama("qwen2", 64, 5120, 40, 8, 27_648, 152_064, False),
    "qwen3-0.6b": _llama("qwen3", 28, 1024, 16, 8, 3072, 151_936, True, 128),
    "qwen3-1.7b": _llama("qwen3", 28, 2048, 16, 8, 6144, 151_936, True, 128),
    "qwen3-4b": _llama("qwen3", 36, 2560, 32, 8, 9728, 151_936, True, 128),
    "qwen3-8b": _llama("qwen3", 36, 4096, 32, 8, 12_288, 151_936, False, 128),
    "gemma-3-270m": _llama("gemma3_text", 18, 640, 4, 1, 2048, 262_144, True, 256),
    "gemma-3-1b": _llama("gemma3_text", 26, 1152, 4, 1, 6912, 262_144, True, 256),
    "gemma-2-2b": _llama("gemma2", 26, 2304, 8, 4, 9216, 256_000, True, 256),
    "gemma-2b": _llama("gemma", 18, 2048, 8, 1, 16_384, 256_000, True, 256),
    "bert-base-uncased": _encoder("bert", 12, 768, 12, 30_522),
    "bert-base-cased": _encoder("bert", 12, 768, 12, 28_996),
    "bert-base-multilingual-cased": _encoder("bert", 12, 768, 12, 119_547),
    "bert-large-uncased": _encoder("bert", 24, 1024, 16, 30_522),
    "bert-large-cased": _encoder("bert", 24, 1024, 16, 28_996),
    "roberta-base": _encoder("roberta", 12, 768, 12, 50_265, 514),
    "roberta-large": _encoder("roberta", 24, 1024, 16, 50_265, 514),
    "xlm-roberta-base": _encoder("xlm-roberta", 12, 768, 12, 250_002, 514),
    "xlm-roberta-large": _encoder("xlm-roberta", 24, 1024, 16, 250_002, 514),
    "modernbert-base": _encoder("modernbert", 22, 768, 12, 50_368, 8192, 1152),
    "modernbert-large": _encoder("modernbert", 28, 1024, 16, 50_368, 8192, 2624),
    "distilbert-base-uncased": _encoder("distilbert", 6, 768, 12, 30_522),
    "deberta-v3-xsmall": _encoder("deberta-v2", 12, 384, 6, 128_100),
    "deberta-v3-small": _encoder("deberta-v2", 6, 768, 12, 128_100),
    "deberta-v3-base": _encoder("deberta-v2", 12, 768, 12, 128_100),
    "deberta-v3-large": _encoder("deberta-v2", 24, 1024, 16, 128_100),
}


def known_config(model: str) -> Mapping[str, Any] | None:
    """The configuration of a Hub id whose name begins with a known one, as `Qwen/Qwen2.5-7B-Instruct` does.

    None for others, and for weights that are quantized already.
    """
    short = model.rstrip("/").rpartition("/")[2].lower()
    if "bit" in short or "gptq" in short or "awq" in short:
        return None
    names = [name for name in CONFIGS if short == name or short.startswith(f"{name}-")]
    return CONFIGS[max(names, key=len)] if names else None


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

    The built-in job loads them by the same rule (`trainer/models.py`, `weights_dtype`).
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
"""The shapes of the built-in job, the same as in `trainer/built_in.py` builds them."""


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
        return _read_shape(config, model, task)
    except (KeyError, TypeError, ValueError, ZeroDivisionError):
        return None


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


def _read_shape(config: Mapping[str, Any], model: str, task: Task) -> ModelShape | None:
    """The sizes of `config` in its family or the nearest one. Raises `KeyError` for a missing size.

    What a family's own configuration leaves out has the default of its class in Transformers. For another architecture
    positions and the width of the MLP are guessed, as they change the estimate less than its uncertainty.
    """
    kind = str(config.get("model_type"))
    family = _family_of(kind, config)
    approximates = "" if family else kind
    if family is None:
        if config.get("is_encoder_decoder") or any(word in key for key in config for word in UNSUPPORTED_KEYS):
            return None
        family = _nearest_family(config, task)
    hidden, heads = int(_read_size(config, "hidden")), int(_read_size(config, "heads"))
    dropout = 0.1 if family == "bert" or kind == "gpt2" else 0.0
    dtype = str(config.get("dtype") or config.get("torch_dtype") or "float32")
    return ModelShape(
        model, family, task, int(_read_size(config, "layers")), hidden, heads,
        int(config.get("num_key_value_heads") or heads), int(config.get("head_dim") or hidden // heads),
        int(_read_size(config, "inner", 4 * hidden if approximates or kind == "gpt2" else None)),
        int(config["vocab_size"]), int(_read_size(config, "positions", POSITIONS if approximates else None)),
        len(config.get("id2label") or "ab"), tied=bool(config.get("tie_word_embeddings", kind not in LLAMA_LIKE)),
        attention_dropout=float(_read_size(config, "attention_dropout", dropout)),
        hidden_dropout=float(_read_size(config, "hidden_dropout", dropout)),
        qkv_bias=kind == "qwen2" or (kind in LLAMA_LIKE and bool(config.get("attention_bias", False))),
        query_norm=kind == "qwen3", dense_head=kind in BERT_LIKE and kind != "bert" and not approximates,
        weight_bytes=DTYPE_BYTES.get(dtype, 4), approximates=approximates,
    )  # fmt: skip


def _family_of(kind: str, config: Mapping[str, Any]) -> Family | None:
    """The family whose closed form is counted from this architecture's own code; None for any other."""
    if kind in BERT_LIKE:  # ELECTRA's small models project their embeddings to the hidden size
        return "bert" if config.get("embedding_size") in (None, config.get("hidden_size")) else None
    if kind in LLAMA_LIKE:
        return "llama"
    own: Mapping[str, Family] = {"gpt2": "gpt2", "modernbert": "modernbert"}
    return own.get(kind)


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
    if shape.family == "modernbert":  # a dense layer with its normalisation, the classifier
        return hidden * hidden + hidden + LinearLayer(hidden, shape.labels).parameters
    final = 0 if shape.family == "gpt2" else hidden
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
    dense = [LinearLayer(shape.hidden, shape.hidden)] if shape.family in ("bert", "modernbert") else []
    bias = shape.family in ("bert", "modernbert")
    return LinearLayer(shape.hidden, shape.labels, bias).parameters + adapter_parameters(dense, settings)


def count_parameters(shape: ModelShape, settings: Settings) -> ParameterCounts:
    """The parameters of `shape` trained with `settings`."""
    matrices = sum(layer.parameters for layer in linear_layers(shape))
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
