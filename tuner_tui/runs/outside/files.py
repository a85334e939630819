"""News in the files that training tools write beside their output, and where to look for those files.

`trainer_log.jsonl` is LLaMA-Factory's, `logging.jsonl` ms-swift's, `metrics.csv` Lightning's, `trainer_state.json`
stands in every checkpoint of a Trainer.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tuner_tui.runs.outside.told import Told, number, seconds, whole

LARGEST_BYTES = 8 << 20
"""Of a longer file only the end is read."""

PLACES = (
    "trainer_log.jsonl", "*/trainer_log.jsonl", "logging.jsonl", "*/logging.jsonl", "metrics.csv",
    "lightning_logs/*/metrics.csv", "*/metrics.csv", "checkpoint-*/trainer_state.json",
)  # fmt: skip
"""Under an output folder or the working folder; nothing is searched deeper."""


def find_files(folders: Sequence[Path], since_t: float) -> list[Path]:
    """The files of tools in `folders` that were written after `since_t`, the newest last."""
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


def news_of_file(path: Path) -> list[Told]:
    """What the file tells, oldest first; nothing for one that cannot be read or made sense of."""
    read = _READERS.get(path.name)
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - LARGEST_BYTES))
            text = file.read(LARGEST_BYTES).decode("utf-8", "replace")
        return [] if read is None else list(read(text))
    except (OSError, ValueError, RecursionError, csv.Error):
        return []


def trainer_log(text: str) -> Iterator[Told]:
    """LLaMA-Factory's lines."""
    for line in _objects(text):
        yield Told(
            "trainer_log.jsonl",
            step=whole(line.get("current_steps")),
            total_steps=whole(line.get("total_steps")),
            elapsed_s=seconds(line.get("elapsed_time")),
            loss=number(line.get("loss")),
            learning_rate=number(line.get("lr", line.get("learning_rate"))),
            epoch=number(line.get("epoch")),
            evaluation=_evaluation(line),
        )


def logging_jsonl(text: str) -> Iterator[Told]:
    """ms-swift's lines; `global_step/max_steps` is one key with a value such as `10/100`."""
    for line in _objects(text):
        step, _, total = str(line.get("global_step/max_steps", "")).partition("/")
        yield Told(
            "logging.jsonl",
            step=whole(step),
            total_steps=whole(total),
            elapsed_s=seconds(line.get("elapsed_time")),
            loss=number(line.get("loss")),
            learning_rate=number(line.get("learning_rate")),
            grad_norm=number(line.get("grad_norm")),
            epoch=number(line.get("epoch")),
            evaluation=_evaluation(line),
        )


def metrics_csv(text: str) -> Iterator[Told]:
    """Lightning's table: a column a metric, empty where it was not logged at that step; it counts steps from 0."""
    for row in csv.DictReader(text.splitlines()):
        step = whole(row.get("step"))
        numbers = {name: found for name, cell in row.items() if name and (found := number(cell)) is not None}
        loss = next((numbers[name] for name in ("train_loss", "loss", "train_loss_step") if name in numbers), None)
        rate = next((value for name, value in numbers.items() if name.startswith("lr")), None)
        checked = {name: value for name, value in numbers.items() if name.startswith(("val_", "test_"))}
        yield Told(
            "metrics.csv",
            step=None if step is None else step + 1,
            loss=loss,
            learning_rate=rate,
            epoch=numbers.get("epoch"),
            evaluation=checked,
        )


def trainer_state(text: str) -> Iterator[Told]:
    """The history in a Trainer's checkpoint."""
    state = json.loads(text)
    if not isinstance(state, dict) or not isinstance(state.get("log_history"), list):
        return
    total = whole(state.get("max_steps"))
    for line in (each for each in state["log_history"] if isinstance(each, dict)):
        yield Told(
            "trainer_state.json",
            step=whole(line.get("step")),
            total_steps=total,
            loss=number(line.get("loss")),
            learning_rate=number(line.get("learning_rate")),
            grad_norm=number(line.get("grad_norm")),
            epoch=number(line.get("epoch")),
            evaluation=_evaluation(line),
        )


_READERS: Mapping[str, Callable[[str], Iterator[Told]]] = {
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
        name: found for name, value in line.items() if name.startswith("eval_") and (found := number(value)) is not None
    }
