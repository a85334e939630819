"""Turns the rows of a job into training data: class numbers, tokenised samples, blocks of tokens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import datasets
import numpy as np

from ..config import JobArguments
from ..errors import JobError
from .sources import EVAL_SHARE_OF_SAMPLES, SplitData, first_rows

MOST_CLASSES = 10_000
DOCUMENTS_PER_BATCH = 10_000
# English text has four to five characters per token. With twice that, documents that are hard to compress suffice too.
MAX_CHARACTERS_PER_TOKEN = 8


def class_names(tables: Sequence[Any], column: str) -> list[str]:
    """The names of the classes in `column` of all `tables`, in the order of their numbers.

    A Hub dataset's own names are kept; numbers are in numeric order, strings in alphabetical. `JobError` for fractions,
    and where there is one class only.
    """
    feature = tables[0].features[column]
    if getattr(feature, "names", None):
        return list(feature.names)
    if not isinstance(feature, datasets.Value):
        raise JobError(f"column `{column}` contains lists or records; classification needs one class per row")
    distinct = {value for table in tables for value in table[column]}
    if any(isinstance(value, float) and not value.is_integer() for value in distinct):
        raise JobError(f"column `{column}` contains fractions; classification needs classes")
    if not 1 < len(distinct) <= MOST_CLASSES:
        raise JobError(f"column `{column}` contains {len(distinct):,} classes, not 2 to {MOST_CLASSES:,}")
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


def tokenize_data(job: JobArguments, rows: SplitData, names: list[str] | None, tokenizer: Any) -> SplitData:
    """Tokenised tables: one sample per row for classification, blocks of `max_length` for a language model.

    `max_samples` limits blocks here, those of the evaluation to a quarter of it.
    """

    def tokenised(table: Any, max_blocks: int | None) -> Any:
        if names is not None:
            return tokenize_classification(table, rows, names, tokenizer, job.max_length)
        if max_blocks is not None:
            characters = max_blocks * job.max_length * MAX_CHARACTERS_PER_TOKEN
            table = table.select(range(documents_needed(table, rows.texts[0], characters)))
        return tokenize_blocks(table, rows.texts[0], tokenizer, job.max_length, max_blocks)

    train = tokenised(rows.train, job.max_samples)
    most = None if job.max_samples is None else max(1, job.max_samples // EVAL_SHARE_OF_SAMPLES)
    return replace(rows, train=train, evaluation=rows.evaluation and tokenised(rows.evaluation, most))


def documents_needed(table: Any, column: str, characters: int) -> int:
    """The number of leading documents that together hold `characters`, or all of them."""
    total = 0
    for index, row in enumerate(table.select_columns([column])):
        total += len(str(row[column]))
        if total >= characters:
            return index + 1
    return len(table)


def tokenize_classification(table: Any, rows: SplitData, names: list[str], tokenizer: Any, max_length: int) -> Any:
    """Rows of `input_ids`, `attention_mask`, `labels` and `length` (tokens), not padded."""
    encoded = encode(table, rows.texts, tokenizer, {"truncation": True, "max_length": max_length})
    return encoded.add_column("labels", class_numbers(table, rows.label or "", names))


def tokenize_blocks(table: Any, column: str, tokenizer: Any, max_length: int, max_blocks: int | None) -> Any:
    """Blocks of exactly `max_length` tokens cut from the concatenated documents, with `labels` equal to `input_ids`.

    The rest that fills no block is left out. `JobError` if nothing fills one.
    """
    encoded = encode(table, [column], tokenizer, {"return_attention_mask": False, "verbose": False})
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
    return first_rows(blocks, max_blocks or len(blocks)).with_format("numpy")


def encode(table: Any, texts: list[str], tokenizer: Any, options: dict[str, Any]) -> Any:
    """Tokenise the columns `texts`. Raises `JobError` if one holds lists or records."""
    for name in texts:
        if not isinstance(table.features[name], datasets.Value):
            raise JobError(f"column `{name}` contains lists or records, not text")
        if table.features[name].dtype not in ("string", "large_string"):
            table = table.cast_column(name, datasets.Value("string"))
    return table.map(
        tokenizer,
        input_columns=texts,
        batched=True,
        fn_kwargs={**options, "return_length": True},
        remove_columns=table.column_names,
        desc="tokenising",
    )


def cut_blocks(documents: Any, size: int) -> dict[str, Any]:
    """The concatenated `input_ids` of an Arrow table in rows of `size`; the remainder is dropped."""
    flat = np.concatenate([np.asarray(chunk.flatten()) for chunk in documents["input_ids"].chunks] or [np.empty(0)])
    blocks = flat[: len(flat) // size * size].reshape(-1, size).astype(np.int64)
    return {"input_ids": list(blocks), "labels": list(blocks)}
