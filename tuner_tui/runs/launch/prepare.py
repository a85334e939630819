"""What a launch would start, worked out and checked without starting or writing anything: command, environment,
checkpoint."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tuner_tui.core.redaction import redact_argv
from tuner_tui.hardware.interpreter.probe import Interpreter
from tuner_tui.runs.launch.command import (
    SIGTERM_CHECKPOINT_VARIABLE,
    LaunchError,
    added_environment,
    check_command,
    check_launcher,
    has_gpu,
    own_config,
    probe_training_python,
    with_config,
    with_launcher,
)
from tuner_tui.runs.launch.resume import RESUME_VARIABLE, accepts_checkpoint, with_checkpoint
from tuner_tui.runs.launch.training_python import training_python
from tuner_tui.runs.read.checkpoints import lineage_checkpoint
from tuner_tui.runs.store.folder import RunFolder, next_folder, runs_dir
from tuner_tui.runs.store.record import RecordError
from tuner_tui.runs.supervise.stop_escalation import DEFAULT_TIMEOUTS, StopTimeouts
from tuner_tui.settings.apply import AppliedCommand, build_command
from tuner_tui.settings.distributed import AccelerateConfig, read_accelerate_config
from tuner_tui.settings.errors import SettingsError
from tuner_tui.settings.job import BuiltinJob, CommandJob, Job
from tuner_tui.settings.origin import Resolved

DATA_SUFFIXES = frozenset({".csv", ".tsv", ".jsonl", ".json", ".parquet"})
"""What the built-in job reads as a file whatever else its name looks like."""
PATH_PREFIXES = ("/", "./", "../", "~")


def missing_path_problem(job: BuiltinJob, cwd: Path) -> str | None:
    """A sentence on the model or the data that is plainly meant as a path and is not there; None where all is well.

    A plain name (`bert-base`, `org/dataset`) may be on the Hub and is left alone.
    """
    for what, name in (("model", job.model), ("data", job.data)):
        is_file = what == "data" and Path(name).suffix in DATA_SUFFIXES
        if (is_file or name.startswith(PATH_PREFIXES)) and not (cwd / Path(name).expanduser()).exists():
            return f"The {what} {name} is not there (looked in {cwd})."
    return None


MIN_MEMORY_BYTES = 512 * 2**20
"""With 512 MiB of private memory torch 2.13 and the Trainer of transformers 5.23 were imported; with 448 MiB the import
did not end within a minute (Linux, one thread: more threads take more)."""


def memory_limit_problem(limit_bytes: int | None, env: Mapping[str, str]) -> str | None:
    """What is wrong with a memory limit, in a sentence; None where it is large enough or caps a GPU."""
    if limit_bytes is None or limit_bytes >= MIN_MEMORY_BYTES or has_gpu(env):
        return None
    floor = MIN_MEMORY_BYTES // 2**20
    return (
        f"The memory limit of {limit_bytes / 2**20:.0f} MiB is too small for a training: "
        f"importing torch and transformers takes about {floor} MiB and may never end with less."
    )


JIT_CHECKPOINT_SINCE = 5
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
    patience: StopTimeouts = DEFAULT_TIMEOUTS
    tuning: str | None = None


@dataclass(frozen=True, slots=True)
class PreparedLaunch:
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


def prepare(request: LaunchRequest, folder: RunFolder) -> PreparedLaunch:
    """Work out and check the launch of `request` in `folder`. Raises `LaunchError` and `SettingsError`."""
    checkpoint = checkpoint_to_resume(request)
    cwd = working_folder(request)
    tight = memory_limit_problem(request.memory_limit_bytes, request.environ)
    if isinstance(request.job, BuiltinJob) and (wrong := missing_path_problem(request.job, cwd) or tight):
        raise LaunchError(wrong)
    python = request.interpreter or training_python(request.job, request.environ, cwd)
    interpreter = probe_training_python(Path(python), request.job, request.resolved)
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
        added[RESUME_VARIABLE] = str(checkpoint)
    if checkpoints_on_sigterm(request, interpreter):
        added[SIGTERM_CHECKPOINT_VARIABLE] = "1"
    env = {**request.environ, **added}
    check_command(argv, cwd, env)
    accelerate = read_accelerate_config(request.job, env, request.cwd)
    check_launcher(request.job, env, accelerate)
    return PreparedLaunch(
        folder, argv, cwd, added, interpreter, applied, checkpoint, request.job.fallback, tight, accelerate
    )


def checkpoints_on_sigterm(request: LaunchRequest, interpreter: Interpreter) -> bool:
    """Whether a Trainer in the command is told to save on SIGTERM: from within, and no trial, which saves nothing."""
    within = isinstance(request.job, CommandJob) and request.job.apply == "inject" and request.tuning is None
    major = interpreter.packages.get("transformers", "0").partition(".")[0]
    return within and major.isdecimal() and int(major) >= JIT_CHECKPOINT_SINCE


def preview(request: LaunchRequest) -> PreparedLaunch:
    """The launch as it would be now, in the folder that the next run gets. Raises `LaunchError`."""
    try:
        return prepare(request, next_folder(request.root or runs_dir(request.environ)))
    except SettingsError as error:
        raise LaunchError(str(error)) from error


def working_folder(request: LaunchRequest) -> Path:
    """Where the command runs: the job's own folder, seen from where the launch was asked for."""
    own = request.job.cwd if isinstance(request.job, CommandJob) else None
    return Path(request.cwd, own or "").absolute()


def checkpoint_to_resume(request: LaunchRequest) -> Path | None:
    """Where the launch resumes; None for one that starts from nothing. Raises `LaunchError` where it cannot."""
    if request.parent is None or request.anew:
        return None
    try:
        found = lineage_checkpoint(request.parent)
    except RecordError as error:
        raise LaunchError(str(error)) from error
    if found is None:
        raise LaunchError(f"Run {request.parent.id} has no complete checkpoint to resume from.")
    if not found.by_trainer and not accepts_checkpoint(request.job):
        raise LaunchError(
            "This command cannot be told its checkpoint: write {checkpoint} where its path goes, or use apply: hf-args."
        )
    return found.path
