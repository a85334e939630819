"""The one path from a user's options to a running training.

`build_request` resolves presets, `tuner.yaml`, environment and flags into a `LaunchRequest`; `start_run` and
`restart_run` launch it together with its automatic fallback.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from tuner_tui.advice.recommend.recommendation import with_recommended
from tuner_tui.advice.recommend.target import limit_gpu_memory
from tuner_tui.hardware.interpreter import Interpreter
from tuner_tui.hardware.inventory import Inventory
from tuner_tui.runs.launch.prepare import LaunchRequest, PreparedLaunch
from tuner_tui.runs.launch.restart import RestartPlan, restart
from tuner_tui.runs.launch.start import launch
from tuner_tui.runs.queue.queued_run import QueuedRun
from tuner_tui.runs.queue.submission import enqueue
from tuner_tui.runs.store.folder import RunFolder, RunNotFoundError, find_run, runs_dir
from tuner_tui.runs.store.record import RecordError, read_record
from tuner_tui.settings.errors import SettingsError
from tuner_tui.settings.job import FALLBACK_VARIABLE, BuiltinJob
from tuner_tui.settings.model import Resolved
from tuner_tui.settings.resolve import Sources, resolve_training
from tuner_tui.tuning.detached_process import ProcessSpec
from tuner_tui.tuning.fallback import start_fallback_process


class TrainingMachine(Protocol):
    """Hardware and training interpreter that recommendations are made for."""

    @property
    def inventory(self) -> Inventory: ...

    @property
    def interpreter(self) -> Interpreter: ...


@dataclass(frozen=True, slots=True)
class LaunchOptions:
    """What to launch, as the user asked for it. `resume` names the run to continue."""

    sources: Sources
    resume: str | None = None
    memory_limit_bytes: int | None = None
    interpreter: Path | None = None


def build_request(
    options: LaunchOptions, read_machine: Callable[[Path | None], TrainingMachine] | None
) -> LaunchRequest:
    """The launch of a new training, or of one that resumes a run. Raises `SettingsError`.

    A new training by the built-in job takes the values recommended for `read_machine(interpreter)` where no source
    gives one; none where that is None, as the machine is not known yet. A training that resumes starts from the record
    of its run instead of `tuner.yaml` and the environment.
    """
    sources = options.sources
    if options.resume is not None:
        return _resume_request(options, _find_run(options.resume))
    if sources.preset is not None:
        sources = replace(sources, default_job=BuiltinJob())
    training = resolve_training(sources)
    job, resolved = training.job, training.resolved
    if job is None:
        raise SettingsError("Nothing to train. Give a preset (--preset demo) or a command (-- python train.py).")
    if isinstance(job, BuiltinJob) and read_machine is not None:
        machine = read_machine(options.interpreter)
        inventory = limit_gpu_memory(machine.inventory, options.memory_limit_bytes)
        resolved = with_recommended(resolved, inventory, machine.interpreter, job)
    return LaunchRequest(
        job=job,
        resolved=resolved,
        interpreter=options.interpreter,
        preset=sources.preset,
        memory_limit_bytes=options.memory_limit_bytes,
        notes=training.notes,
    )


def start_run(prepared: PreparedLaunch, *, refuse_duplicate: bool = False) -> RunFolder:
    """Start a prepared launch, with its automatic fallback where its job asks for one.

    Raises `LaunchError`; with `refuse_duplicate`, `DuplicateRunError` if the same training runs.
    """
    return _with_fallback(launch(prepared, refuse_duplicate=refuse_duplicate), prepared.request)


def queue_run(prepared: PreparedLaunch, need: QueuedRun) -> RunFolder:
    """Let a prepared launch wait for `need`, with its automatic fallback. Raises `LaunchError`."""
    return enqueue(prepared, need, fallback_input(prepared.request))


def fallback_input(request: LaunchRequest) -> str | None:
    """The input of the fallback process of a run that is started later; None where its job asks for none."""
    return ProcessSpec(request.job, request.environ).dump().decode("ascii") if request.job.fallback else None


def restart_run(plan: RestartPlan) -> RunFolder:
    """Carry out `plan`, with the automatic fallback of its job. Raises `LaunchError`."""
    return _with_fallback(restart(plan), plan.request)


def _with_fallback(folder: RunFolder, request: LaunchRequest) -> RunFolder:
    """Start the fallback process of the run just launched, if its job asks for it; without it the run continues."""
    if request.job.fallback:
        start_fallback_process(folder, ProcessSpec(request.job, request.environ))
    return folder


def _resume_request(options: LaunchOptions, parent: RunFolder) -> LaunchRequest:
    """`parent` with the changes that the preset, the flags and the job options make."""
    try:
        record = read_record(parent)
    except RecordError as error:
        raise SettingsError(str(error)) from error
    # The record holds what tuner.yaml and the environment chose when the run was first launched.
    environment = {name: text for name, text in options.sources.environment.items() if name == FALLBACK_VARIABLE}
    sources = replace(options.sources, project=None, environment=environment, default_job=record.job)
    training = resolve_training(sources)
    assert training.job is not None
    request = LaunchRequest.resume(parent, record)
    limit = options.memory_limit_bytes
    return replace(
        request,
        job=training.job,
        resolved=_override(record.resolved, training.resolved),
        interpreter=options.interpreter or request.interpreter,
        cwd=Path.cwd() if sources.job.command else request.cwd,
        preset=sources.preset or record.preset,
        memory_limit_bytes=record.memory_limit_bytes if limit is None else limit,
        notes=training.notes,
    )


def _override(base: Resolved, changes: Resolved) -> Resolved:
    """`base` with every value of `changes` that is not a default."""
    values = {name: getattr(changes.settings, name) for name in changes.origins}
    return Resolved(base.settings.changed(**values), {**base.origins, **changes.origins})


def _find_run(name: str) -> RunFolder:
    try:
        return find_run(name, runs_dir())
    except RunNotFoundError as error:
        raise SettingsError(str(error)) from error
