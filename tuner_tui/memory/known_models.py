"""Configurations of well-known models, for estimates by name where their `config.json` was not downloaded.

Sizes as in the models' own `config.json` on the Hub (2025); only what memory depends on.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


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
