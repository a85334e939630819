"""Built-in models, which need no download: configurations with random weights, and the tokenizer of all of them.

The tokenizer is a byte-pair one, trained on the standard library and cached.
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import BertConfig, GPT2Config, LlamaConfig, ModernBertConfig, PreTrainedTokenizerFast

from .cache import cache_folder, exclusive, write_atomic
from .data import stdlib_corpus
from .errors import JobError

VOCABULARY = 4096
PAD, START, END = "<pad>", "<s>", "</s>"


def shape_tokenizer() -> Any:
    """A byte-level tokenizer with `VOCABULARY` entries, which encodes any text."""
    files = stdlib_corpus.source_files(stdlib_corpus.library_folder())
    key = f"bpe-{VOCABULARY}-py{platform.python_version()}-{stdlib_corpus.fingerprint(files)}.json"
    path = cache_folder("tokenizers") / key
    tokenizer = cached_tokenizer(path, (snippet.text for snippet in stdlib_corpus.snippets(files)))
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token=PAD,
        bos_token=START,
        cls_token=START,
        eos_token=END,
        sep_token=END,
    )


def cached_tokenizer(path: Path, texts: Iterable[str]) -> Any:
    """The tokenizer cached at `path`, trained on `texts` if there is none. Safe across processes."""
    # Several ranks start at once and need the same file: one trains, the others wait for the lock and read.
    with exclusive(path):
        if not path.exists():
            write_atomic(path, train_tokenizer(texts).to_str())
        return Tokenizer.from_file(str(path))


def train_tokenizer(texts: Iterable[str]) -> Any:
    """Train a tokenizer on `texts`; it wraps sequences as `<s> text </s>` or `<s> text </s> second </s>`."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=[PAD, START, END],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{START} $A {END}",
        pair=f"{START} $A {END} $B:1 {END}:1",
        special_tokens=[(token, tokenizer.token_to_id(token)) for token in (START, END)],
    )
    return tokenizer


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
        "bert-base": BertConfig,  # its defaults are the sizes of bert-base-uncased (Devlin et al. 2018)
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
