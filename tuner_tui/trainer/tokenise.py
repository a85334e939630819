"""From rows of text to tokens: a row a sample for classification, packed into blocks for language models."""

from __future__ import annotations

import os
from typing import Any

import datasets
import numpy as np

from .columns import Columns
from .errors import JobError
from .labels import class_numbers

ROWS_WORTH_A_PROCESS = 50_000
DOCUMENTS_A_BATCH = 10_000


def worker_count(rows: int) -> int | None:
    """Processes for tokenising: None (this one) for small data, where starting them would cost more than it saves.

    A fast tokenizer uses every core for a batch by itself; further processes only speed up what surrounds it.
    """
    count = min(len(os.sched_getaffinity(0)), rows // ROWS_WORTH_A_PROCESS, 16)
    return count if count > 1 else None


def classification_table(table: Any, columns: Columns, names: list[str], tokenizer: Any, max_length: int) -> Any:
    """Rows of `input_ids`, `attention_mask`, `labels` and `length` (tokens), not padded."""
    texts = [name for name in (columns.text, columns.pair) if name]
    encoded = encode(as_text(table, texts), texts, tokenizer, {"truncation": True, "max_length": max_length})
    return encoded.add_column("labels", class_numbers(table, columns.label or "", names))


def encode(table: Any, texts: list[str], tokenizer: Any, options: dict[str, Any]) -> Any:
    """The tokens of the columns `texts`. The tokenizer itself is what is mapped, so that a worker process finds it."""
    return table.map(
        tokenizer,
        input_columns=texts,
        batched=True,
        fn_kwargs={**options, "return_length": True},
        remove_columns=table.column_names,
        num_proc=worker_count(len(table)),
        desc="tokenising",
    )


def as_text(table: Any, columns: list[str]) -> Any:
    """`table` with `columns` as strings; `JobError` where a column holds lists or records."""
    for name in columns:
        feature = table.features[name]
        if not isinstance(feature, datasets.Value):
            raise JobError(f"column `{name}` holds lists or records, not text")
        if feature.dtype not in ("string", "large_string"):
            table = table.cast_column(name, datasets.Value("string"))
    return table


def causal_table(table: Any, column: str, tokenizer: Any, max_length: int, max_blocks: int | None) -> Any:
    """Blocks of exactly `max_length` tokens cut from all documents in a row, with `labels` equal to `input_ids`.

    The rest that fills no block is left out. `JobError` if nothing fills one.
    """
    texts = as_text(table.select_columns([column]), [column])
    encoded = encode(texts, [column], tokenizer, {"return_attention_mask": False, "verbose": False})
    blocks = encoded.with_format("arrow").map(
        cut_blocks,
        batched=True,
        batch_size=DOCUMENTS_A_BATCH,
        fn_kwargs={"size": max_length},
        remove_columns=encoded.column_names,
        desc="packing",
    )
    if len(blocks) == 0:
        raise JobError(f"the text fills not one block of max_length {max_length} tokens; take a smaller max_length")
    if max_blocks is not None and len(blocks) > max_blocks:
        blocks = blocks.select(range(max_blocks))
    return blocks.with_format("numpy")


def cut_blocks(documents: Any, size: int) -> dict[str, Any]:
    """The tokens of an Arrow table's `input_ids`, end to end, in rows of `size`."""
    flat = np.concatenate([np.asarray(chunk.flatten()) for chunk in documents["input_ids"].chunks] or [np.empty(0)])
    blocks = flat[: len(flat) // size * size].reshape(-1, size).astype(np.int64)
    return {"input_ids": list(blocks), "labels": list(blocks)}
