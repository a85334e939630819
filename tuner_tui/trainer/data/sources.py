"""Opens the data of a job (the standard library, a local file or a Hub dataset), finds its columns and splits its rows.

The split into training and evaluation is by a hash of the text: it is deterministic, and equal texts are never on both
sides. Rows without text or label are removed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import datasets

from ..cache import cache_folder
from ..config import JobArguments
from ..errors import JobError, first_line
from ..hub import STDLIB
from . import stdlib_corpus

TEXT_NAMES = (
    "text",
    "sentence",
    "sentence1",
    "premise",
    "question",
    "question1",
    "content",
    "review",
    "document",
    "body",
)
PAIR_NAMES = (
    ("premise", "hypothesis"),
    ("sentence1", "sentence2"),
    ("question", "sentence"),
    ("question1", "question2"),
    ("text", "text_pair"),
)
LABEL_NAMES = ("label", "labels", "target", "class", "category", "sentiment", "gold_label", "y")


@dataclass(frozen=True, slots=True)
class Columns:
    """The names of the columns in use; `pair` and `label` are None if there is none."""

    text: str
    pair: str | None = None
    label: str | None = None

    def used(self) -> list[str]:
        """The names that are not None."""
        return [name for name in (self.text, self.pair, self.label) if name is not None]


def find_columns(
    present: Sequence[str],
    task: str,
    text: str | None = None,
    pair: str | None = None,
    label: str | None = None,
) -> Columns:
    """The columns to use of those `present`: the ones named, else the ones with a usual name, in any case.

    Raises `JobError` if one is missing.
    """
    for name in (text, pair, label):
        if name is not None and name not in present:
            raise missing_column(f"column `{name}`", present)
    lower = {name.lower(): name for name in reversed(present)}
    usual_text, usual_pair = find_text_columns(lower)
    found_text, found_label = text or usual_text, label or first_present(LABEL_NAMES, lower)
    if found_text is None:
        raise missing_column("text column (set `text_column`)", present)
    if task == "causal-lm":
        return Columns(found_text)
    if found_label is None:
        raise missing_column("label column (set `label_column`)", present)
    return Columns(found_text, pair or (None if text else usual_pair), found_label)


def find_text_columns(lower: dict[str, str]) -> tuple[str | None, str | None]:
    """The columns of a usual pair of texts if both exist, else of a usual single text."""
    for text, pair in PAIR_NAMES:
        if text in lower and pair in lower:
            return lower[text], lower[pair]
    return first_present(TEXT_NAMES, lower), None


def first_present(names: Sequence[str], lower: dict[str, str]) -> str | None:
    """The column, in its own spelling, of the first of `names` that exists."""
    return next((lower[name] for name in names if name in lower), None)


def missing_column(what: str, present: Sequence[str]) -> JobError:
    """The error for a column that does not exist."""
    return JobError(f"the data has no {what}; it has {', '.join(present)}")


READERS = {".csv": "csv", ".tsv": "csv", ".jsonl": "json", ".json": "json", ".parquet": "parquet"}
EVAL_NAMES = ("eval", "valid", "validation", "dev", "test")
# Only an empty cell is missing: words that pandas reads as missing (NA, None, null) are valid labels and texts.
CSV_OPTIONS = {"keep_default_na": False, "na_values": [""]}


@dataclass(frozen=True, slots=True)
class RawData:
    """Tables as they were read, `evaluation` None if there is only one, and the columns in use."""

    train: Any
    evaluation: Any | None
    columns: Columns


def open_source(job: JobArguments) -> RawData:
    """Open the data of `job`. Raises `JobError` if it cannot be read or lacks a column."""
    if job.data == STDLIB:
        return open_stdlib(job.task)
    path = Path(job.data).expanduser()
    train, evaluation = open_files(path) if path.exists() or path.suffix in READERS else open_hub_dataset(job.data)
    columns = find_columns(train.column_names, job.task, job.text_column, job.text_pair_column, job.label_column)
    if evaluation is not None and not set(columns.used()) <= set(evaluation.column_names):
        print(
            f"the evaluation data lacks one of {', '.join(columns.used())}: using a tenth of the training data instead"
        )
        evaluation = None
    return RawData(train, evaluation, columns)


def open_stdlib(task: str) -> RawData:
    """Labelled snippets of the standard library; whole files for a language model."""
    files = stdlib_corpus.source_files(stdlib_corpus.library_folder())
    if task == "causal-lm":
        return RawData(datasets.Dataset.from_dict({"text": [file.text for file in files]}), None, Columns("text"))
    snippets = stdlib_corpus.snippets(files)
    rows = {"text": [s.text for s in snippets], "module": [s.module for s in snippets]}
    return RawData(datasets.Dataset.from_dict(rows), None, Columns("text", label="module"))


def open_files(path: Path) -> tuple[Any, Any | None]:
    """The rows of a file and of the evaluation file in the same folder; a folder means its `train` file."""
    if path.is_dir():
        path = next((path / f"train{suffix}" for suffix in READERS if (path / f"train{suffix}").is_file()), path)
    if path.suffix not in READERS or not path.is_file():
        wanted = "a file" if path.suffix in READERS else f"a {', '.join(READERS)} file or a folder with train.csv"
        raise JobError(f"data {path}: no such file" if not path.exists() else f"data {path} is not {wanted}")
    evaluation = find_evaluation_file(path)
    return read_table(path), read_table(evaluation) if evaluation else None


def find_evaluation_file(train: Path) -> Path | None:
    """The evaluation file of a training file: `eval.csv` for `train.csv`, `x-valid.csv` for `x-train.csv`."""
    if "train" not in train.stem:
        return None
    names = [train.with_name(train.stem.replace("train", name) + train.suffix) for name in EVAL_NAMES]
    return next((path for path in names if path.is_file()), None)


def read_table(path: Path) -> Any:
    """The rows of one local file, memory-mapped from the cache folder."""
    reader = READERS[path.suffix]
    options = {**CSV_OPTIONS, "sep": "\t" if path.suffix == ".tsv" else ","} if reader == "csv" else {}
    try:
        return datasets.load_dataset(
            reader,
            data_files=str(path.resolve()),
            split="train",
            cache_dir=str(cache_folder("datasets")),
            **options,
        )
    except (datasets.exceptions.DatasetGenerationError, ValueError) as error:
        if "corresponds to no data" in str(error):  # the message of `datasets` for a file with only a header
            raise JobError(f"data {path} has no rows") from error
        raise JobError(f"data {path} cannot be read: {first_line(error.__cause__ or error)}") from error


def open_hub_dataset(name: str) -> tuple[Any, Any | None]:
    """The training and evaluation splits of the Hub dataset `name`."""
    try:
        splits = datasets.load_dataset(name)
    except (OSError, ValueError, RuntimeError) as error:
        raise JobError(f"data {name}: neither a local file nor a reachable dataset: {first_line(error)}") from error
    train = splits["train"] if "train" in splits else splits[next(iter(splits))]
    return train, next((splits[key] for key in EVAL_NAMES if key in splits and splits[key] is not train), None)


EVAL_SHARE = 0.1
EVAL_PER_TRAIN_SAMPLE = 0.25
MIN_EVAL_ROWS = 64
ROWS_PER_BATCH = 10_000


Row = tuple[int, int]
"""Index of a usable row, and the hash of its text, by which rows are chosen."""


def split_source(source: RawData, max_samples: int | None) -> tuple[Any, Any | None]:
    """Training and evaluation tables of usable rows. A source without evaluation has a tenth of its rows held out.

    `max_samples` limits the training rows, and a quarter of it (at least 64) the evaluation rows, so that a short trial
    does not spend its time on evaluation. Raises `JobError` without any usable row.
    """
    train_rows = usable_rows(source.train, source.columns)
    if not train_rows:
        raise JobError("the data has no row with text" + (" and label" if source.columns.label else ""))
    if source.evaluation is not None:
        eval_table, eval_rows = source.evaluation, usable_rows(source.evaluation, source.columns)
    else:
        eval_table, (train_rows, eval_rows) = source.train, hold_out(train_rows)
    if max_samples is not None:
        train_rows = limit_rows(train_rows, max_samples)
        eval_rows = limit_rows(eval_rows, max(MIN_EVAL_ROWS, int(max_samples * EVAL_PER_TRAIN_SAMPLE)))
    evaluation = select_rows(eval_table, eval_rows) if eval_rows else None
    return select_rows(source.train, train_rows), evaluation


def usable_rows(table: Any, columns: Columns) -> list[Row]:
    """The rows with text and, if there is a label column, a label (`-1` in a Hub dataset means none)."""
    no_label = -1 if columns.label and hasattr(table.features[columns.label], "names") else None
    rows = [
        (index, hash_text([str(row[name]) for name in (columns.text, columns.pair) if name]))
        for index, row in enumerate(iter_rows(table, columns))
        if is_usable(row, columns, no_label)
    ]
    if len(rows) < len(table):
        print(f"left out {len(table) - len(rows):,} rows without text or label")
    return rows


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


def hold_out(rows: list[Row]) -> tuple[list[Row], list[Row]]:
    """Split `rows` into training and evaluation: the tenth with the lowest hashes is held out.

    Equal texts have equal hashes and stay together. If all rows have one text, all of them are for training.
    """
    # A border in the hashes instead of a random choice of rows: rows with the same text fall on the same side, and a
    # row that is added to the file moves hardly any other one.
    count = max(1, round(len(rows) * EVAL_SHARE))
    border = sorted(value for _, value in rows)[count - 1]
    train = [row for row in rows if row[1] > border]
    return (train, [row for row in rows if row[1] <= border]) if train else (rows, [])


def limit_rows(rows: list[Row], count: int) -> list[Row]:
    """At most `count` rows, those with the highest hashes: a deterministic random sample."""
    return sorted(sorted(rows, key=lambda row: (row[1], row[0]), reverse=True)[:count])


def select_rows(table: Any, rows: list[Row]) -> Any:
    """The rows as a table."""
    return table.select([index for index, _ in rows])
