"""Built-in model shapes: configurations for models with random weights, which need no download."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from transformers import BertConfig, GPT2Config, LlamaConfig, ModernBertConfig

from ..errors import JobError
from .tokenizer import VOCABULARY

TINY_POSITIONS = 8192


def shape_config(name: str, task: str, tokenizer: Any) -> Any:
    """The configuration of the shape `name` for `task`, with the special tokens of `tokenizer`."""
    if task == "causal-lm" and name.startswith("bert"):
        raise JobError(
            f"{name} is an encoder and cannot generate text; for causal-lm use tiny, gpt2, llama-1b or a Hub model"
        )
    tokens = {
        "pad_token_id": tokenizer.pad_token_id,
        "bos_token_id": tokenizer.bos_token_id,
        "eos_token_id": tokenizer.eos_token_id,
    }
    builders: dict[str, Callable[..., Any]] = {
        "tiny": tiny_decoder if task == "causal-lm" else tiny_encoder,
        "bert-base": bert_base,
        "bert-large": bert_large,
        "gpt2": GPT2Config,
        "llama-1b": llama_1b,
    }
    return builders[name](**tokens)


def tiny_encoder(**tokens: int) -> Any:
    """A ModernBERT of two narrow layers, which learns the default task on two slow CPU cores in half a minute.

    Not BERT: without pretraining, reading the class from one token (as BERT does) learns many times slower than from
    the mean of all.
    """
    config = ModernBertConfig(
        vocab_size=VOCABULARY,
        hidden_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=256,
        max_position_embeddings=TINY_POSITIONS,
        classifier_pooling="mean",
        **tokens,
        cls_token_id=tokens["bos_token_id"],
        sep_token_id=tokens["eos_token_id"],
    )
    config.reference_compile = False  # early versions compile by themselves; `torch_compile` decides here
    return config


def tiny_decoder(**tokens: int) -> Any:
    """A Llama of two narrow layers."""
    return LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        intermediate_size=384,
        max_position_embeddings=TINY_POSITIONS,
        tie_word_embeddings=True,
        **tokens,
    )


def bert_base(**tokens: int) -> Any:
    """The sizes of bert-base-uncased (Devlin et al. 2018), the defaults of Transformers."""
    return BertConfig(**tokens)


def bert_large(**tokens: int) -> Any:
    """The sizes of bert-large-uncased (Devlin et al. 2018)."""
    return BertConfig(hidden_size=1024, num_hidden_layers=24, num_attention_heads=16, intermediate_size=4096, **tokens)


def llama_1b(**tokens: int) -> Any:
    """The sizes of Llama-3.2-1B (its config.json on the Hub)."""
    return LlamaConfig(
        vocab_size=128_256,
        hidden_size=2048,
        num_hidden_layers=16,
        num_attention_heads=32,
        num_key_value_heads=8,
        head_dim=64,
        intermediate_size=8192,
        max_position_embeddings=131_072,
        rms_norm_eps=1e-5,
        tie_word_embeddings=True,
        **tokens,
    )
