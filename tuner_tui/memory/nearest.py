"""The shape of an architecture without a closed form of its own: the sizes of its `config.json` in the nearest family.

What differs from that family is not known, so its estimate is only rough. Where the differences are large (experts,
state spaces, an encoder beside a decoder, layers that share their weights, scores by relative position, images or
sound) there is no shape at all.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tuner_tui.memory.shapes import POSITIONS, Family, ModelShape, Task

SIZES: Mapping[str, tuple[str, ...]] = {
    "hidden": ("hidden_size", "d_model", "n_embd", "dim"),
    "layers": ("num_hidden_layers", "n_layers", "n_layer"),
    "heads": ("num_attention_heads", "n_heads", "n_head"),
    "inner": ("intermediate_size", "ffn_dim", "ffn_hidden_size", "d_inner", "n_inner", "hidden_dim"),
    "positions": ("max_position_embeddings", "n_positions", "max_seq_len"),
    "attention_dropout": ("attention_probs_dropout_prob", "attention_dropout", "attn_pdrop"),
    "hidden_dropout": ("hidden_dropout_prob", "hidden_dropout", "resid_pdrop", "dropout"),
}
"""The names that one size goes by."""
OTHERWISE = (
    "expert", "state_size", "ssm", "conv", "hidden_groups", "relative", "encoder_layers", "text_config", "vision",
    "audio",
)  # fmt: skip
"""A key that holds one of these words tells of a model that no family here is near to."""


def nearest_shape(config: Mapping[str, Any], model: str, task: Task) -> ModelShape | None:
    """The sizes of `config` in the nearest family; None where none is near. Raises `KeyError` for a missing size."""
    if config.get("is_encoder_decoder") or any(word in key for key in config for word in OTHERWISE):
        return None
    hidden, heads = int(_size(config, "hidden")), int(_size(config, "heads"))
    family = _family(config, task)
    dropout = 0.1 if family == "bert" else 0.0
    return ModelShape(
        model, family, task, int(_size(config, "layers")), hidden, heads,
        int(config.get("num_key_value_heads") or heads), int(config.get("head_dim") or hidden // heads),
        int(_size(config, "inner", 4 * hidden)), int(config["vocab_size"]), int(_size(config, "positions", POSITIONS)),
        len(config.get("id2label") or "ab"), tied=bool(config.get("tie_word_embeddings", True)),
        attention_dropout=float(_size(config, "attention_dropout", dropout)),
        hidden_dropout=float(_size(config, "hidden_dropout", dropout)),
        near=str(config.get("model_type")),
    )  # fmt: skip


def _family(config: Mapping[str, Any], task: Task) -> Family:
    """Decoders with grouped keys have gated MLPs, as Llama; older ones are like GPT-2."""
    if "num_key_value_heads" in config:
        return "llama"
    return "gpt2" if task == "causal-lm" else "bert"


def _size(config: Mapping[str, Any], size: str, otherwise: float | None = None) -> float:
    found = next((config[name] for name in SIZES[size] if config.get(name) is not None), otherwise)
    if found is None:
        raise KeyError(size)
    return float(found)
