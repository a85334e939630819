"""Which rows train and which evaluate: unusable rows out, one text never on both sides, the same choice every time."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from ..errors import JobError
from .columns import Columns
from .sources import RawData

EVAL_SHARE = 0.1
EVAL_PER_TRAIN_SAMPLE = 0.25
MIN_EVAL_ROWS = 64
ROWS_PER_BATCH = 10_000


@dataclass(frozen=True, slots=True)
class RowSelection:
    """Usable rows of a table, by row number, each with a hash of its text: the key of every choice made below."""

    indices: tuple[int, ...]
    hashes: tuple[int, ...]
    dropped: int = 0


def split_source(source: RawData, max_samples: int | None) -> tuple[Any, Any | None]:
    """Training and evaluation tables without unusable rows; a tenth is set apart where the source has no evaluation.

    `max_samples` bounds the training rows, and the evaluation rows to a quarter of it (at least 64), so that a short
    trial is not spent on evaluating.
    """
    train_rows = usable_rows(source.train, source.columns)
    if not train_rows.indices:
        raise JobError("the data has no row with text" + (" and label" if source.columns.label else ""))
    if source.evaluation is not None:
        eval_table, eval_rows = source.evaluation, usable_rows(source.evaluation, source.columns)
    else:
        eval_table, (train_rows, eval_rows) = source.train, hold_out(train_rows, EVAL_SHARE)
    if max_samples is not None:
        train_rows = limit_rows(train_rows, max_samples)
        eval_rows = limit_rows(eval_rows, max(MIN_EVAL_ROWS, int(max_samples * EVAL_PER_TRAIN_SAMPLE)))
    evaluation = eval_table.select(eval_rows.indices) if eval_rows.indices else None
    return source.train.select(train_rows.indices), evaluation


def usable_rows(table: Any, columns: Columns) -> RowSelection:
    """The rows that have text and, where there is a label column, a label (`-1` in a Hub dataset means none)."""
    kept: list[int] = []
    hashes: list[int] = []
    no_label = -1 if columns.label and hasattr(table.features[columns.label], "names") else None
    for index, row in enumerate(iter_rows(table, columns)):
        if is_usable(row, columns, no_label):
            kept.append(index)
            hashes.append(hash_text([str(row[name]) for name in (columns.text, columns.pair) if name]))
    dropped = len(table) - len(kept)
    if dropped:
        print(f"left out {dropped:,} rows without text or label")
    return RowSelection(tuple(kept), tuple(hashes), dropped)


def iter_rows(table: Any, columns: Columns) -> Iterator[dict[str, Any]]:
    """The used columns of every row, read in batches."""
    names = columns.used()
    for batch in table.select_columns(names).iter(batch_size=ROWS_PER_BATCH):
        for row in zip(*(batch[name] for name in names), strict=True):
            yield dict(zip(names, row, strict=True))


def is_usable(row: dict[str, Any], columns: Columns, no_label: int | None) -> bool:
    """Whether a row can train."""
    text = row[columns.text]
    if text is None or not str(text).strip():
        return False
    if columns.label is None:
        return True
    label = row[columns.label]
    return label is not None and label != "" and (no_label is None or label != no_label)


def hash_text(texts: Sequence[str]) -> int:
    """A number that depends on the texts alone, spread evenly over 64 bits."""
    return int.from_bytes(hashlib.blake2b("\0".join(texts).encode(), digest_size=8).digest(), "big")


def hold_out(rows: RowSelection, share: float) -> tuple[RowSelection, RowSelection]:
    """`rows` parted into training and evaluation by hash: equal texts stay together, a lone text stays in training."""
    count = max(1, round(len(rows.indices) * share))
    border = sorted(rows.hashes)[count - 1]
    pairs = list(zip(rows.indices, rows.hashes, strict=True))
    train = [pair for pair in pairs if pair[1] > border]
    if not train:
        return rows, RowSelection((), ())
    return select_rows(train), select_rows([pair for pair in pairs if pair[1] <= border])


def limit_rows(rows: RowSelection, count: int) -> RowSelection:
    """At most `count` rows, those of highest hash: a fair draw, the same every time."""
    pairs = sorted(zip(rows.hashes, rows.indices, strict=True), reverse=True)[:count]
    return select_rows(sorted((index, value) for value, index in pairs))


def select_rows(pairs: Sequence[tuple[int, int]]) -> RowSelection:
    """Rows from (index, hash) pairs."""
    return RowSelection(tuple(index for index, _ in pairs), tuple(value for _, value in pairs))
