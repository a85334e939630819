"""Measures how long the samples of a data set are.

Nothing is downloaded: local files, and what the caches of `datasets` and `transformers` hold.
"""

from __future__ import annotations

import json
import os
import random
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from .job_file import JobError, first_line

SEED = 7
MOST_FILE_BYTES = 2**28
"""More of a JSON Lines or text file is not read."""
TURNS = ("messages", "conversations", "conversation", "dialog")
TURN_TEXTS = ("content", "value", "text")
PARTS = (
    ("prompt", "completion"), ("prompt", "chosen"), ("prompt", "response"), ("instruction", "input", "output"),
    ("instruction", "response"), ("question", "answer"), ("query", "response"), ("text",), ("content",),
)  # fmt: skip
"""Columns that make a sample together, the first that a row has."""


def answer_request(request: Mapping[str, Any]) -> dict[str, Any]:
    """The lengths, or `{"problem": sentence}` if nothing can be read."""
    os.environ |= {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1"}
    try:
        return measure(request)
    except JobError as error:
        return {"problem": str(error)}


def measure(request: Mapping[str, Any]) -> dict[str, Any]:
    """`lengths` of a random sample, `total` samples, and the `unit` of the lengths. Raises `JobError`."""
    opened = [open_rows(name, Path(request["folder"]), request["most"]) for name in request["data"]]
    rows = [row for part, _ in opened for row in part]
    if not rows:
        raise JobError("the data has no rows")
    if {"query", "pos"} <= rows[0].keys():
        raise JobError("each row of the data is several pairs of texts")
    random.Random(SEED).shuffle(rows)  # noqa: S311  reproducible
    count, unit = make_counter(request["model"])
    until = time.monotonic() + request["seconds"]  # from here on: importing what reads the data may take as long
    lengths: list[int] = []
    for row in rows[: request["most"]]:
        ids = row.get("input_ids")
        lengths.append(len(ids) if isinstance(ids, list) else count(sample_text(row)))
        if time.monotonic() > until:
            break
    return {"lengths": lengths, "total": sum(total for _, total in opened), "unit": unit}


def open_rows(name: str, folder: Path, most: int) -> tuple[list[Mapping[str, Any]], int]:
    """Rows and their number in the data: a local file or folder, LLaMA-Factory's name for one, or a cached data set.

    Of a table, which is not read whole, at most `most` rows drawn at random.
    """
    listed = find_listed(name, folder)
    if listed is not None and not listed.exists():
        raise JobError(f"data {name}: {listed}, which dataset_info.json has for it, does not exist")
    path = listed or folder / Path(name).expanduser()
    texts: list[Path] = []
    if path.is_dir():
        entries = sorted(entry for entry in path.iterdir() if not entry.name.startswith("."))
        # Texts next to other files or folders are notes on the data.
        texts = entries if all(entry.suffix == ".txt" for entry in entries) else []
        path = next((entry for entry in entries if entry.suffix in (".jsonl", ".json", ".parquet", ".csv")), path)
    if texts:
        rows: list[Mapping[str, Any]] = [{"text": "\n".join(read_lines(text))} for text in texts]
    elif path.suffix == ".txt" and path.is_file():
        rows = [{"text": line} for line in read_lines(path)]
    elif path.suffix in (".jsonl", ".json") and path.is_file():
        rows = list(read_json(path))
    else:
        from .dataset import open_files, open_hub_dataset

        table, _ = open_files(path) if path.exists() else open_hub_dataset(name)
        chosen = random.Random(SEED).sample(range(len(table)), min(len(table), most))  # noqa: S311
        return [table[index] for index in chosen], len(table)
    return rows, len(rows)


def find_listed(name: str, folder: Path) -> Path | None:
    """The file that LLaMA-Factory's `dataset_info.json` has for the name; None without one."""
    for directory in (folder / "data", folder):
        try:
            entry = json.loads((directory / "dataset_info.json").read_text(encoding="utf-8")).get(name)
        except (OSError, ValueError, AttributeError):
            continue
        if isinstance(entry, dict) and isinstance(entry.get("file_name"), str):
            return Path(directory, entry["file_name"])
    return None


def read_json(path: Path) -> Iterator[Mapping[str, Any]]:
    """The objects of a JSON Lines file, or of a JSON list. Raises `JobError`."""
    lines = read_lines(path)
    try:
        whole = lines and lines[0].lstrip().startswith("[")
        rows = json.loads("\n".join(lines)) if whole else (json.loads(line) for line in lines)
        yield from (row for row in rows if isinstance(row, dict))
    except ValueError as error:
        raise JobError(f"data {path} cannot be read: {first_line(error)}") from error


def read_lines(path: Path) -> list[str]:
    """The lines of a file that hold something, of a large file the first ones."""
    with path.open(encoding="utf-8", errors="replace") as file:
        return [line for line in file.readlines(MOST_FILE_BYTES) if line.strip()]


def make_counter(model: str | None) -> tuple[Callable[[str], int], str]:
    """What counts the tokens of a text, and its unit; by the length of the text where there is no tokenizer here."""
    if model is not None:
        from transformers import AutoTokenizer

        try:
            tokenizer = AutoTokenizer.from_pretrained(model)
        except (OSError, ValueError, KeyError, ImportError):
            pass
        else:
            return lambda text: len(tokenizer(text, verbose=False)["input_ids"]), "tokens"
    return lambda text: max(1, len(text) // 4), "tokens, taken as 4 characters each"


def sample_text(row: Mapping[str, Any]) -> str:
    """The text of a row: its turns, the columns of a usual form, else all of its texts."""
    for key in TURNS:
        turns = row.get(key)
        if isinstance(turns, list):
            return "\n".join(text for turn in turns if (text := turn_text(turn)))
    names = next((names for names in PARTS if all(name in row for name in names)), tuple(row))
    return "\n".join(text for name in names if (text := turn_text(row.get(name))))


def turn_text(value: object) -> str:
    """A text, that of a turn of a conversation, or of several turns."""
    if isinstance(value, list):
        return "\n".join(turn_text(turn) for turn in value)
    if isinstance(value, dict):
        named = next((turn_text(value[key]) for key in TURN_TEXTS if key in value), None)
        return turn_text([*value.values()]) if named is None else named
    return value if isinstance(value, str) else ""
