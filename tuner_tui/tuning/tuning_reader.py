"""Reading a tuning: what the command line and the screen show of it, from its folder alone."""

from __future__ import annotations

import time
from dataclasses import dataclass

from tuner_tui.core.line_files import LineTail
from tuner_tui.runs.store.record import RecordError
from tuner_tui.tuning.trial import Tried
from tuner_tui.tuning.tuning_folder import TuningFolder
from tuner_tui.tuning.tuning_log import Begun, Entry, TrialBegun, TrialDone, TuningEnded, decode_entry
from tuner_tui.tuning.tuning_record import TuningRecord, read_tuning
from tuner_tui.tuning.view import Status, TuningView

START_GRACE_S = 15.0
"""A folder this young on which nobody works is about to be worked on."""


@dataclass(slots=True)
class _Story:
    """The entries so far, as far as the view needs them."""

    tried: tuple[Tried, ...] = ()
    begun: Begun | None = None
    current: TrialBegun | None = None
    done: TrialDone | None = None
    ended: TuningEnded | None = None

    @property
    def bounds(self) -> Begun | TrialDone | None:
        """Who last said what memory may be taken."""
        return self.done or self.begun

    def add(self, entry: Entry) -> None:
        match entry:
            case Begun():
                self.begun, self.current, self.ended = entry, None, None
            case TrialBegun():
                self.current = entry
            case TrialDone():
                self.tried, self.done, self.current = (*self.tried, entry.tried), entry, None
            case TuningEnded():
                self.ended, self.current = entry, None


class TuningReader:
    """Follows one tuning. Touches files: not for an event loop."""

    def __init__(self, folder: TuningFolder) -> None:
        self.folder = folder
        self._tail = LineTail(folder.trials)
        self._story = _Story()
        self._record: TuningRecord | None = None

    def entries(self) -> list[Entry]:
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

    def _status(self, running: bool) -> Status:
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
                self._record = read_tuning(self.folder)
            except RecordError as error:
                return None, str(error)
        return self._record, ""
