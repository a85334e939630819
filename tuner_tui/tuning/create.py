"""Creates and starts tunings."""

from __future__ import annotations

import shlex
import shutil
import time

from msgspec import Struct, structs

from tuner_tui.core.file_locks import is_locked
from tuner_tui.core.text import end_at_word
from tuner_tui.runs.launch.command import LaunchError
from tuner_tui.runs.launch.prepare import LaunchRequest
from tuner_tui.runs.launch.start import ProcessSpec, start_detached
from tuner_tui.runs.store.record import redact_job, write_record
from tuner_tui.settings.errors import SettingsError
from tuner_tui.settings.job import CommandJob, Job
from tuner_tui.tuning import store
from tuner_tui.tuning.time_budget import expected_trial_s, least_minutes
from tuner_tui.tuning.trial import DEFAULT_MINUTES

MAX_TITLE = 80
TUNER_MODULE = "tuner_tui.tuning.tuner"


class TunerSpec(ProcessSpec, frozen=True):
    """The input of the tuner process. `minutes` is the time it has from its start."""

    minutes: float = DEFAULT_MINUTES


def create_tuning(request: LaunchRequest, options: store.TuningOptions) -> store.TuningFolder:
    """Create the folder of a tuning of what `request` would launch.

    Raises `LaunchError` if it cannot be written, `AlreadyTuningError` if another tuning is running.
    """
    job = redact_job(request.job)
    try:
        store.ensure_no_other_tuning(store.tunings_dir(request.environ))
        folder = store.TuningFolder(store.TUNINGS.create(store.tunings_dir(request.environ)))
        record = store.TuningRecord(
            id=folder.id,
            title=tuning_title(request.preset, job),
            created_t=time.time(),
            job=job,
            resolved=request.resolved,
            cwd=str(request.cwd),
            interpreter=None if request.interpreter is None else str(request.interpreter),
            preset=request.preset,
            memory_limit_bytes=request.memory_limit_bytes,
            **structs.asdict(options),
        )
        write_record(folder, record)
    except OSError as error:
        raise LaunchError(f"The tuning folder cannot be written: {error.strerror} ({error.filename}).") from error
    return folder


def ensure_tunable(job: Job) -> None:
    """Raise `SettingsError` if no setting reaches the command, so that there is nothing to try."""
    if isinstance(job, CommandJob) and job.apply == "none":
        raise SettingsError("No setting can be passed to this command: use --apply, such as --apply inject.")


class TimeNeeded(Struct, frozen=True):
    """The minutes of the shortest tuning that may confirm something, and a sentence on what they rest on."""

    minutes: int
    sentence: str

    def ensure(self, minutes: float) -> None:
        """Raise `SettingsError` if a tuning of so many minutes is too short."""
        if minutes < self.minutes:
            raise SettingsError(f"{minutes:g} min are too short to tune this training. {self.sentence}")


def time_needed(request: LaunchRequest) -> TimeNeeded:
    """Return the time that a tuning of `request` needs at least. Reads earlier runs of the job."""
    trial_s = expected_trial_s(request.job, request.runs_root)
    minutes = least_minutes(trial_s)
    takes = "at least 5 s plus the time of 4 optimizer steps"
    takes = takes if trial_s is None else f"about {trial_s:.0f} s in earlier runs"
    return TimeNeeded(
        minutes,
        f"It needs at least {minutes} min for the current settings, one change and two comparisons. "
        f"A trial takes {takes}.",
    )


def tuning_title(preset: str | None, job: Job) -> str:
    """Return a short title: the preset's name, else the command."""
    if preset is not None:
        return preset
    title = shlex.join(job.command) if isinstance(job, CommandJob) else f"built-in {job.task}, {job.model}"
    return end_at_word(title, MAX_TITLE)


def start_tuning(folder: store.TuningFolder, spec: TunerSpec) -> None:
    """Start the tuner process in `folder`, for a new tuning or to resume one.

    Raises `LaunchError` if it does not start, and `AlreadyTuningError` if another tuning is running or starting at the
    same moment; the folder of a tuning that never ran is then removed.
    """
    try:
        store.ensure_no_other_tuning(folder.path.parent, folder)
        folder.control.unlink(missing_ok=True)
        try:
            start_detached(TUNER_MODULE, folder.path, spec, folder.log, "The tuner")
        except LaunchError as error:
            # Another tuner may have taken the lock in the meantime: then that is the reason to report.
            store.ensure_no_other_tuning(folder.path.parent, folder)
            if is_locked(folder.machine_lock):
                raise store.AlreadyTuningError(
                    f"Another tuning is starting on this machine; {store.WHY_EXCLUSIVE}."
                ) from error
            raise
    except store.AlreadyTuningError:
        if not folder.trials.exists():
            shutil.rmtree(folder.path, ignore_errors=True)
        raise
