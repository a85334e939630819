"""The byte-pair tokenizer of the built-in shapes, trained on the standard library and cached."""

from __future__ import annotations

import platform
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast

from ..cache import cache_folder, exclusive, write_atomic
from ..data import stdlib_corpus

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
