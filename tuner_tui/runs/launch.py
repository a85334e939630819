"""Launching: from a job and its settings to a run folder with a supervisor that holds its lock."""

from __future__ import annotations

import os
import select
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tuner_tui import __version__
from tuner_tui.hardware.interpreter import Interpreter
from tuner_tui.runs.checkpoints import lineage_checkpoint
from tuner_tui.runs.command import (
    LaunchError,
    added_environment,
    check_command,
    git_revision,
    has_gpu,
    probe,
    redact_job,
    with_checkpoint,
    with_config,
    with_launcher,
)
from tuner_tui.runs.folder import RunFolder, create_folder, runs_dir
from tuner_tui.runs.ladder import DEFAULT_PATIENCE, Patience
from tuner_tui.runs.plan import Plan, dump_plan
from tuner_tui.runs.processes import this_machine
from tuner_tui.runs.record import RecordError, RunRecord, read_record, write_record
from tuner_tui.runs.redact import redact_argv, redact_env
from tuner_tui.settings.apply import AppliedCommand, command_for
from tuner_tui.settings.errors import SettingsError
from tuner_tui.settings.job import CommandJob, Job
from tuner_tui.settings.origin import Resolved

START_PATIENCE_S = 20.0
"""A supervisor is up in a tenth of a second; a box that swaps gets this long."""


@dataclass(frozen=True, slots=True)
class LaunchRequest:
    """What to launch. `parent` is the run to resume, from the newest complete checkpoint of its lineage.

    `interpreter` is the Python that trains; None stands for the one that the shell would use.
    """

    job: Job
    resolved: Resolved
    interpreter: Path | str | None = None
    cwd: Path = field(default_factory=Path.cwd)
    preset: str | None = None
    memory_limit_bytes: int | None = None
    parent: RunFolder | None = None
    environ: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))
    root: Path | None = None
    patience: Patience = DEFAULT_PATIENCE


def launch(request: LaunchRequest) -> RunFolder:
    """Start the run and return its folder once its supervisor is up and the training process exists.

    Raises `LaunchError`, with nothing left behind where nothing was started.
    """
    try:
        folder = create_folder(request.root or runs_dir(request.environ))
    except OSError as error:
        raise LaunchError(f"The run folder cannot be made: {error.strerror} ({error.filename}).") from error
    try:
        plan = _prepare(request, folder)
    except OSError as error:
        _discard(folder)
        raise LaunchError(f"The run folder cannot be written: {error.strerror} ({error.filename}).") from error
    except SettingsError as error:
        _discard(folder)
        raise LaunchError(str(error)) from error
    except LaunchError:
        _discard(folder)
        raise
    start_supervisor(folder, plan)
    return folder


def working_folder(request: LaunchRequest) -> Path:
    """Where the command runs: the job's own folder, seen from where the launch was asked for."""
    own = request.job.cwd if isinstance(request.job, CommandJob) else None
    return Path(request.cwd, own or "").absolute()


def adopt(folder: RunFolder) -> None:
    """Give a run whose supervisor died a new one. Raises `LaunchError` where there is nothing to adopt."""
    start_supervisor(folder, None)


def start_supervisor(folder: RunFolder, plan: Plan | None) -> None:
    """Start a detached supervisor and wait for its word: that it has the lock and the training is there.

    Raises `LaunchError` with the supervisor's sentence, or where it says nothing in `START_PATIENCE_S` seconds.
    """
    argv = [sys.executable, "-P", "-m", "tuner_tui.runs.supervisor", str(folder.path)] + ([] if plan else ["--adopt"])
    log = os.open(folder.supervisor_log, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        child = subprocess.Popen(
            argv, cwd="/", stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, start_new_session=True
        )
    finally:
        os.close(log)
    with child:
        _send(child, b"" if plan is None else dump_plan(plan))
        answer = _answer(child)
    if answer != "ok":
        raise LaunchError(answer or f"The supervisor did not come up; see {folder.supervisor_log}.")


def _prepare(request: LaunchRequest, folder: RunFolder) -> Plan:
    checkpoint = _checkpoint(request)
    interpreter = probe(request.interpreter, request.environ, request.job, request.resolved)
    applied = command_for(
        request.job, request.resolved.settings, interpreter, str(folder.output), chosen=request.resolved.chosen
    )
    applied = with_checkpoint(applied, request.job, checkpoint)
    argv = with_launcher(with_config(applied, folder), request.job, interpreter)
    cwd = working_folder(request)
    added = added_environment(request.job, request.environ, folder, applied.inject, request.memory_limit_bytes)
    env = {**request.environ, **added}
    check_command(argv, cwd, env)
    folder.output.mkdir(mode=0o700)
    write_record(folder, _record(request, folder, interpreter, argv, cwd, added, applied, checkpoint))
    limit = request.memory_limit_bytes
    return Plan(argv, str(cwd), env, limit if limit is not None and not has_gpu(env) else None, request.patience)


def _record(
    request: LaunchRequest,
    folder: RunFolder,
    interpreter: Interpreter,
    argv: tuple[str, ...],
    cwd: Path,
    added: Mapping[str, str],
    applied: AppliedCommand,
    checkpoint: Path | None,
) -> RunRecord:
    sha, dirty = git_revision(cwd)
    parent = request.parent
    return RunRecord(
        id=folder.id,
        created_t=time.time(),
        job=redact_job(request.job),
        resolved=request.resolved,
        argv=redact_argv(argv),
        cwd=str(cwd),
        interpreter=interpreter.path,
        host=this_machine().host,
        program_version=__version__,
        output_dir=str(folder.output),
        preset=request.preset,
        versions={"python": interpreter.python_version or "", **interpreter.packages},
        env=redact_env(added),
        not_applied=tuple(applied.not_applied),
        git_sha=sha,
        git_dirty=dirty,
        parent=None if parent is None else parent.id,
        lineage=() if parent is None else (*read_record(parent).lineage, parent.id),
        resumed_from=None if checkpoint is None else str(checkpoint),
        memory_limit_bytes=request.memory_limit_bytes,
    )


def _checkpoint(request: LaunchRequest) -> Path | None:
    if request.parent is None:
        return None
    try:
        checkpoint = lineage_checkpoint(request.parent)
    except RecordError as error:
        raise LaunchError(str(error)) from error
    if checkpoint is None:
        raise LaunchError(f"Run {request.parent.id} has no complete checkpoint to resume from.")
    return checkpoint


def _send(child: subprocess.Popen[bytes], data: bytes) -> None:
    assert child.stdin is not None
    try:
        child.stdin.write(data)
        child.stdin.close()
    except BrokenPipeError:  # it died early; its answer, or the lack of one, says so
        return


def _answer(child: subprocess.Popen[bytes]) -> str:
    """What it says until it lets go of the pipe."""
    assert child.stdout is not None
    said = b""
    deadline = time.monotonic() + START_PATIENCE_S
    while (left := deadline - time.monotonic()) > 0 and select.select([child.stdout], [], [], left)[0]:
        chunk = os.read(child.stdout.fileno(), 4096)
        if not chunk:
            break
        said += chunk
    return said.decode("utf-8", "replace").strip()


def _discard(folder: RunFolder) -> None:
    """Take back a folder in which nothing was started."""
    shutil.rmtree(folder.path, ignore_errors=True)
