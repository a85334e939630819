"""Launches a run: refuses a duplicate, creates the run folder, starts or replaces its supervisor."""

from __future__ import annotations

import json
import shutil
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Self

from msgspec import Struct, field, structs, to_builtins

from tuner_tui import __version__
from tuner_tui.core.file_locks import LockedError, held_lock
from tuner_tui.core.files import make_private, write_atomic
from tuner_tui.core.json_struct import WORD, to_json
from tuner_tui.core.procfs import end_group, this_machine
from tuner_tui.core.redaction import redact_env
from tuner_tui.runs.launch.command import LaunchError, check_script, check_unshared, git_revision, has_gpu
from tuner_tui.runs.launch.prepare import LaunchRequest, PreparedLaunch, shared_outputs, working_folder
from tuner_tui.runs.read.status import live_runs
from tuner_tui.runs.store.folder import RunFolder, create_folder, reserve_control
from tuner_tui.runs.store.record import RunRecord, read_record, readable_record, redact_job, write_record
from tuner_tui.runs.supervise.run_processes import (
    FALLBACK_MODULE,
    START_TIMEOUT_S,
    SUPERVISOR_MODULE,
    finish_start,
    open_detached,
)
from tuner_tui.runs.supervise.training_process import LaunchSpec
from tuner_tui.settings.job import Job, job_from_json, same_training


def launch(
    prepared: PreparedLaunch,
    *,
    refuse_duplicate: bool = False,
    start: Callable[[RunFolder, LaunchSpec], None] | None = None,
) -> RunFolder:
    """Start the prepared run and return its folder once its supervisor is up and the training process exists.

    `start` starts it in its folder; None: `start_supervisor`, then the automatic fallback if the job asks for it.

    Where another run took the folder name since it was prepared, the run gets the next one. Raises `LaunchError`; the
    folder is removed again where nothing was started. With `refuse_duplicate` a live run of the same training raises
    `DuplicateRunError`; of several launches at once, one is started.
    """
    root = prepared.request.runs_root
    check_script(prepared.argv, prepared.cwd)
    try:
        with exclusive_launch(root) if refuse_duplicate else nullcontext():
            if refuse_duplicate:
                ensure_no_duplicate(prepared.request)
            folder, spec = _create_run(prepared, root)
    except OSError as error:
        raise LaunchError(f"The run folder cannot be created: {error.strerror} ({error.filename or root}).") from error
    (start or start_supervisor)(folder, spec)
    if start is None:
        start_fallback(folder, prepared.request.job, prepared.request.environ)
    return folder


def _create_run(prepared: PreparedLaunch, root: Path) -> tuple[RunFolder, LaunchSpec]:
    """Create the folder and write its files. Raises `OSError` where there can be no folder, else `LaunchError`."""
    folder = create_folder(root)
    try:
        prepared = prepared.in_folder(folder)
        if prepared.applied.config_yaml is not None:
            write_atomic(folder.config, prepared.applied.config_yaml)
        folder.output.mkdir(mode=0o700)
        write_record(folder, _build_record(prepared))
        reserve_control(folder)
        return folder, launch_spec(prepared)
    except BaseException as error:  # KeyboardInterrupt too
        shutil.rmtree(folder.path, ignore_errors=True)
        if not isinstance(error, OSError):
            raise
        problem = f"{error.strerror} ({error.filename or folder.path})"
        raise LaunchError(f"The run folder cannot be written: {problem}.") from error


def adopt(folder: RunFolder) -> None:
    """Start a new supervisor for a run whose supervisor died. Raises `LaunchError` if there is nothing to adopt."""
    check_unshared(folder.path, folder.state)
    start_supervisor(folder, None)


def start_supervisor(folder: RunFolder, spec: LaunchSpec | None, timeout_s: float = START_TIMEOUT_S) -> None:
    """Start a detached supervisor and wait until it holds the lock and the training exists.

    Without `spec` it adopts the training of the folder. Raises `LaunchError` with the supervisor's message, or after
    `timeout_s` seconds without one; it is then ended, so that it does not start the training later.
    """
    data = b"" if spec is None else json.dumps(to_json(spec)).encode("ascii")
    options = [] if spec else ["--adopt"]
    answer = ask_detached(SUPERVISOR_MODULE, [str(folder.path), *options], data, folder.supervisor_log, timeout_s)
    if answer != "ok":
        raise LaunchError(answer or f"The supervisor did not start; see {folder.supervisor_log}.")


def start_fallback(folder: RunFolder, job: Job, environ: Mapping[str, str]) -> None:
    """Start the process that restarts the run just launched after out of memory, if its job asks for it.

    Without that process the run continues. Raises `LaunchError` if it fails.
    """
    if job.fallback:
        spec = ProcessSpec(job, environ)
        start_detached(FALLBACK_MODULE, folder.path, spec, folder.supervisor_log, "The OOM retry")


def launch_spec(prepared: PreparedLaunch) -> LaunchSpec:
    request = prepared.request
    return LaunchSpec(
        prepared.argv,
        str(prepared.cwd),
        prepared.env,
        private_memory_limit(request.memory_limit_bytes, prepared.env),
        request.stop_timeouts,
        request.ends_with,
        request.stop_after_s,
    )


def private_memory_limit(memory_limit_bytes: int | None, env: Mapping[str, str]) -> int | None:
    """The limit of the private memory, which a memory limit is where there is no GPU."""
    return None if has_gpu(env) else memory_limit_bytes


def _build_record(prepared: PreparedLaunch) -> RunRecord:
    request = prepared.request
    sha, dirty = git_revision(prepared.cwd)
    parent = request.parent
    shared = prepared.shared_outputs  # since it was prepared, the other run may have ended
    if shared:
        shared = shared_outputs(request.runs_root, prepared.redacted_argv, prepared.cwd, parent)
    return RunRecord(
        id=prepared.folder.id,
        created_t=time.time(),
        job=redact_job(request.job),
        resolved=request.resolved,
        argv=prepared.redacted_argv,
        cwd=str(prepared.cwd),
        interpreter=prepared.interpreter.path,
        host=this_machine().host,
        program_version=__version__,
        output_dir=str(prepared.folder.output),
        preset=request.preset,
        versions={"python": prepared.interpreter.python_version or "", **prepared.interpreter.packages},
        env=redact_env(prepared.added_env),
        not_applied=tuple(prepared.applied.not_applied),
        git_sha=sha,
        git_dirty=dirty,
        parent=None if parent is None else parent.id,
        lineage=() if parent is None else (*read_record(parent).lineage, parent.id),
        resumed_from=None if prepared.checkpoint is None else str(prepared.checkpoint),
        memory_limit_bytes=request.memory_limit_bytes,
        tuning=request.tuning,
        stop_after_s=request.stop_after_s,
        nodes=request.nodes,
        shared_outputs=shared,
    )


LAUNCH_LOCK = "launch.lock"
LOCK_TIMEOUT_S = 30.0
"""A launch holds the lock while it looks for a duplicate and writes its folder: a fraction of a second."""


class DuplicateRunError(LaunchError):
    """The same training already runs."""


def exclusive_launch(root: Path) -> AbstractContextManager[int]:
    """Let one launch at a time look for a duplicate and write its folder, inside the block.

    Raises `LaunchError` where another launch takes too long, and `OSError`.
    """
    # Two launches at once would both look, find nothing and start. The lock is given up before the supervisor starts,
    # which takes longest: by then the folder is there, and counts as a starting run.
    make_private(root)
    try:
        return held_lock(root / LAUNCH_LOCK, LOCK_TIMEOUT_S, needed=False)
    except LockedError as error:
        raise LaunchError("Another launch is taking too long; try again later.") from error


def ensure_no_duplicate(request: LaunchRequest) -> None:
    """Raise `DuplicateRunError` if a run of the same job, chosen settings and folder, or the run to resume, is live."""
    job, chosen = redact_job(request.job), (request.resolved.given, str(working_folder(request)))
    for folder in live_runs(request.runs_root):
        record = readable_record(folder)
        # What is recommended may differ from one minute to the next: the living run itself holds memory of the GPU.
        twin = record is not None and (record.resolved.given, record.cwd) == chosen and same_training(record.job, job)
        if folder == request.parent or twin:
            raise DuplicateRunError(
                f"This training is already running as {folder.id}: `tuner-tui {folder.argument}`, or r on the screen."
            )


class ProcessSpec(Struct, frozen=True):
    """The input of a detached process: the job with its secrets, and the environment to launch it in."""

    job: Job
    environ: Mapping[str, str] = field(default_factory=dict)

    def dump(self) -> bytes:
        """Return the spec as JSON, in ASCII because environment variables may hold any bytes."""
        return json.dumps({**structs.asdict(self), "job": to_builtins(self.job)}, default=dict).encode("ascii")

    @classmethod
    def load(cls, data: bytes) -> Self:
        """Return the spec from JSON. Raises `ValueError`."""
        try:
            values = json.loads(data)
            if not all(WORD.accepts(word) for pair in values["environ"].items() for word in pair):
                raise ValueError("environ is not an environment")
            return cls(**{**values, "job": job_from_json(values["job"])})
        except (AttributeError, KeyError, TypeError, ValueError, RecursionError) as error:
            raise ValueError(f"The input of the process is damaged: {error}") from error


def start_detached(module: str, folder: Path, spec: ProcessSpec, log: Path, name: str) -> None:
    """Run `python -m module folder` with `spec` as its input; return once it answers that it is ready.

    Raises `LaunchError` with `name` and the answer if it does not start.
    """
    answer = ask_detached(module, [str(folder)], spec.dump(), log, START_TIMEOUT_S)
    if answer != "ok":
        raise LaunchError(f"{name} did not start: {answer or f'see {log}'}.")


def ask_detached(module: str, arguments: Sequence[str], data: bytes, log: Path, timeout_s: float) -> str:
    """Start `python -m module` in a session of its own, which gets `data` on standard input, and return its answer.

    The answer is what it writes to standard output until it closes it. A process that gives none within `timeout_s`
    seconds is ended. Raises `LaunchError` if `log`, its standard error, cannot be written.
    """
    try:
        child = open_detached(module, arguments, log, subprocess.PIPE, subprocess.PIPE)
    except OSError as error:
        raise LaunchError(f"{module} cannot be started: {error.strerror} ({error.filename}).") from error
    answer = finish_start(child, data, timeout_s).decode("utf-8", "replace").strip()
    if not answer:  # it must not start the training later
        end_group(child.pid)
    return answer
