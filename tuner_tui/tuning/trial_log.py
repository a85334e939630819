"""`trials.jsonl`: the log of a tuning, one JSON object per line, append-only; written here, and read.

An infinite bound is written as null, like an unknown one; neither keeps a change from being tried.
"""

from __future__ import annotations

import json
import time
from typing import Any, Literal

import msgspec
from msgspec import Struct

from tuner_tui.core.json_struct import Identifier, PathText, Time, checked
from tuner_tui.core.line_files import LineAppender, LineTail
from tuner_tui.core.redaction import redact_text
from tuner_tui.hardware.other_load import OtherLoad
from tuner_tui.runs.store.record import RecordError
from tuner_tui.tuning.store import TuningFolder, TuningRecord, read_tuning_record
from tuner_tui.tuning.trial import CompletedTrial, SkippedChange, Trial, TuningConclusion, WholeJob

LOG_VERSION = 1
TuningEndStatus = Literal["finished", "aborted", "failed"]


class _Entry(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind"):
    """What every entry has: its time and the version of the log."""

    t: Time
    v: int = LOG_VERSION


class TuningStarted(_Entry, frozen=True, kw_only=True, tag="begun"):
    """A tuner process has started. `limit_bytes` is the share of `capacity_bytes` that a trial may take.

    `load` is what other processes used of the machine; `busy` says what they are if it is too much to measure on.
    """

    capacity_bytes: int | None = None
    limit_bytes: int | None = None
    deadline_t: float | None = None
    load: OtherLoad | None = None
    busy: str = ""


class TrialStarted(_Entry, frozen=True, kw_only=True, tag="trial-begun"):
    """`trial` was started as `run`. The tuning needs `left_low_s` to `left_high_s` seconds, this trial included.

    `expected_s` is the predicted time of the trial; None before any run of the job.
    """

    trial: Trial
    run: Identifier
    left_low_s: float | None = None
    left_high_s: float | None = None
    expected_s: float | None = None


class TrialCompleted(_Entry, frozen=True, kw_only=True, tag="trial-done"):
    """A trial has ended.

    Attributes:
        tried: The trial and its measurement.
        skipped: The changes that are not tried, as far as known now.
        unreachable: Fields that this trial showed not to reach the training.
        capacity_bytes, limit_bytes: Memory for the next trials.
        whole_job: The training whose time is compared, None if throughput is.
    """

    tried: CompletedTrial
    skipped: tuple[SkippedChange, ...] = ()
    unreachable: tuple[str, ...] = ()
    capacity_bytes: int | None = None
    limit_bytes: int | None = None
    whole_job: WholeJob | None = None


class TuningEnded(_Entry, frozen=True, kw_only=True, tag="ended"):
    """The tuner process has ended.

    Attributes:
        preset: File of the winner's preset.
        sentence: The error if it failed, else additional notes.
        early: Whether the search was cut short for lack of time.
        needed_minutes: What the next trial takes, if there was too little time for it.
    """

    status: TuningEndStatus
    verdict: TuningConclusion | None = None
    preset: PathText | None = None
    sentence: str = ""
    early: bool = False
    needed_minutes: int | None = None


SENTENCES = ("sentence", "reason", "learning_rate_note")
LogEntry = TuningStarted | TrialStarted | TrialCompleted | TuningEnded
_DECODER = msgspec.json.Decoder(LogEntry)


def encode_entry(entry: LogEntry) -> bytes:
    """Return the entry as one line, newline included; its sentences, which may quote an error, without secrets."""
    return json.dumps(_redacted(json.loads(msgspec.json.encode(entry))), separators=(",", ":")).encode() + b"\n"


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
        entry: LogEntry = checked(_DECODER.decode(line))
    except ValueError:
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


def resumed_trials(
    trials: tuple[CompletedTrial, ...], ended: TuningEnded, started: TuningStarted
) -> tuple[CompletedTrial, ...]:
    """Return the `trials` of the tuning that `ended` from which the one that `started` goes on.

    What was ended from outside is run again. So is what a busy machine left open, the comparison or the whole search,
    but only on a quiet one: while it is still busy nothing would be measured better.
    """
    trials = tuple(completed for completed in trials if not completed.measurement.passing)
    if ended.verdict is None or not ended.verdict.disturbed or started.busy:
        return trials
    compared = tuple(completed for completed in trials if completed.trial.purpose != "confirm")
    return trials[:1] if compared == trials else compared


TuningStatus = Literal["running", "finished", "aborted", "failed", "killed"]
"""`killed`: the tuner process is gone without having finished; the tuning can be resumed."""


class TuningView(Struct, frozen=True, kw_only=True):
    """A snapshot of a tuning. Times ending in `_t` are seconds since the epoch.

    Attributes:
        running: The running trials, the oldest first; the time left is what the first one says.
        capacity_bytes, limit_bytes: Memory of the GPU, and the part that a trial may take; None if unknown.
        whole_job: The training whose time is compared, None if throughput is.
        busy: What keeps the machine too busy to measure on; empty if it was quiet at the start.
        preset: File of the winner's preset.
        trouble: What went wrong, or notes on the result.
        needed_minutes: What the next trial takes, if the time was too short for it.
    """

    id: str
    title: str
    status: TuningStatus
    created_t: float
    tried: tuple[CompletedTrial, ...] = ()
    running: tuple[TrialStarted, ...] = ()
    skipped: tuple[SkippedChange, ...] = ()
    capacity_bytes: int | None = None
    limit_bytes: int | None = None
    whole_job: WholeJob | None = None
    busy: str = ""
    verdict: TuningConclusion | None = None
    preset: str | None = None
    trouble: str = ""
    needed_minutes: int | None = None


START_GRACE_S = 15.0
"""Age of a folder without a tuner process up to which the process is taken to be starting."""


class TuningReader:
    """Follows one tuning by polling its folder. Reads files, so it must not run on an event loop."""

    def __init__(self, folder: TuningFolder) -> None:
        self.folder = folder
        self._tail = LineTail(folder.trials)
        self._record: TuningRecord | None = None
        self._tried: tuple[CompletedTrial, ...] = ()
        self._running: dict[int, TrialStarted] = {}
        self._started: TuningStarted | None = None
        self._completed: TrialCompleted | None = None
        self._ended: TuningEnded | None = None

    def entries(self) -> list[LogEntry]:
        """Return the entries added since the last call."""
        entries = [entry for line in self._tail.lines() if (entry := decode_entry(line)) is not None]
        for entry in entries:
            self._add(entry)
        return entries

    def _add(self, entry: LogEntry) -> None:
        match entry:
            case TuningStarted():
                if self._ended is not None:
                    self._tried = resumed_trials(self._tried, self._ended, entry)
                self._started, self._ended = entry, None
                self._running.clear()
            case TrialStarted():
                self._running[entry.trial.number] = entry
            case TrialCompleted():
                self._tried, self._completed = (*self._tried, entry.tried), entry
                self._running.pop(entry.tried.trial.number, None)
            case TuningEnded():
                self._ended = entry
                self._running.clear()

    def running_trials(self) -> tuple[TrialStarted, ...]:
        """Return the trials that were started and have not ended, by the entries read so far, the oldest first."""
        return tuple(self._running.values())

    def poll(self, now: float | None = None) -> TuningView:
        """Read new entries and return the snapshot."""
        live = self.folder.live  # checked before reading, so that all entries of a process that has ended are read
        self.entries()
        return self.view(live, now)

    def view(self, live: bool, now: float | None = None) -> TuningView:
        """Return the snapshot of the entries read so far; `live` is whether the tuner ran before they were read."""
        trouble = ""
        if self._record is None:
            try:
                self._record = read_tuning_record(self.folder)
            except RecordError as error:
                trouble = str(error)
        record, completed, ended = self._record, self._completed, self._ended
        memory = completed or self._started
        running = live or (ended is None and self._is_young(now))
        status: TuningStatus = ended.status if ended is not None else "running" if running else "killed"
        return TuningView(
            id=self.folder.id,
            title=self.folder.id if record is None else record.title,
            status=status,
            created_t=0.0 if record is None else record.created_t,
            tried=self._tried,
            running=self.running_trials() if running else (),
            skipped=() if completed is None else completed.skipped,
            capacity_bytes=None if memory is None else memory.capacity_bytes,
            limit_bytes=None if memory is None else memory.limit_bytes,
            whole_job=None if completed is None else completed.whole_job,
            busy="" if self._started is None else self._started.busy,
            verdict=None if ended is None else ended.verdict,
            preset=None if ended is None else ended.preset,
            trouble=trouble or ("" if ended is None else ended.sentence),
            needed_minutes=None if ended is None else ended.needed_minutes,
        )

    def _is_young(self, now: float | None) -> bool:
        if self._started is not None:
            return False
        try:
            age = (time.time() if now is None else now) - self.folder.path.stat().st_mtime
        except OSError:
            return False
        return age < START_GRACE_S
