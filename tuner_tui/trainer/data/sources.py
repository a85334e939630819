"""Opens the data of a job: the standard library, a local file or a Hub dataset."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import datasets

from ..cache import cache_folder
from ..errors import JobError, first_line
from ..hub import STDLIB
from ..job.config import JobArguments
from . import stdlib_corpus
from .columns import Columns, find_columns

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
