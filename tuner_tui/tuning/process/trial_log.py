"""`trials.jsonl`: the log of a tuning, one JSON object per line, append-only.

An infinite bound is written as null, like an unknown one; neither keeps a change from being tried.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import Discriminator, TypeAdapter, ValidationError

from tuner_tui.core.files import LineAppender
from tuner_tui.core.redaction import redact_text
from tuner_tui.hardware.processes.other_load import OtherLoad
from tuner_tui.tuning.store import TuningFolder
from tuner_tui.tuning.trial import CompletedTrial, SkippedChange, Trial, TuningConclusion, WholeJob

LOG_VERSION = 1
TuningEndStatus = Literal["finished", "aborted", "failed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TuningStarted:
    """A tuner process has started. `limit_bytes` is the share of `capacity_bytes` that a trial may take.

    `load` is what other processes used of the machine; `busy` says what they are if it is too much to measure on.
    """

    t: float
    kind: Literal["begun"] = "begun"
    v: int = LOG_VERSION
    capacity_bytes: int | None = None
    limit_bytes: int | None = None
    deadline_t: float | None = None
    load: OtherLoad | None = None
    busy: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialStarted:
    """`trial` was started as `run`. The tuning needs `left_low_s` to `left_high_s` seconds, this trial included.

    `expected_s` is the predicted time of the trial; None before any run of the job.
    """

    t: float
    trial: Trial
    run: str
    kind: Literal["trial-begun"] = "trial-begun"
    v: int = LOG_VERSION
    left_low_s: float | None = None
    left_high_s: float | None = None
    expected_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialCompleted:
    """A trial has ended.

    Attributes:
        tried: The trial and its measurement.
        skipped: The changes that are not tried, as far as known now.
        unreachable: Fields that this trial showed not to reach the training.
        capacity_bytes, limit_bytes: Memory for the next trials.
        whole_job: The training whose time is compared, None if throughput is.
    """

    t: float
    tried: CompletedTrial
    kind: Literal["trial-done"] = "trial-done"
    v: int = LOG_VERSION
    skipped: tuple[SkippedChange, ...] = ()
    unreachable: tuple[str, ...] = ()
    capacity_bytes: int | None = None
    limit_bytes: int | None = None
    whole_job: WholeJob | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TuningEnded:
    """The tuner process has ended.

    Attributes:
        preset: File of the winner's preset.
        sentence: The error if it failed, else additional notes.
        early: Whether the search was cut short for lack of time.
    """

    t: float
    status: TuningEndStatus
    kind: Literal["ended"] = "ended"
    v: int = LOG_VERSION
    verdict: TuningConclusion | None = None
    preset: str | None = None
    sentence: str = ""
    early: bool = False


SENTENCES = ("sentence", "reason", "learning_rate_note")
LogEntry = TuningStarted | TrialStarted | TrialCompleted | TuningEnded
_LOG_ENTRY: TypeAdapter[LogEntry] = TypeAdapter(Annotated[LogEntry, Discriminator("kind")])


def encode_entry(entry: LogEntry) -> bytes:
    """Return the entry as one line, newline included; its sentences, which may quote an error, without secrets."""
    return json.dumps(_redacted(json.loads(_LOG_ENTRY.dump_json(entry))), separators=(",", ":")).encode() + b"\n"


def _redacted(value: Any) -> Any:
    """The value with secrets hidden in its sentences."""
    if isinstance(value, dict):
        return {
            name: redact_text(item) if name in SENTENCES and isinstance(item, str) else _redacted(item)
            for name, item in value.items()
        }
    return [_redacted(item) for item in value] if isinstance(value, list) else value


def decode_entry(line: bytes) -> LogEntry | None:
    """Return the entry of one line; None for a torn line, an unknown kind, a newer version or wrong types."""
    try:
        entry = _LOG_ENTRY.validate_json(line)
    except ValidationError:
        return None
    return entry if entry.v <= LOG_VERSION else None


class TrialLog:
    """Appends to the log. Errors end the tuning, because trials that are not logged would be repeated."""

    def __init__(self, folder: TuningFolder) -> None:
        """Open the file. Raises `OSError`."""
        self._file = LineAppender(folder.trials)

    def add(self, entry: LogEntry) -> None:
        """Append an entry. Raises `OSError`."""
        self._file.append(encode_entry(entry))


def completed_trials(entries: Iterable[LogEntry]) -> tuple[CompletedTrial, ...]:
    """Return the completed trials in order."""
    return tuple(entry.tried for entry in entries if isinstance(entry, TrialCompleted))


def read_entries(folder: TuningFolder) -> list[LogEntry]:
    """Return all entries; none if there is no file. Raises `OSError`."""
    try:
        lines = folder.trials.read_bytes().splitlines()
    except FileNotFoundError:
        return []
    return [entry for entry in map(decode_entry, lines) if entry is not None]
