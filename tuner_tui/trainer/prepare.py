"""The data of a job, ready for the model: opened, split, tokenised."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from .columns import Columns
from .config import JobArguments
from .labels import class_names
from .sources import open_source
from .splits import split_source
from .tokenise import causal_table, classification_table

CHARACTERS_A_TOKEN = 8
SHUFFLE_SEED = 0


@dataclass(frozen=True, slots=True)
class Opened:
    """Rows of text to train and to evaluate on; `evaluation` is None where there is too little data.

    `class_names` is None for a language model.
    """

    train: Any
    evaluation: Any | None
    columns: Columns
    class_names: list[str] | None


@dataclass(frozen=True, slots=True)
class Prepared:
    """Tokenised tables; `evaluation` is None where there is too little data."""

    train: Any
    evaluation: Any | None


def open_data(job: JobArguments) -> Opened:
    """Open and split the data of `job`. `max_samples` counts rows here; for a language model, blocks later on."""
    source = open_source(job)
    if job.task == "causal-lm":
        return Opened(*split_source(source, None), source.columns, None)
    train, evaluation = split_source(source, job.max_samples)
    tables = [table for table in (train, evaluation) if table is not None]
    return Opened(train, evaluation, source.columns, class_names(tables, source.columns.label or ""))


def prepare(job: JobArguments, opened: Opened, tokenizer: Any) -> Prepared:
    """Tokenise: a row a sample for classification, blocks of `max_length` for a language model."""
    names, columns = opened.class_names, opened.columns

    def tokenised(table: Any, max_blocks: int | None) -> Any:
        if names is not None:
            return classification_table(table, columns, names, tokenizer, job.max_length)
        return blocks(table, columns.text, job.max_length, tokenizer, max_blocks)

    train = tokenised(opened.train, job.max_samples)
    held_out = opened.evaluation
    return Prepared(train, None if held_out is None else tokenised(held_out, quarter(job.max_samples)))


def quarter(count: int | None) -> int | None:
    """A quarter of `count`, at least one; None stays None."""
    return None if count is None else max(1, count // 4)


def blocks(table: Any, column: str, max_length: int, tokenizer: Any, count: int | None) -> Any:
    """At most `count` blocks of `table`, from documents in mixed order; no more is tokenised than they need."""
    mixed = table.shuffle(seed=SHUFFLE_SEED)
    if count is not None:
        mixed = mixed.select(range(documents_needed(mixed, column, count * max_length * CHARACTERS_A_TOKEN)))
    return causal_table(mixed, column, tokenizer, max_length, count)


def documents_needed(table: Any, column: str, characters: int) -> int:
    """How many documents from the first hold `characters`; all of them if they hold fewer."""
    total = 0
    for index, row in enumerate(table.select_columns([column])):
        total += len(str(row[column]))
        if total >= characters:
            return index + 1
    return len(table)
