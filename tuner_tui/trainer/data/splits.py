"""Splits rows into training and evaluation, by a hash of their text.

The split is deterministic, and equal texts are never on both sides. Rows without text or label are removed.
"""

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
    """Indices of usable rows, each with a hash of its text, by which rows are chosen."""

    indices: tuple[int, ...]
    hashes: tuple[int, ...]
    dropped: int = 0


def split_source(source: RawData, max_samples: int | None) -> tuple[Any, Any | None]:
    """Training and evaluation tables of usable rows. A source without evaluation has a tenth of its rows held out.

    `max_samples` limits the training rows, and a quarter of it (at least 64) the evaluation rows, so that a short trial
    does not spend its time on evaluation. Raises `JobError` without any usable row.
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
    """The rows with text and, if there is a label column, a label (`-1` in a Hub dataset means none)."""
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
    """Whether a row has text and the label it needs."""
    text = row[columns.text]
    if text is None or not str(text).strip():
        return False
    if columns.label is None:
        return True
    label = row[columns.label]
    return label is not None and label != "" and (no_label is None or label != no_label)


def hash_text(texts: Sequence[str]) -> int:
    """A uniform 64-bit hash of the texts."""
    return int.from_bytes(hashlib.blake2b("\0".join(texts).encode(), digest_size=8).digest(), "big")


def hold_out(rows: RowSelection, share: float) -> tuple[RowSelection, RowSelection]:
    """Split `rows` into training and evaluation: the share with the lowest hashes is held out.

    Equal texts have equal hashes and stay together. If all rows have one text, all of them are for training.
    """
    count = max(1, round(len(rows.indices) * share))
    border = sorted(rows.hashes)[count - 1]
    pairs = list(zip(rows.indices, rows.hashes, strict=True))
    train = [pair for pair in pairs if pair[1] > border]
    if not train:
        return rows, RowSelection((), ())
    return select_rows(train), select_rows([pair for pair in pairs if pair[1] <= border])


def limit_rows(rows: RowSelection, count: int) -> RowSelection:
    """At most `count` rows, those with the highest hashes: a deterministic random sample."""
    pairs = sorted(zip(rows.hashes, rows.indices, strict=True), reverse=True)[:count]
    return select_rows(sorted((index, value) for value, index in pairs))


def select_rows(pairs: Sequence[tuple[int, int]]) -> RowSelection:
    """Rows from (index, hash) pairs."""
    return RowSelection(tuple(index for index, _ in pairs), tuple(value for _, value in pairs))
