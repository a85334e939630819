"""What a launch would start, worked out without starting or writing anything: the exact command, and what it leaves."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tuner_tui.hardware.interpreter.probe import Interpreter
from tuner_tui.runs.checkpoints import lineage_checkpoint
from tuner_tui.runs.command import (
    SAVE_ON_TERM,
    LaunchError,
    added_environment,
    check_command,
    check_launcher,
    own_config,
    probe,
    with_config,
    with_launcher,
)
from tuner_tui.runs.folder import RunFolder, next_folder, runs_dir
from tuner_tui.runs.ladder import DEFAULT_PATIENCE, Patience
from tuner_tui.runs.local_paths import missing_path
from tuner_tui.runs.memory_floor import below_floor
from tuner_tui.runs.record import RecordError
from tuner_tui.runs.redact import redact_argv
from tuner_tui.runs.resuming import VARIABLE, tells_checkpoint, with_checkpoint
from tuner_tui.runs.training_python import training_python
from tuner_tui.settings.apply import AppliedCommand, build_command
from tuner_tui.settings.distributed import AccelerateConfig, read_accelerate_config
from tuner_tui.settings.errors import SettingsError
from tuner_tui.settings.job import BuiltinJob, CommandJob, Job
from tuner_tui.settings.origin import Resolved

SAVES_ON_TERM_SINCE = 5
"""The version of Transformers that brought `enable_jit_checkpoint`."""


@dataclass(frozen=True, slots=True)
class LaunchRequest:
    """What to launch. `parent` is the run to resume, from the newest complete checkpoint of its lineage.

    `anew`: follow the parent in its lineage, but start from nothing.
    `interpreter` is the Python that trains; None stands for the one that `training_python` finds.
    `tuning` names the tuning of which this is a trial.
    """

    job: Job
    resolved: Resolved
    interpreter: Path | str | None = None
    cwd: Path = field(default_factory=Path.cwd)
    preset: str | None = None
    memory_limit_bytes: int | None = None
    parent: RunFolder | None = None
    anew: bool = False
    environ: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))
    root: Path | None = None
    patience: Patience = DEFAULT_PATIENCE
    tuning: str | None = None


@dataclass(frozen=True, slots=True)
class Prepared:
    """A launch ready to start in `folder`, which need not be there yet.

    `argv` is the command as it will run, secrets and all; `added` what the launch adds to the environment; `fallback`
    how often it may go on after it ran out of memory; `accelerate` what its own files say of the start.
    """

    folder: RunFolder
    argv: tuple[str, ...]
    cwd: Path
    added: Mapping[str, str]
    interpreter: Interpreter
    applied: AppliedCommand
    checkpoint: Path | None = None
    fallback: int = 0
    warning: str | None = None
    accelerate: AccelerateConfig | None = None

    @property
    def shown(self) -> tuple[str, ...]:
        """The command as it may be shown and written down: secrets hidden."""
        return redact_argv(self.argv)


def prepare(request: LaunchRequest, folder: RunFolder) -> Prepared:
    """Work out and check the launch of `request` in `folder`. Raises `LaunchError` and `SettingsError`."""
    checkpoint = checkpoint_of(request)
    cwd = working_folder(request)
    tight = below_floor(request.memory_limit_bytes, request.environ)
    if isinstance(request.job, BuiltinJob) and (wrong := missing_path(request.job, cwd) or tight):
        raise LaunchError(wrong)
    python = request.interpreter or training_python(request.job, request.environ, cwd)
    interpreter = probe(Path(python), request.job, request.resolved)
    applied = build_command(
        request.job,
        request.resolved.settings,
        interpreter,
        str(folder.output),
        chosen=request.resolved.chosen,
        own_config=own_config(request.job, cwd),
    )
    applied = with_checkpoint(applied, request.job, checkpoint)
    argv = with_launcher(with_config(applied, folder), request.job, interpreter)
    added = added_environment(request.job, request.environ, folder, applied.inject, request.memory_limit_bytes)
    if checkpoint is not None and isinstance(request.job, CommandJob):
        added[VARIABLE] = str(checkpoint)
    if saves_on_term(request, interpreter):
        added[SAVE_ON_TERM] = "1"
    env = {**request.environ, **added}
    check_command(argv, cwd, env)
    accelerate = read_accelerate_config(request.job, env, request.cwd)
    check_launcher(request.job, env, accelerate)
    return Prepared(folder, argv, cwd, added, interpreter, applied, checkpoint, request.job.fallback, tight, accelerate)


def saves_on_term(request: LaunchRequest, interpreter: Interpreter) -> bool:
    """Whether a Trainer in the command is told to save on SIGTERM: from within, and no trial, which saves nothing."""
    within = isinstance(request.job, CommandJob) and request.job.apply == "inject" and request.tuning is None
    major = interpreter.packages.get("transformers", "0").partition(".")[0]
    return within and major.isdecimal() and int(major) >= SAVES_ON_TERM_SINCE


def preview(request: LaunchRequest) -> Prepared:
    """The launch as it would be now, in the folder that the next run gets. Raises `LaunchError`."""
    try:
        return prepare(request, next_folder(request.root or runs_dir(request.environ)))
    except SettingsError as error:
        raise LaunchError(str(error)) from error


def working_folder(request: LaunchRequest) -> Path:
    """Where the command runs: the job's own folder, seen from where the launch was asked for."""
    own = request.job.cwd if isinstance(request.job, CommandJob) else None
    return Path(request.cwd, own or "").absolute()


def checkpoint_of(request: LaunchRequest) -> Path | None:
    """Where the launch resumes; None for one that starts from nothing. Raises `LaunchError` where it cannot."""
    if request.parent is None or request.anew:
        return None
    try:
        found = lineage_checkpoint(request.parent)
    except RecordError as error:
        raise LaunchError(str(error)) from error
    if found is None:
        raise LaunchError(f"Run {request.parent.id} has no complete checkpoint to resume from.")
    if not found.by_trainer and not tells_checkpoint(request.job):
        raise LaunchError(
            "This command cannot be told its checkpoint: write {checkpoint} where its path goes, or use apply: hf-args."
        )
    return found.path
