"""Turns the rows of a job into training data: class numbers, tokenised samples, blocks of tokens."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import datasets
import numpy as np

from ..config import JobArguments
from ..errors import JobError
from .sources import Columns, open_source, split_source

MOST_CLASSES = 10_000


def class_names(tables: Sequence[Any], column: str) -> list[str]:
    """The names of the classes in `column` of all `tables`, in the order of their numbers.

    A Hub dataset's own names are kept; numbers are in numeric order, strings in alphabetical. `JobError` for fractions,
    and where there is one class only.
    """
    own = getattr(tables[0].features[column], "names", None)
    if own:
        return list(own)
    if not isinstance(tables[0].features[column], datasets.Value):
        raise JobError(f"column `{column}` contains lists or records; classification needs one class per row")
    distinct = {value for table in tables for value in table[column]}
    if any(isinstance(value, float) and not value.is_integer() for value in distinct):
        raise JobError(f"column `{column}` contains fractions; classification needs classes")
    if not 1 < len(distinct) <= MOST_CLASSES:
        sort = (
            f"one class only ({next(iter(distinct))})" if len(distinct) == 1 else f"{len(distinct):,} different values"
        )
        raise JobError(f"column `{column}` contains {sort}; classification needs 2 to {MOST_CLASSES:,} classes")
    return [class_name(value) for value in sorted(distinct, key=lambda value: (isinstance(value, str), value))]


def class_name(value: Any) -> str:
    """The name of a class: 3 and 3.0 are both `3`."""
    return str(int(value)) if isinstance(value, float) else str(value)


def class_numbers(table: Any, column: str, names: Sequence[str]) -> list[int]:
    """The class number of each row of `table`."""
    if getattr(table.features[column], "names", None):
        return list(table[column])
    number = {name: index for index, name in enumerate(names)}
    return [number[class_name(value)] for value in table[column]]


# Less work than that is done before further processes have started and imported what they need.
ROWS_PER_PROCESS = 50_000
DOCUMENTS_PER_BATCH = 10_000


def tokenizer_processes(rows: int) -> int | None:
    """Number of processes for tokenising; None for small data, for which starting them takes longer than it saves.

    A fast tokenizer uses all cores for a batch; further processes only speed up reading and writing rows.
    """
    count = min(len(os.sched_getaffinity(0)), rows // ROWS_PER_PROCESS, 16)
    return count if count > 1 else None


def tokenize_classification(table: Any, columns: Columns, names: list[str], tokenizer: Any, max_length: int) -> Any:
    """Rows of `input_ids`, `attention_mask`, `labels` and `length` (tokens), not padded."""
    texts = [name for name in (columns.text, columns.pair) if name]
    encoded = encode(cast_to_text(table, texts), texts, tokenizer, {"truncation": True, "max_length": max_length})
    return encoded.add_column("labels", class_numbers(table, columns.label or "", names))


def encode(table: Any, texts: list[str], tokenizer: Any, options: dict[str, Any]) -> Any:
    """Tokenise the columns `texts`. Maps the tokenizer itself, which worker processes can unpickle."""
    return table.map(
        tokenizer,
        input_columns=texts,
        batched=True,
        fn_kwargs={**options, "return_length": True},
        remove_columns=table.column_names,
        num_proc=tokenizer_processes(len(table)),
        desc="tokenising",
    )


def cast_to_text(table: Any, columns: list[str]) -> Any:
    """`table` with `columns` as strings. Raises `JobError` if a column holds lists or records."""
    for name in columns:
        feature = table.features[name]
        if not isinstance(feature, datasets.Value):
            raise JobError(f"column `{name}` contains lists or records, not text")
        if feature.dtype not in ("string", "large_string"):
            table = table.cast_column(name, datasets.Value("string"))
    return table


def tokenize_blocks(table: Any, column: str, tokenizer: Any, max_length: int, max_blocks: int | None) -> Any:
    """Blocks of exactly `max_length` tokens cut from the concatenated documents, with `labels` equal to `input_ids`.

    The rest that fills no block is left out. `JobError` if nothing fills one.
    """
    texts = cast_to_text(table.select_columns([column]), [column])
    encoded = encode(texts, [column], tokenizer, {"return_attention_mask": False, "verbose": False})
    blocks = encoded.with_format("arrow").map(
        cut_blocks,
        batched=True,
        batch_size=DOCUMENTS_PER_BATCH,
        fn_kwargs={"size": max_length},
        remove_columns=encoded.column_names,
        desc="packing",
    )
    if len(blocks) == 0:
        raise JobError(
            f"the text is shorter than one block of max_length {max_length} tokens; use a smaller max_length"
        )
    if max_blocks is not None and len(blocks) > max_blocks:
        blocks = blocks.select(range(max_blocks))
    return blocks.with_format("numpy")


def cut_blocks(documents: Any, size: int) -> dict[str, Any]:
    """The concatenated `input_ids` of an Arrow table in rows of `size`; the remainder is dropped."""
    flat = np.concatenate([np.asarray(chunk.flatten()) for chunk in documents["input_ids"].chunks] or [np.empty(0)])
    blocks = flat[: len(flat) // size * size].reshape(-1, size).astype(np.int64)
    return {"input_ids": list(blocks), "labels": list(blocks)}


# English text has four to five characters per token. With twice that, documents that are hard to compress suffice too.
MAX_CHARACTERS_PER_TOKEN = 8
SHUFFLE_SEED = 0


@dataclass(frozen=True, slots=True)
class SplitData:
    """Rows of text for training and evaluation; `evaluation` is None if there is too little data.

    `class_names` is None for a language model.
    """

    train: Any
    evaluation: Any | None
    columns: Columns
    class_names: list[str] | None


@dataclass(frozen=True, slots=True)
class TokenizedData:
    """Tokenised tables; `evaluation` is None if there is too little data."""

    train: Any
    evaluation: Any | None


def open_split_data(job: JobArguments) -> SplitData:
    """Open and split the data of `job`. `max_samples` limits rows here, and blocks in `tokenize_data`."""
    source = open_source(job)
    if job.task == "causal-lm":
        return SplitData(*split_source(source, None), source.columns, None)
    train, evaluation = split_source(source, job.max_samples)
    tables = [table for table in (train, evaluation) if table is not None]
    return SplitData(train, evaluation, source.columns, class_names(tables, source.columns.label or ""))


def tokenize_data(job: JobArguments, opened: SplitData, tokenizer: Any) -> TokenizedData:
    """Tokenise: one sample per row for classification, blocks of `max_length` for a language model."""
    names, columns = opened.class_names, opened.columns

    def tokenised(table: Any, max_blocks: int | None) -> Any:
        if names is not None:
            return tokenize_classification(table, columns, names, tokenizer, job.max_length)
        return shuffled_blocks(table, columns.text, job.max_length, tokenizer, max_blocks)

    train = tokenised(opened.train, job.max_samples)
    if opened.evaluation is None:
        return TokenizedData(train, None)
    # A trial with few samples should not spend its time on evaluation.
    most = None if job.max_samples is None else max(1, job.max_samples // 4)
    return TokenizedData(train, tokenised(opened.evaluation, most))


def shuffled_blocks(table: Any, column: str, max_length: int, tokenizer: Any, count: int | None) -> Any:
    """At most `count` blocks from shuffled documents; tokenises no more documents than that needs."""
    mixed = table.shuffle(seed=SHUFFLE_SEED)
    if count is not None:
        mixed = mixed.select(range(documents_needed(mixed, column, count * max_length * MAX_CHARACTERS_PER_TOKEN)))
    return tokenize_blocks(mixed, column, tokenizer, max_length, count)


def documents_needed(table: Any, column: str, characters: int) -> int:
    """The number of leading documents that together hold `characters`, or all of them."""
    total = 0
    for index, row in enumerate(table.select_columns([column])):
        total += len(str(row[column]))
        if total >= characters:
            return index + 1
    return len(table)
