"""Tunings as the real program starts, reads and ends them. Imports of weight stand inside the calls."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tuner_tui.ui.job_wiring import launch_request
from tuner_tui.ui.services import ServiceError
from tuner_tui.ui.spoken import spoken
from tuner_tui.ui.tuning_services import TuningLine, TuningLook

if TYPE_CHECKING:
    from tuner_tui.runs.launch.prepare import LaunchRequest
    from tuner_tui.settings.job import Job
    from tuner_tui.tuning.process.tuning_reader import TuningReader, TuningView
    from tuner_tui.tuning.store import TuningRecord
    from tuner_tui.ui.services import Opened
    from tuner_tui.ui.wiring import Wishes

MOST_LISTED = 100
UNREACHABLE = "No setting reaches this command: e edits the job; choose a way such as inject or placeholders."
DOES = (
    "short real runs, one after another: the settings as they are, twice; larger micro batches, up to what fits; "
    "then the knobs that can gain more than the noise; last the winner and the start in turn"
)


@dataclass(frozen=True, slots=True)
class TuningsHere:
    """The tunings of this machine."""

    wishes: Wishes

    def plan(self, opened: Opened) -> Sequence[tuple[str, str]]:
        """What a tuning would do; raises `ServiceError` where there is nothing to tune."""
        from tuner_tui.runs.launch.prepare import preview
        from tuner_tui.runs.launch.summary import launch_summary
        from tuner_tui.tuning.process.tuned_preset import tuned_preset_name

        with spoken():
            request = self._request(opened)
            lines = launch_summary(preview(request))
        batch = opened.resolved.settings.effective_batch(1)
        saved = f"the winner as the preset {tuned_preset_name(opened.preset, opened.job)}; the settings shown stay as they are"
        return [
            ("Does", DOES),
            ("Holds", f"the effective batch, {batch} a process, so that the learning rate stays right"),
            ("Saves", saved),
            *lines,
        ]

    def start(self, opened: Opened, minutes: float) -> Path:
        """Begin one; raises `ServiceError`."""
        from tuner_tui.tuning.create import TuningOptions, create_tuning
        from tuner_tui.tuning.process.daemon import TunerSpec, start_tuning

        with spoken():
            request = self._request(opened)
            folder = create_tuning(request, TuningOptions(most_minutes=minutes))
            start_tuning(folder, TunerSpec(request.job, request.environ, minutes))
            return folder.path

    def _request(self, opened: Opened) -> LaunchRequest:
        from tuner_tui.runs.launch.duplicate_run import find_duplicate_run
        from tuner_tui.settings.errors import SettingsError
        from tuner_tui.tuning.create import ensure_tunable

        request = launch_request(opened, self.wishes)
        try:
            ensure_tunable(request.job)
        except SettingsError as error:
            raise ServiceError(UNREACHABLE) from error
        twin = find_duplicate_run(request)
        if twin is not None:
            raise ServiceError(f"This training runs as {twin.id}; trials beside it would measure nothing.")
        return request

    def all(self) -> Sequence[TuningLine]:
        """The tunings there are, newest first."""
        from tuner_tui.tuning.process.tuning_reader import TuningReader
        from tuner_tui.tuning.store import list_tunings, tunings_dir

        with spoken():
            views = [
                (folder, TuningReader(folder).poll()) for folder in list_tunings(tunings_dir(os.environ))[:MOST_LISTED]
            ]
        return [TuningLine(folder.id, folder.path, view.status, view.title) for folder, view in views]

    def under_way(self) -> UnderWayHere:
        """Look for one again and again."""
        return UnderWayHere()

    def follow(self, folder: Path) -> FollowedHere:
        """Read one again and again."""
        return FollowedHere(folder)

    def tunes(self, folder: Path, opened: Opened) -> bool:
        """Whether it tunes the job that is `opened`; raises `ServiceError`."""
        from tuner_tui.tuning.store import TuningFolder, read_tuning_record

        with spoken():
            return _same_job(read_tuning_record(TuningFolder(folder)), opened)

    def abort(self, folder: Path) -> None:
        """Ask it to end; raises `ServiceError`."""
        from tuner_tui.tuning.store import TuningFolder

        with spoken():
            TuningFolder(folder).abort()

    def resume(self, folder: Path, opened: Opened | None, minutes: float) -> None:
        """Go on with it; raises `ServiceError`."""
        from tuner_tui.tuning.process.daemon import TunerSpec, start_tuning
        from tuner_tui.tuning.store import TuningFolder, read_tuning_record

        tuning = TuningFolder(folder)
        with spoken():
            job = _job_of(read_tuning_record(tuning), opened)
            start_tuning(tuning, TunerSpec(job, dict(os.environ), minutes))


def _job_of(record: TuningRecord, opened: Opened | None) -> Job:
    """The job of a tuning: as it is shown, secrets and all, where that is the same; else as it was written down."""
    return opened.job if opened is not None and _same_job(record, opened) else record.job


def _same_job(record: TuningRecord, opened: Opened) -> bool:
    from tuner_tui.runs.launch.command import redact_job
    from tuner_tui.settings.job import same_training

    return same_training(redact_job(opened.job), record.job)


class UnderWayHere:
    """Looks for a tuning that somebody works on, and then at that one alone."""

    def __init__(self) -> None:
        self._reader: TuningReader | None = None
        self._seen: TuningView | None = None

    def look(self) -> TuningView | None:
        """The tuning under way, or how the last one seen ended. Raises `OSError`."""
        if self._reader is None:
            self._reader = self._live()
        if self._reader is not None:
            self._seen = self._reader.poll()
            if self._seen.status != "running":
                self._reader = None
        return self._seen

    def _live(self) -> TuningReader | None:
        from tuner_tui.tuning.store import list_tunings, tunings_dir

        found = next((folder for folder in list_tunings(tunings_dir(os.environ)) if folder.live), None)
        if found is None:
            return None
        from tuner_tui.tuning.process.tuning_reader import TuningReader

        return TuningReader(found)


class FollowedHere:
    """Reads one tuning's folder; while it is under way each look has its own moment."""

    def __init__(self, folder: Path) -> None:
        from tuner_tui.tuning.process.tuning_reader import TuningReader
        from tuner_tui.tuning.store import TuningFolder

        self._reader = TuningReader(TuningFolder(folder))

    def look(self) -> TuningLook:
        """The tuning as it is now. Raises `OSError`."""
        now_s = time.time()
        live = self._reader.folder.live  # one that has just been resumed is still told as it ended
        view = self._reader.poll(now_s)
        return TuningLook(view, now_s if live or view.status == "running" else None)
