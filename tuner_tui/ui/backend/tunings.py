"""Plans, starts, lists, follows, aborts and resumes tunings on this machine."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tuner_tui.ui.backend.interface import BackendError, TuningListing, TuningSnapshot, translate_errors
from tuner_tui.ui.backend.runs import launch_request

if TYPE_CHECKING:
    from tuner_tui.runs.launch.prepare import LaunchRequest
    from tuner_tui.settings.job import Job
    from tuner_tui.tuning.process.tuning_reader import TuningReader, TuningView
    from tuner_tui.tuning.store import TuningRecord
    from tuner_tui.ui.backend.interface import TrainingConfig
    from tuner_tui.ui.backend.local import CliOverrides

MAX_LISTED_TUNINGS = 100
UNREACHABLE = "No setting reaches this command: e edits the job; choose a way such as inject or placeholders."
PLAN_SUMMARY = (
    "short real runs, one after another: the settings as they are, twice; larger micro batches, up to what fits; "
    "then the knobs that can gain more than the noise; last the winner and the start in turn"
)


@dataclass(frozen=True, slots=True)
class LocalTunings:
    """The tunings of this machine."""

    wishes: CliOverrides

    def plan(self, opened: TrainingConfig) -> Sequence[tuple[str, str]]:
        """What a tuning would do; raises `BackendError` where there is nothing to tune."""
        from tuner_tui.runs.launch.prepare import prepare
        from tuner_tui.runs.launch.summary import launch_summary
        from tuner_tui.tuning.process.tuned_preset import tuned_preset_name

        with translate_errors():
            request = self._request(opened)
            lines = launch_summary(prepare(request))
        batch = opened.resolved.settings.effective_batch(1)
        name = tuned_preset_name(opened.preset, opened.job)
        saved = f"the winner as the preset {name}; the settings shown stay as they are"
        return [
            ("Does", PLAN_SUMMARY),
            ("Holds", f"the effective batch, {batch} a process, so that the learning rate stays right"),
            ("Saves", saved),
            *lines,
        ]

    def start(self, opened: TrainingConfig, minutes: float) -> Path:
        """Begin one; raises `BackendError`."""
        from tuner_tui.tuning.create import TuningOptions, create_tuning
        from tuner_tui.tuning.process.daemon import TunerSpec, start_tuning

        with translate_errors():
            request = self._request(opened)
            folder = create_tuning(request, TuningOptions(most_minutes=minutes))
            start_tuning(folder, TunerSpec(request.job, request.environ, minutes))
            return folder.path

    def _request(self, opened: TrainingConfig) -> LaunchRequest:
        from tuner_tui.runs.launch.duplicate_run import find_duplicate_run
        from tuner_tui.settings.errors import SettingsError
        from tuner_tui.tuning.create import ensure_tunable

        request = launch_request(opened, self.wishes)
        try:
            ensure_tunable(request.job)
        except SettingsError as error:
            raise BackendError(UNREACHABLE) from error
        twin = find_duplicate_run(request)
        if twin is not None:
            raise BackendError(f"This training runs as {twin.id}; trials beside it would measure nothing.")
        return request

    def all(self) -> Sequence[TuningListing]:
        """The tunings there are, newest first."""
        from tuner_tui.tuning.process.tuning_reader import TuningReader
        from tuner_tui.tuning.store import list_tunings, tunings_dir

        with translate_errors():
            views = [
                (folder, TuningReader(folder).poll())
                for folder in list_tunings(tunings_dir(os.environ))[:MAX_LISTED_TUNINGS]
            ]
        return [TuningListing(folder.id, folder.path, view.status, view.title) for folder, view in views]

    def under_way(self) -> RunningTuningReader:
        """Look for one again and again."""
        return RunningTuningReader()

    def follow(self, folder: Path) -> TuningFolderFollower:
        """Read one again and again."""
        return TuningFolderFollower(folder)

    def tunes(self, folder: Path, opened: TrainingConfig) -> bool:
        """Whether it tunes the job that is `opened`; raises `BackendError`."""
        from tuner_tui.tuning.store import TuningFolder, read_tuning_record

        with translate_errors():
            return _same_job(read_tuning_record(TuningFolder(folder)), opened)

    def abort(self, folder: Path) -> None:
        """Ask it to end; raises `BackendError`."""
        from tuner_tui.tuning.store import TuningFolder

        with translate_errors():
            TuningFolder(folder).abort()

    def resume(self, folder: Path, opened: TrainingConfig | None, minutes: float) -> None:
        """Go on with it; raises `BackendError`."""
        from tuner_tui.tuning.process.daemon import TunerSpec, start_tuning
        from tuner_tui.tuning.store import TuningFolder, read_tuning_record

        tuning = TuningFolder(folder)
        with translate_errors():
            job = _job_of(read_tuning_record(tuning), opened)
            start_tuning(tuning, TunerSpec(job, dict(os.environ), minutes))


def _job_of(record: TuningRecord, opened: TrainingConfig | None) -> Job:
    """The job of a tuning: as it is shown, secrets and all, where that is the same; else as it was written down."""
    return opened.job if opened is not None and _same_job(record, opened) else record.job


def _same_job(record: TuningRecord, opened: TrainingConfig) -> bool:
    from tuner_tui.runs.launch.command import redact_job
    from tuner_tui.settings.job import same_training

    return same_training(redact_job(opened.job), record.job)


class RunningTuningReader:
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


class TuningFolderFollower:
    """Reads one tuning's folder; while it is under way each look has its own moment."""

    def __init__(self, folder: Path) -> None:
        from tuner_tui.tuning.process.tuning_reader import TuningReader
        from tuner_tui.tuning.store import TuningFolder

        self._reader = TuningReader(TuningFolder(folder))

    def look(self) -> TuningSnapshot:
        """The tuning as it is now. Raises `OSError`."""
        now_s = time.time()
        live = self._reader.folder.live  # one that has just been resumed is still told as it ended
        view = self._reader.poll(now_s)
        return TuningSnapshot(view, now_s if live or view.status == "running" else None)
