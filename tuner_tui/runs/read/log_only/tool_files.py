"""Parses progress files of LLaMA-Factory, ms-swift and Lightning, and `trainer_state.json` of Trainer."""

from __future__ import annotations

import csv
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tuner_tui.core.files import open_regular
from tuner_tui.runs.read.log_only.output_lines import ProgressRecord, parse_count, parse_duration, parse_number

MAX_READ_BYTES = 8 << 20
"""Only the end of a longer file is read."""

PLACES = (
    "trainer_log.jsonl", "*/trainer_log.jsonl", "logging.jsonl", "*/logging.jsonl", "metrics.csv",
    "lightning_logs/*/metrics.csv", "*/metrics.csv", "checkpoint-*/trainer_state.json",
)  # fmt: skip
"""Patterns below an output folder or the working folder; deeper folders are not searched."""


def find_tool_files(folders: Sequence[Path], since_t: float) -> list[Path]:
    """The files of tools in `folders` that were written after `since_t`, newest last."""
    found: dict[Path, float] = {}
    for folder in folders:
        for pattern in PLACES:
            for path in folder.glob(pattern):
                try:
                    written = path.stat().st_mtime
                except OSError:
                    continue
                if written >= since_t:
                    found[path] = written
    return sorted(found, key=lambda path: found[path])


def read_tool_file(path: Path) -> list[ProgressRecord]:
    """The progress records of the file, oldest first; none if it cannot be read or parsed."""
    read = _READERS.get(path.name)
    try:
        with os.fdopen(open_regular(path, follow_links=True), "rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - MAX_READ_BYTES))
            text = file.read(MAX_READ_BYTES).decode("utf-8", "replace")
        return [] if read is None else list(read(text))
    except (OSError, ValueError, RecursionError, csv.Error):
        return []


def trainer_log(text: str) -> Iterator[ProgressRecord]:
    """Records of LLaMA-Factory's `trainer_log.jsonl`."""
    for line in _objects(text):
        yield ProgressRecord(
            "trainer_log.jsonl",
            step=parse_count(line.get("current_steps")),
            total_steps=parse_count(line.get("total_steps")),
            elapsed_s=parse_duration(line.get("elapsed_time")),
            loss=parse_number(line.get("loss")),
            learning_rate=parse_number(line.get("lr", line.get("learning_rate"))),
            epoch=parse_number(line.get("epoch")),
            evaluation=_evaluation(line),
        )


def logging_jsonl(text: str) -> Iterator[ProgressRecord]:
    """Records of ms-swift's `logging.jsonl`; the value of `global_step/max_steps` is a text such as `10/100`."""
    for line in _objects(text):
        step, _, total = str(line.get("global_step/max_steps", "")).partition("/")
        yield ProgressRecord(
            "logging.jsonl",
            step=parse_count(step),
            total_steps=parse_count(total),
            elapsed_s=parse_duration(line.get("elapsed_time")),
            loss=parse_number(line.get("loss")),
            learning_rate=parse_number(line.get("learning_rate")),
            grad_norm=parse_number(line.get("grad_norm")),
            epoch=parse_number(line.get("epoch")),
            evaluation=_evaluation(line),
        )


def metrics_csv(text: str) -> Iterator[ProgressRecord]:
    """Records of Lightning's `metrics.csv`: one column for each metric, empty where it was not logged; steps start at
    0."""
    for row in csv.DictReader(text.splitlines()):
        step = parse_count(row.get("step"))
        numbers = {name: found for name, cell in row.items() if name and (found := parse_number(cell)) is not None}
        loss = next((numbers[name] for name in ("train_loss", "loss", "train_loss_step") if name in numbers), None)
        rate = next((value for name, value in numbers.items() if name.startswith("lr")), None)
        checked = {name: value for name, value in numbers.items() if name.startswith(("val_", "test_"))}
        yield ProgressRecord(
            "metrics.csv",
            step=None if step is None else step + 1,
            loss=loss,
            learning_rate=rate,
            epoch=numbers.get("epoch"),
            evaluation=checked,
        )


def trainer_state(text: str) -> Iterator[ProgressRecord]:
    """Records of the log history in a checkpoint of Trainer."""
    state = json.loads(text)
    if not isinstance(state, dict) or not isinstance(state.get("log_history"), list):
        return
    total = parse_count(state.get("max_steps"))
    for line in (each for each in state["log_history"] if isinstance(each, dict)):
        yield ProgressRecord(
            "trainer_state.json",
            step=parse_count(line.get("step")),
            total_steps=total,
            loss=parse_number(line.get("loss")),
            learning_rate=parse_number(line.get("learning_rate")),
            grad_norm=parse_number(line.get("grad_norm")),
            epoch=parse_number(line.get("epoch")),
            evaluation=_evaluation(line),
        )


_READERS: Mapping[str, Callable[[str], Iterator[ProgressRecord]]] = {
    "trainer_log.jsonl": trainer_log,
    "logging.jsonl": logging_jsonl,
    "metrics.csv": metrics_csv,
    "trainer_state.json": trainer_state,
}


def _objects(text: str) -> Iterator[dict[str, Any]]:
    for line in text.splitlines():
        try:
            value = json.loads(line)
        except ValueError:  # a line cut in the middle, at either end of what was read
            continue
        if isinstance(value, dict):
            yield value


def _evaluation(line: Mapping[str, Any]) -> dict[str, float]:
    return {
        name: found
        for name, value in line.items()
        if name.startswith("eval_") and (found := parse_number(value)) is not None
    }
