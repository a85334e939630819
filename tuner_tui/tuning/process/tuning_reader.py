"""Reads a tuning from its folder into a snapshot for the command line and the screen."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Literal

from tuner_tui.core.line_files import LineTail
from tuner_tui.runs.store.record import RecordError
from tuner_tui.tuning.process.trial_log import (
    LogEntry,
    TrialCompleted,
    TrialStarted,
    TuningEnded,
    TuningStarted,
    decode_entry,
)
from tuner_tui.tuning.store import TuningFolder, TuningRecord, read_tuning_record
from tuner_tui.tuning.trial import CompletedTrial, SkippedChange, Trial, TuningConclusion

TuningStatus = Literal["running", "finished", "aborted", "failed", "killed"]
"""`killed`: nobody works on it and it is not at its end; it can be resumed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TuningView:
    """A tuning as its folder says. Times are seconds since the epoch, sizes bytes.

    `current` is the trial under way, in the run `current_run`. `limit_bytes` is what a trusted trial may take of
    `capacity_bytes`; both None where memory has no known bound. `left_low_s` … `left_high_s` is the time left.
    `preset` is the file that the winner was saved to.
    """

    id: str
    title: str
    status: TuningStatus
    created_t: float
    tried: tuple[CompletedTrial, ...] = ()
    current: Trial | None = None
    current_run: str | None = None
    current_since_t: float | None = None
    skipped: tuple[SkippedChange, ...] = ()
    capacity_bytes: int | None = None
    limit_bytes: int | None = None
    left_low_s: float | None = None
    left_high_s: float | None = None
    verdict: TuningConclusion | None = None
    preset: str | None = None
    trouble: str = ""


START_GRACE_S = 15.0
"""A folder this young on which nobody works is about to be worked on."""


@dataclass(slots=True)
class _LogState:
    """The entries so far, as far as the view needs them."""

    tried: tuple[CompletedTrial, ...] = ()
    begun: TuningStarted | None = None
    current: TrialStarted | None = None
    done: TrialCompleted | None = None
    ended: TuningEnded | None = None

    @property
    def bounds(self) -> TuningStarted | TrialCompleted | None:
        """Who last said what memory may be taken."""
        return self.done or self.begun

    def add(self, entry: LogEntry) -> None:
        match entry:
            case TuningStarted():
                self.begun, self.current, self.ended = entry, None, None
            case TrialStarted():
                self.current = entry
            case TrialCompleted():
                self.tried, self.done, self.current = (*self.tried, entry.tried), entry, None
            case TuningEnded():
                self.ended, self.current = entry, None


class TuningReader:
    """Follows one tuning. Touches files: not for an event loop."""

    def __init__(self, folder: TuningFolder) -> None:
        self.folder = folder
        self._tail = LineTail(folder.trials)
        self._story = _LogState()
        self._record: TuningRecord | None = None

    def entries(self) -> list[LogEntry]:
        """The new entries, taken into the view."""
        found = [entry for line in self._tail.lines() if (entry := decode_entry(line)) is not None]
        for entry in found:
            self._story.add(entry)
        return found

    def poll(self, now: float | None = None) -> TuningView:
        """Read what is new and give the view of now."""
        live = self.folder.live  # before the entries: what an ended process wrote is then all there
        self.entries()
        record, trouble = self._read_record()
        story, current, ended = self._story, self._story.current, self._story.ended
        running = live or (ended is None and self._is_young(now))
        return TuningView(
            id=self.folder.id,
            title=self.folder.id if record is None else record.title,
            status=self._status(running),
            created_t=0.0 if record is None else record.created_t,
            tried=story.tried,
            current=current.trial if current is not None and running else None,
            current_run=current.run if current is not None and running else None,
            current_since_t=current.t if current is not None and running else None,
            skipped=() if story.done is None else story.done.skipped,
            capacity_bytes=None if story.bounds is None else story.bounds.capacity_bytes,
            limit_bytes=None if story.bounds is None else story.bounds.limit_bytes,
            left_low_s=None if current is None else current.left_low_s,
            left_high_s=None if current is None else current.left_high_s,
            verdict=None if ended is None else ended.verdict,
            preset=None if ended is None else ended.preset,
            trouble=trouble or ("" if ended is None else ended.sentence),
        )

    def _status(self, running: bool) -> TuningStatus:
        ended = self._story.ended
        if running and ended is None:
            return "running"
        return "killed" if ended is None else ended.status

    def _is_young(self, now: float | None) -> bool:
        """Whether the process that is to work on it may not have its lock yet."""
        if self._story.begun is not None:
            return False
        try:
            age = (time.time() if now is None else now) - self.folder.path.stat().st_mtime
        except OSError:
            return False
        return age < START_GRACE_S

    def _read_record(self) -> tuple[TuningRecord | None, str]:
        if self._record is None:
            try:
                self._record = read_tuning_record(self.folder)
            except RecordError as error:
                return None, str(error)
        return self._record, ""
