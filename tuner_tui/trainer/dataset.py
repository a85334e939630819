"""Opens the data of a job (the standard library, a local file or a Hub dataset), splits and tokenises it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import datasets
import numpy as np

from .built_in import snippets, source_files
from .job_file import STDLIB, JobArguments, JobError, first_line

READERS = {".csv": "csv", ".tsv": "csv", ".jsonl": "json", ".json": "json", ".parquet": "parquet"}
EVAL_NAMES = ("eval", "valid", "validation", "dev", "test")
# Only an empty cell is missing: words that pandas reads as missing (NA, None, null) are valid labels and texts.
CSV_OPTIONS = {"keep_default_na": False, "na_values": [""]}
EVAL_SHARE = 0.1
EVAL_SHARE_OF_SAMPLES = 4
MIN_EVAL_ROWS = 64
SPLIT_SEED = 0
ROWS_PER_BATCH = 10_000
MOST_CLASSES = 10_000
DOCUMENTS_PER_BATCH = 10_000
# English text has four to five characters per token. With twice that, documents that are hard to compress suffice too.
MAX_CHARACTERS_PER_TOKEN = 8


@dataclass(frozen=True, slots=True)
class SplitData:
    """Usable rows for training and evaluation, shuffled, and the names of the columns of text and label.

    `evaluation` is None if there is too little data, `label` for a language model.
    """

    train: Any
    evaluation: Any | None
    texts: list[str]
    label: str | None


def open_split_data(job: JobArguments) -> SplitData:
    """Open and split the data of `job`: without data for evaluation, a tenth of the rows is held out.

    `max_samples` limits the rows of a classification, and the evaluation to a quarter of it (at least 64), so that a
    short trial does not spend its time on evaluation. Raises `JobError` without a row to use or a column.
    """
    classify = job.task == "classification"
    texts, label = [job.text_column or "text"], (job.label_column or "label") if classify else None
    if job.data == STDLIB:
        train, evaluation, texts, label = open_stdlib(job.task), None, ["text"], "module" if classify else None
    else:
        path = Path(job.data).expanduser()
        train, evaluation = open_files(path) if path.exists() or path.suffix in READERS else open_hub_dataset(job.data)
        if classify and job.text_pair_column:
            texts.append(job.text_pair_column)
    columns = [*texts, label] if label else texts
    for name in columns:
        if name not in train.column_names:
            present = ", ".join(train.column_names)
            raise JobError(f"the data has no column `{name}`; it has {present}: set text_column and label_column")
    if evaluation is not None and not set(columns) <= set(evaluation.column_names):
        print(f"the evaluation data lacks one of {', '.join(columns)}: using a tenth of the training data instead")
        evaluation = None
    train = usable_rows(train, texts[0], label).shuffle(seed=SPLIT_SEED)
    if len(train) == 0:
        raise JobError("the data has no row with text" + (" and label" if label else ""))
    if evaluation is not None:
        evaluation = usable_rows(evaluation, texts[0], label).shuffle(seed=SPLIT_SEED)
    elif len(train) > 1:
        parts = train.train_test_split(test_size=max(1, round(len(train) * EVAL_SHARE)), shuffle=False)
        train, evaluation = parts["train"], parts["test"]
    if classify and job.max_samples is not None:
        train = first_rows(train, job.max_samples)
        evaluation = evaluation and first_rows(evaluation, max(MIN_EVAL_ROWS, job.max_samples // EVAL_SHARE_OF_SAMPLES))
    return SplitData(train, evaluation or None, texts, label)


def first_rows(table: Any, count: int) -> Any:
    """At most `count` rows of `table`."""
    return table.select(range(min(len(table), count)))


def open_stdlib(task: str) -> Any:
    """Labelled snippets of the standard library; whole files for a language model."""
    if task == "causal-lm":
        return datasets.Dataset.from_dict({"text": [text for _, text in source_files()]})
    modules = snippets()
    return datasets.Dataset.from_dict({"text": list(modules), "module": list(modules.values())})


def open_files(path: Path) -> tuple[Any, Any | None]:
    """The rows of a file and of the evaluation file in the same folder; a folder means its `train` file.

    The evaluation file of `train.csv` is `eval.csv`, that of `x-train.csv` is `x-valid.csv`.
    """
    if path.is_dir():
        path = next((path / f"train{suffix}" for suffix in READERS if (path / f"train{suffix}").is_file()), path)
    if path.suffix not in READERS or not path.is_file():
        wanted = "a file" if path.suffix in READERS else f"a {', '.join(READERS)} file or a folder with train.csv"
        raise JobError(f"data {path}: no such file" if not path.exists() else f"data {path} is not {wanted}")
    names = EVAL_NAMES if "train" in path.stem else ()
    evaluations = (path.with_name(path.stem.replace("train", name) + path.suffix) for name in names)
    evaluation = next((file for file in evaluations if file.is_file()), None)
    return read_table(path), read_table(evaluation) if evaluation else None


def read_table(path: Path) -> Any:
    """The rows of one local file, memory-mapped from the cache of `datasets`."""
    reader = READERS[path.suffix]
    options = {**CSV_OPTIONS, "sep": "\t" if path.suffix == ".tsv" else ","} if reader == "csv" else {}
    try:
        return datasets.load_dataset(reader, data_files=str(path.resolve()), split="train", **options)
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


def usable_rows(table: Any, text: str, label: str | None) -> Any:
    """The rows with text and, if there is a label column, a label (`-1` in a Hub dataset means none)."""
    missing = (None, "", -1) if label and hasattr(table.features[label], "names") else (None, "")
    used = table.select_columns([text, label] if label else [text])
    kept: list[int] = []
    for start in range(0, len(table), ROWS_PER_BATCH):
        batch = used[start : start + ROWS_PER_BATCH]
        labels = batch[label] if label else [0] * len(batch[text])
        rows = enumerate(zip(batch[text], labels, strict=True), start)
        kept += [index for index, (words, answer) in rows if str(words or "").strip() and answer not in missing]
    if len(kept) < len(table):
        print(f"left out {len(table) - len(kept):,} rows without text or label")
    return table.select(kept)


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
    """Tokenised tables: one sample per row for classification, not padded; blocks of `max_length` for a language model.

    `max_samples` limits blocks here, those of the evaluation to a quarter of it.
    """

    def tokenised(table: Any, max_blocks: int | None) -> Any:
        if names is not None:
            encoded = encode(table, rows.texts, tokenizer, {"truncation": True, "max_length": job.max_length})
            return encoded.add_column("labels", class_numbers(table, rows.label or "", names))
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
