"""What needs no download: models with random weights and their tokenizer, and a text corpus that every machine has.

The corpus are the source files of Python's standard library, cut into labelled snippets.
"""

from __future__ import annotations

import sysconfig
from collections import defaultdict
from functools import cache
from pathlib import Path
from typing import Any

import yaml
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import AutoConfig, PreTrainedTokenizerFast

from .job_file import JobError

SHAPES_FILE = Path(__file__).with_name("built_in.yaml")
VOCABULARY = 4096
PAD, START, END = "<pad>", "<s>", "</s>"
TRAINING_SHARE = 4
"""The tokenizer is trained on every fourth snippet, in half a second."""
# The default job: which module does a snippet come from? Twenty classes of up to 500 samples of ten lines train in
# half a minute on two CPU cores, and the loss falls visibly.
LABEL_COUNT = 20
LINES_PER_SNIPPET = 10
SNIPPETS_PER_LABEL = 500
SKIPPED_FOLDERS = frozenset({"site-packages", "dist-packages", "test", "tests", "idle_test", "__pycache__", "config"})


def shape_tokenizer() -> Any:
    """A byte-level tokenizer with `VOCABULARY` entries, which encodes any text; the same in every process.

    It is trained on the standard library, and wraps sequences as `<s> text </s>` or `<s> text </s> second </s>`.
    """
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=[PAD, START, END],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(list(snippets())[::TRAINING_SHARE], trainer)
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{START} $A {END}",
        pair=f"{START} $A {END} $B:1 {END}:1",
        special_tokens=[(token, tokenizer.token_to_id(token)) for token in (START, END)],
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token=PAD, bos_token=START, cls_token=START, eos_token=END, sep_token=END
    )


def shape_config(name: str, task: str, tokenizer: Any) -> Any:
    tasks = yaml.safe_load(SHAPES_FILE.read_text("utf-8"))[name]
    if task not in tasks:
        raise JobError(
            f"{name} is an encoder and cannot generate text; for causal-lm use tiny, gpt2, llama-1b or a Hub model"
        )
    tokens = {key: getattr(tokenizer, key) for key in ("pad_token_id", "bos_token_id", "eos_token_id")}
    if tasks[task]["model_type"] == "modernbert":
        tokens |= {"cls_token_id": tokens["bos_token_id"], "sep_token_id": tokens["eos_token_id"]}
    return AutoConfig.for_model(**tasks[task], **tokens)


@cache  # the tokenizer and the data need the same files
def source_files() -> list[tuple[str, str]]:
    """The top-level module and the text of each source of the standard library, in a fixed order.

    Tests and installed packages are left out. Raises `JobError` without any source.
    """
    folder = Path(sysconfig.get_path("stdlib"))
    files = []
    for path in sorted(folder.rglob("*.py")):
        inner = path.relative_to(folder)
        if not SKIPPED_FOLDERS.intersection(inner.parts):
            files.append((inner.parts[0].removesuffix(".py"), path.read_text("utf-8", errors="replace")))
    if not files:
        raise JobError(f"the standard library at {folder} has no source files; use a data file instead of `stdlib`")
    return files


@cache
def snippets() -> dict[str, str]:
    """Pieces of `LINES_PER_SNIPPET` non-blank lines with the module that each is from, the first of several.

    They are of the `LABEL_COUNT` largest modules, at most `SNIPPETS_PER_LABEL` of each, evenly spaced.
    """
    modules: dict[str, str] = {}
    for module, source in source_files():
        lines = [line.rstrip() for line in source.splitlines() if line.strip()]
        for start in range(0, len(lines) - LINES_PER_SNIPPET + 1, LINES_PER_SNIPPET):
            modules.setdefault("\n".join(lines[start : start + LINES_PER_SNIPPET]), module)
    texts: dict[str, list[str]] = defaultdict(list)
    for text, module in modules.items():
        texts[module].append(text)
    chosen: dict[str, str] = {}
    for module in sorted(sorted(texts, key=lambda module: (-len(texts[module]), module))[:LABEL_COUNT]):
        count = min(len(texts[module]), SNIPPETS_PER_LABEL)
        chosen |= {texts[module][index * len(texts[module]) // count]: module for index in range(count)}
    return chosen
