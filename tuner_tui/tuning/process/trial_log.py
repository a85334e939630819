"""`trials.jsonl`: the log of a tuning, one JSON object per line, append-only."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Discriminator, TypeAdapter, ValidationError

from tuner_tui.core.line_files import LineAppender
from tuner_tui.tuning.store import TuningFolder
from tuner_tui.tuning.trial import CompletedTrial, SkippedChange, Trial, TuningConclusion

LOG_VERSION = 1
TuningEndStatus = Literal["finished", "aborted", "failed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TuningStarted:
    """Somebody began, or went on, to work on it. `limit_bytes` of `capacity_bytes` is what a trial may take."""

    t: float
    kind: Literal["begun"] = "begun"
    v: int = LOG_VERSION
    capacity_bytes: int | None = None
    limit_bytes: int | None = None
    deadline_t: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialStarted:
    """`trial` runs as `run`; `left_low_s` to `left_high_s` is the time left, it included."""

    t: float
    trial: Trial
    run: str
    kind: Literal["trial-begun"] = "trial-begun"
    v: int = LOG_VERSION
    left_low_s: float | None = None
    left_high_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialCompleted:
    """A trial was measured, or failed. `skipped` is what is not to be tried as known then; `unreachable` names the
    settings that this run showed not to reach the training. `limit_bytes` of `capacity_bytes` may be taken from now on.
    """

    t: float
    tried: CompletedTrial
    kind: Literal["trial-done"] = "trial-done"
    v: int = LOG_VERSION
    skipped: tuple[SkippedChange, ...] = ()
    unreachable: tuple[str, ...] = ()
    capacity_bytes: int | None = None
    limit_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TuningEnded:
    """Nobody works on it any longer. `preset` is the file that the winner was saved to; `sentence` says what is wrong
    where it failed, and what is to be said besides where it did not. `early`: time was short, more could be tried."""

    t: float
    status: TuningEndStatus
    kind: Literal["ended"] = "ended"
    v: int = LOG_VERSION
    verdict: TuningConclusion | None = None
    preset: str | None = None
    sentence: str = ""
    early: bool = False


LogEntry = TuningStarted | TrialStarted | TrialCompleted | TuningEnded
_LOG_ENTRY: TypeAdapter[LogEntry] = TypeAdapter(Annotated[LogEntry, Discriminator("kind")])


def encode_entry(entry: LogEntry) -> bytes:
    """The entry as one line, newline included."""
    return _LOG_ENTRY.dump_json(entry) + b"\n"


def decode_entry(line: bytes) -> LogEntry | None:
    """The entry of one line; None for a torn line, an unknown kind, a newer version or wrong types."""
    try:
        entry = _LOG_ENTRY.validate_json(line)
    except ValidationError:
        return None
    return entry if entry.v <= LOG_VERSION else None


class TrialLog:
    """Writes to it. A disk that takes no more ends the tuning: what was not written down would be done again."""

    def __init__(self, folder: TuningFolder) -> None:
        """Opens the file. Raises `OSError`."""
        self._file = LineAppender(folder.trials)

    def add(self, entry: LogEntry) -> None:
        """Append. Raises `OSError`."""
        self._file.append(encode_entry(entry))


def completed_trials(entries: Iterable[LogEntry]) -> tuple[CompletedTrial, ...]:
    """The trials that are done, in their order."""
    return tuple(entry.tried for entry in entries if isinstance(entry, TrialCompleted))


def read_entries(folder: TuningFolder) -> list[LogEntry]:
    """All entries; none where there is no file. Raises `OSError` where it cannot be read."""
    try:
        lines = folder.trials.read_bytes().splitlines()
    except FileNotFoundError:
        return []
    return [entry for entry in map(decode_entry, lines) if entry is not None]
