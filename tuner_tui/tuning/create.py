"""Creates a tuning: its folder with the job and the settings to start from."""

from __future__ import annotations

import shlex
import time
from dataclasses import dataclass

from tuner_tui.runs.launch.command import LaunchError
from tuner_tui.runs.launch.prepare import LaunchRequest
from tuner_tui.runs.store.record import redact_job, resolved_to_json
from tuner_tui.settings.errors import SettingsError
from tuner_tui.settings.job import CommandJob, Job
from tuner_tui.tuning.store import (
    TuningFolder,
    TuningRecord,
    create_tuning_folder,
    ensure_no_other_tuning,
    tunings_dir,
    write_tuning_record,
)
from tuner_tui.tuning.trials.trial_protocol import DEFAULT_MINUTES

MAX_TITLE = 80


@dataclass(frozen=True, slots=True)
class TuningOptions:
    """How to tune. `free_batch`: the effective batch may change. `save_as`: the name of the winner's preset."""

    free_batch: bool = False
    most_minutes: float = DEFAULT_MINUTES
    save_as: str | None = None


def create_tuning(request: LaunchRequest, options: TuningOptions) -> TuningFolder:
    """A folder for the tuning of what `request` would launch.

    Raises `LaunchError` where it cannot be written, `AlreadyTuningError` where another tuning is under way.
    """
    job = redact_job(request.job)
    try:
        ensure_no_other_tuning(tunings_dir(request.environ))
        folder = create_tuning_folder(tunings_dir(request.environ))
        record = TuningRecord(
            id=folder.id,
            title=tuning_title(request.preset, job),
            created_t=time.time(),
            job=job,
            **resolved_to_json(request.resolved),
            cwd=str(request.cwd),
            interpreter=None if request.interpreter is None else str(request.interpreter),
            preset=request.preset,
            memory_limit_bytes=request.memory_limit_bytes,
            free_batch=options.free_batch,
            most_minutes=options.most_minutes,
            save_as=options.save_as,
        )
        write_tuning_record(folder, record)
    except OSError as error:
        raise LaunchError(f"The tuning folder cannot be written: {error.strerror} ({error.filename}).") from error
    return folder


def ensure_tunable(job: Job) -> None:
    """Raise `SettingsError` where no setting reaches the command, so that there is nothing to try."""
    if isinstance(job, CommandJob) and job.apply == "none":
        raise SettingsError(
            "No setting reaches this command: choose a way with --apply, such as inject or placeholders."
        )


def tuning_title(preset: str | None, job: Job) -> str:
    """What is tuned, in a few words: the preset's name, else the command."""
    if preset is not None:
        return preset
    words = shlex.join(job.command) if isinstance(job, CommandJob) else f"built-in {job.task}, {job.model}"
    return words if len(words) <= MAX_TITLE else words[: MAX_TITLE - 1] + "…"
