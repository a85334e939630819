"""Follows a training without observer by its output and the files of its tool, and makes events of them.

The observer cannot enter an isolated interpreter (`python -I`), a container or a compiled program, and only knows steps
of PyTorch. Events name the source they were derived from. Nothing is changed in the training or its environment.
"""

from __future__ import annotations

import csv
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tuner_tui.core.files import open_regular
from tuner_tui.runs.events.types import Evaluated, Event, Metrics, Phase, Plan, Steps
from tuner_tui.runs.log_parsing.progress_lines import (
    ProgressRecord,
    parse_count,
    parse_duration,
    parse_number,
    parse_output,
)

MAX_EPOCH_BAR = 1000
"""A bar of at most this length that has not moved when a longer one appears counts epochs."""


class LogEventBuilder:
    """Makes events of progress records: adds up bars that restart each epoch, and separates evaluation from training.

    `advanced`: whether a step was completed, or a loss printed; `bars_alone`: whether only progress bars say so.
    """

    def __init__(self) -> None:
        self.advanced = False
        self.bars_alone = True
        self._bar_total: int | None = None
        self._bar_done = 0
        self._before_steps = 0
        self._before_s = 0.0
        self._elapsed_s = 0.0
        self._epochs: int | None = None
        self._epoch: float | None = None
        self._step: int | None = None
        self._source = ""
        self._first_step: int | None = None
        self._first_t = 0.0
        self._plan: int | None = None
        self._evaluating = False

    # A bar counts from 0 again in every epoch, and an evaluation draws a bar of its own between those of the training.
    # The state that tells them apart: `_bar_total` is the length of the training's bar, `_bar_done` its last position,
    # `_before_steps` and `_before_s` are the steps and seconds of the epochs before the current bar. The step of the
    # run is `_before_steps + _bar_done`. A bar of another length is an evaluation's while the training's has not ended.

    def events(self, records: Iterable[ProgressRecord], now: float) -> list[Event]:
        """The events of records read at `now` (seconds since the epoch): every metric, and the newest counters."""
        found: list[Event] = []
        before = (self._step, self._elapsed_s)
        for record in records:
            found += self._events_of(record, now)
        if self._step is not None and (self._step, self._elapsed_s) != before:
            found.append(self._counters(now))
        return found

    def _events_of(self, record: ProgressRecord, now: float) -> list[Event]:
        evaluates = record.evaluating or (record.bar and not self._is_main(record))
        found: list[Event] = self._phase(evaluates, record, now)
        if evaluates:
            return found
        if record.bar or (record.per_epoch and record.total_steps is not None):
            self._follow_bar(record, now)
            self._set_step(self._before_steps + self._bar_done, record.source, now)
        elif record.step is not None:
            self._set_step(record.step, record.source, now)
            self._elapsed_s = now - self._first_t if record.elapsed_s is None else record.elapsed_s
        self._epochs = record.epochs or self._epochs
        found += self._plan_events(record, now)
        step = self._step or 0
        if record.evaluation:
            found.append(Evaluated(t=now, source=record.source, step=step, metrics=record.evaluation))
        if record.loss is not None:
            self.advanced, self.bars_alone = True, False
            found.append(
                Metrics(
                    t=now, source=record.source, step=step, loss=record.loss, learning_rate=record.learning_rate,
                    grad_norm=record.grad_norm, epoch=record.epoch,
                )
            )  # fmt: skip
        return found

    def _is_main(self, record: ProgressRecord) -> bool:
        """Whether a bar is that of the training, not of an evaluation within it."""
        if self._bar_total is None or record.total_steps == self._bar_total:
            return True
        longer = (record.total_steps or 0) > self._bar_total
        ended = self._bar_done >= self._bar_total
        # `for epoch in tqdm(range(3)): for batch in tqdm(loader)`: the outer bar is drawn first and stays at 0.
        if longer and self._bar_done == 0 and self._bar_total <= MAX_EPOCH_BAR:
            self._epochs = self._bar_total
            return True
        return longer and ended

    def _follow_bar(self, record: ProgressRecord, now: float) -> None:
        """Add up the epochs of a bar, or of a printed counter, which need not reach its end."""
        done, total = record.step or 0, record.total_steps
        if total != self._bar_total:
            self._bar_total, self._bar_done, self._before_steps, self._before_s = total, 0, 0, 0.0
            self._step, self._first_step = None, None
        elif done < self._bar_done or (not record.bar and record.epoch != self._epoch):
            self._before_steps += self._bar_done if record.bar else (total or 0) * self._epochs_since(record)
            self._before_s = self._elapsed_s
        self._bar_done, self._epoch = done, record.epoch
        self._epochs = record.epochs or self._epochs
        if record.bar and record.elapsed_s is not None:
            self._elapsed_s = self._before_s + record.elapsed_s
        elif self._first_step is not None:
            self._elapsed_s = now - self._first_t

    def _epochs_since(self, record: ProgressRecord) -> int:
        """Epochs ended since the last record."""
        return 1 if record.epoch is None or self._epoch is None else max(1, int(record.epoch - self._epoch))

    def _set_step(self, step: int, source: str, now: float) -> None:
        if self._first_step is None or step < self._first_step:
            self._first_step, self._first_t = step, now
        self.advanced = self.advanced or step > 0
        self._step, self._source = step, source

    def _plan_events(self, record: ProgressRecord, now: float) -> list[Event]:
        total = record.total_steps
        if total is not None and record.bar:
            total = max(total * (self._epochs or 1), self._before_steps + total)
        elif record.per_epoch:
            total = None if total is None or record.epochs is None else total * record.epochs
        if total is None or total == self._plan:
            return []
        self._plan = total
        return [Plan(t=now, source=record.source, total_steps=total)]

    def _phase(self, evaluates: bool, record: ProgressRecord, now: float) -> list[Event]:
        trains = record.bar and not evaluates
        if evaluates == self._evaluating or not (evaluates or trains):
            return []
        self._evaluating = evaluates
        return [Phase(t=now, source=record.source, phase="evaluating" if evaluates else "training", step=self._step)]

    def _counters(self, now: float) -> Steps:
        step = self._step or 0
        own = step if self._bar_total is not None else step - (self._first_step or 0)
        return Steps(t=now, source=self._source, step=step, own_steps=own, train_s=self._elapsed_s)


FIRST_LOOK_BYTES = 4 << 20
PIECE_BYTES = 64 << 10
GRACE_S = 3.0
"""Seconds after the first sign of a step in which events are held back. An observer would report within a second."""
BAR_GRACE_S = 60.0
"""The same where an observer has started and only a progress bar moved, which may be that of the data."""
FILES_EVERY_S = 5.0


class LogOnlyFollower:
    """Reads what is new in `log` and in the tool files below `folders` that are newer than `since_t`.

    Of a long log, only the last `first_look_bytes` are read at first.
    """

    def __init__(
        self, log: Path, folders: tuple[Path, ...], since_t: float, first_look_bytes: int = FIRST_LOOK_BYTES
    ) -> None:
        self._log = log
        self._folders = folders
        self._since_t = since_t
        self._first_look_bytes = first_look_bytes
        self._offset: int | None = None
        self._rest = b""
        self._builder = LogEventBuilder()
        self._held: list[Event] = []
        self._advanced_t: float | None = None
        self._released = False
        self._log_has_steps = False
        self._files_t = 0.0
        self._file_records = 0

    def events(self, now: float, *, over: bool, observed: bool = False) -> list[Event]:
        """The new events at `now` (seconds since the epoch); held back at first unless the run is `over`.

        `observed`: an observer has started in the training, and may still report steps.
        """
        records = list(parse_output(self._new_text(over)))
        self._log_has_steps = self._log_has_steps or any(record.step for record in records)
        if not self._log_has_steps:
            records += self._records_of_files(now, over)
        self._held += self._builder.events(records, now)
        if self._builder.advanced and self._advanced_t is None:
            self._advanced_t = now
        grace_s = BAR_GRACE_S if observed and self._builder.bars_alone else GRACE_S
        self._released = self._released or (
            self._advanced_t is not None and (over or now - self._advanced_t >= grace_s)
        )
        if not self._released:
            return []
        found, self._held = self._held, []
        return found

    def _new_text(self, over: bool) -> str:
        chunk = self._read()
        data = self._rest + chunk
        end = max(data.rfind(b"\r"), data.rfind(b"\n")) + 1
        if over or data.rstrip().endswith(b"]"):  # a bar is whole before the next one begins
            end = len(data)
        self._rest = data[end:][-PIECE_BYTES:]
        return data[:end].decode("utf-8", "replace")

    def _read(self) -> bytes:
        try:
            descriptor = open_regular(self._log)
        except OSError:
            return b""
        try:
            size = os.fstat(descriptor).st_size
            if self._offset is None or self._offset > size or size - self._offset > self._first_look_bytes:
                self._offset = max(0, size - self._first_look_bytes)
            data = os.pread(descriptor, size - self._offset, self._offset)
        finally:
            os.close(descriptor)
        self._offset += len(data)
        return data

    def _records_of_files(self, now: float, over: bool) -> list[ProgressRecord]:
        """What the newest file of a tool says beyond what it said before."""
        if now - self._files_t < FILES_EVERY_S and not over:
            return []
        self._files_t = now
        found = find_tool_files(self._folders, self._since_t)
        records = read_tool_file(found[-1]) if found else []
        fresh = records[self._file_records :] if len(records) >= self._file_records else records
        self._file_records = len(records)
        return fresh


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
        yield _logged("trainer_log.jsonl", line, line.get("current_steps"), line.get("total_steps"))


def logging_jsonl(text: str) -> Iterator[ProgressRecord]:
    """Records of ms-swift's `logging.jsonl`; the value of `global_step/max_steps` is a text such as `10/100`."""
    for line in _objects(text):
        step, _, total = str(line.get("global_step/max_steps", "")).partition("/")
        yield _logged("logging.jsonl", line, step, total)


def trainer_state(text: str) -> Iterator[ProgressRecord]:
    """Records of the log history in a checkpoint of Trainer."""
    state = json.loads(text)
    if not isinstance(state, dict) or not isinstance(state.get("log_history"), list):
        return
    for line in state["log_history"]:
        if isinstance(line, dict):
            yield _logged("trainer_state.json", line, line.get("step"), state.get("max_steps"))


def _logged(source: str, line: Mapping[str, Any], step: Any, total: Any) -> ProgressRecord:
    """The record of what a Trainer, or a tool built on it, logged at one step."""
    return ProgressRecord(
        source,
        step=parse_count(step),
        total_steps=parse_count(total),
        elapsed_s=parse_duration(line.get("elapsed_time")),
        loss=parse_number(line.get("loss")),
        learning_rate=parse_number(line.get("lr", line.get("learning_rate"))),
        grad_norm=parse_number(line.get("grad_norm")),
        epoch=parse_number(line.get("epoch")),
        evaluation={
            name: number
            for name, value in line.items()
            if name.startswith("eval_") and (number := parse_number(value)) is not None
        },
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
