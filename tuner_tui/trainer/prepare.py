"""The data of a job, ready for the model: opened, split, tokenised."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from .config import JobArguments
from .labels import class_names
from .sources import Source, open_source
from .splits import split_source
from .tokenise import causal_table, classification_table

CHARACTERS_A_TOKEN = 8
SHUFFLE_SEED = 0


@dataclass(frozen=True, slots=True)
class Prepared:
    """Tokenised tables; `evaluation` is None where there is too little data, `class_names` for a language model."""

    train: Any
    evaluation: Any | None
    class_names: list[str] | None


def prepare(job: JobArguments, tokenizer: Any) -> Prepared:
    """Open, split and tokenise the data that `job` names."""
    source = open_source(job)
    return (
        prepare_causal(job, source, tokenizer)
        if job.task == "causal-lm"
        else prepare_classes(job, source, tokenizer)
    )


def prepare_classes(job: JobArguments, source: Source, tokenizer: Any) -> Prepared:
    """One row a sample, labelled by class number."""
    train, evaluation = split_source(source, job.max_samples)
    columns = source.columns
    tables = [table for table in (train, evaluation) if table is not None]
    names = class_names(tables, columns.label or "")
    encoded = [classification_table(table, columns, names, tokenizer, job.max_length) for table in tables]
    return Prepared(encoded[0], encoded[1] if len(encoded) > 1 else None, names)


def prepare_causal(job: JobArguments, source: Source, tokenizer: Any) -> Prepared:
    """Blocks of `max_length` tokens; `max_samples` counts blocks, a quarter of it for evaluation."""
    train, evaluation = split_source(source, None)
    return Prepared(
        blocks(train, job, source, tokenizer, job.max_samples),
        None if evaluation is None else blocks(evaluation, job, source, tokenizer, quarter(job.max_samples)),
        None,
    )


def quarter(count: int | None) -> int | None:
    """A quarter of `count`, at least one; None stays None."""
    return None if count is None else max(1, count // 4)


def blocks(table: Any, job: JobArguments, source: Source, tokenizer: Any, count: int | None) -> Any:
    """At most `count` blocks of `table`, from documents in mixed order; no more is tokenised than they need."""
    column = source.columns.text
    mixed = table.shuffle(seed=SHUFFLE_SEED)
    if count is not None:
        mixed = mixed.select(
            range(documents_needed(mixed, column, count * job.max_length * CHARACTERS_A_TOKEN))
        )
    return causal_table(mixed, column, tokenizer, job.max_length, count)


def documents_needed(table: Any, column: str, characters: int) -> int:
    """How many documents from the first hold `characters`; all of them if they hold fewer."""
    total = 0
    for index, row in enumerate(table.select_columns([column])):
        total += len(str(row[column]))
        if total >= characters:
            return index + 1
    return len(table)
