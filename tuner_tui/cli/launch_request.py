"""Builds the launch request from the options of `run` and `tune`."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, get_args

from tuner_tui.advice.recommend.recommendation import with_recommended
from tuner_tui.advice.recommend.target import limit_gpu_memory
from tuner_tui.cli.console import USAGE, fail, print_note
from tuner_tui.cli.machine import ReadMachine, read_local_machine
from tuner_tui.hardware.interpreter.probe import resolve_executable
from tuner_tui.runs.launch.prepare import LaunchRequest, PreparedLaunch, working_folder
from tuner_tui.runs.launch.summary import launch_summary
from tuner_tui.runs.launch.training_python import training_python
from tuner_tui.runs.store.folder import RunFolder, RunNotFoundError, find_run, runs_dir
from tuner_tui.runs.store.record import RecordError, RunRecord, read_record
from tuner_tui.settings.apply import default_apply_mode
from tuner_tui.settings.dialects.registry import dialect_of_command
from tuner_tui.settings.errors import SettingsError
from tuner_tui.settings.fields import closest_match
from tuner_tui.settings.job import ApplyMode, BuiltinJob, CommandJob, Job, Launcher
from tuner_tui.settings.oom_fallback import with_fallback
from tuner_tui.settings.origin import Resolved
from tuner_tui.settings.presets.library import find_preset
from tuner_tui.settings.presets.preset import Preset
from tuner_tui.settings.resolve import PROJECT_FILE, parse_flags, resolve

if TYPE_CHECKING:
    from tuner_tui.runs.launch.prepare import LaunchRequest, PreparedLaunch


Choice = TypeVar("Choice", bound=str)


@dataclass(frozen=True, slots=True)
class JobOptions:
    """As typed: the command and what stands of it in front of `--`; None and empty where nothing was said."""

    command: tuple[str, ...] = ()
    apply: str | None = None
    launcher: str | None = None
    processes: int | None = None


NO_JOB_OPTIONS = JobOptions()


def resolve_job(words: JobOptions, preset: Preset | None, record: RunRecord | None = None) -> Job:
    """The job: the command given, with the preset's way of applying settings; else the preset's, else the parent's.

    A command that names no way takes settings by what is in it, see `default_apply_mode`. Raises `SettingsError`.
    """
    known = preset.job if preset is not None and preset.job is not None else None if record is None else record.job
    changes = _job_changes(words)
    if words.command and not isinstance(known, CommandJob):
        tool = dialect_of_command(words.command).name
        guessed = {"command": words.command, "apply": default_apply_mode(words.command), "dialect": tool}
        return _check_processes(CommandJob.model_validate(guessed | changes))
    if isinstance(known, CommandJob):
        return _check_processes(
            known.model_copy(update=changes | ({"command": words.command} if words.command else {}))
        )
    if known is None and preset is None:
        raise SettingsError("What shall be trained? Give a preset (--preset demo) or a command (-- python train.py).")
    if "apply" in changes:
        raise SettingsError("--apply is for a command; the built-in job takes all settings by itself.")
    return _check_processes((BuiltinJob() if known is None else known).model_copy(update=changes))


def _job_changes(words: JobOptions) -> dict[str, Any]:
    changes: dict[str, Any] = {}
    if words.apply is not None:
        changes["apply"] = _one_of("--apply", words.apply, get_args(ApplyMode))
    if words.launcher is not None:
        changes["launcher"] = _one_of("--launcher", words.launcher, get_args(Launcher))
    if words.processes is not None and words.processes < 1:
        raise SettingsError(f"--processes {words.processes}: at least one process trains.")
    if words.processes is not None:
        changes["processes"] = words.processes
    return changes


def _check_processes(job: Job) -> Job:
    if job.processes > 1 and job.launcher == "plain":
        raise SettingsError("Several processes need a launcher: --launcher torchrun, or accelerate.")
    return job


def _one_of(flag: str, text: str, words: Sequence[Choice]) -> Choice:
    for word in words:
        if word == text:
            return word
    near = closest_match(text, words)
    raise SettingsError(f"{flag} {text!r} is none of {', '.join(words)}" + (f"; did you mean {near}?" if near else "."))


UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "ki": 2**10, "mi": 2**20, "gi": 2**30, "ti": 2**40, "t": 10**12}


@dataclass(frozen=True, slots=True)
class LaunchOptions:
    """The command line of `run`, as typed."""

    job: JobOptions = NO_JOB_OPTIONS
    preset: str | None = None
    values: tuple[str, ...] = ()
    resume: str | None = None
    memory_limit: str | None = None
    interpreter: Path | None = None
    fallback: int | None = None


def build_request(asked: LaunchOptions, read_box: ReadMachine = read_local_machine) -> LaunchRequest:
    """The launch that is asked for. Raises `SettingsError` with one sentence for what is wrong with it.

    A new training by the built-in job gets what is recommended for the box where nobody said anything else.
    """
    limit = None if asked.memory_limit is None else parse_size(asked.memory_limit)
    preset = None if asked.preset is None else find_preset(asked.preset).preset
    parent = None if asked.resume is None else _find_parent(asked.resume)
    record = None if parent is None else _read_parent_record(parent)
    job = with_fallback(resolve_job(asked.job, preset, record), asked.fallback, os.environ)
    resolved = _resolve_settings(asked, preset, record)
    if record is None and isinstance(job, BuiltinJob):
        box = read_box(asked.interpreter)
        resolved = with_recommended(resolved, limit_gpu_memory(box.inventory, limit), box.interpreter, job)
    return LaunchRequest(
        job=job,
        resolved=resolved,
        interpreter=asked.interpreter or (Path(record.interpreter) if record is not None else None),
        cwd=Path.cwd() if record is None or asked.job.command else Path(record.cwd),
        preset=asked.preset or (None if record is None else record.preset),
        memory_limit_bytes=limit if limit is not None or record is None else record.memory_limit_bytes,
        parent=parent,
    )


def parse_size(text: str, flag: str = "--memory-limit") -> int:
    """Bytes from `6GiB`, `6.5 GB`, `800M` or a plain number of bytes; raises `SettingsError`, which names `flag`.

    Less than 1 MiB is refused: whoever writes 24 means another unit than bytes.
    """
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([kmgt]i?)?b?", text.strip().lower())
    size = int(float(found[1]) * UNITS[found[2] or ""]) if found else 0
    if size <= 0:
        raise SettingsError(f"{flag} {text!r} is no size; write one such as 6GiB or 800MB.")
    if size < 1 << 20:
        raise SettingsError(f"{flag} {text!r} is {size:,} bytes; write the unit, such as 6GiB or 800MB.")
    return size


def _resolve_settings(asked: LaunchOptions, preset: Preset | None, record: RunRecord | None) -> Resolved:
    flags = parse_flags(asked.values)
    if record is None:
        return resolve(flags=flags, environment=os.environ, project=Path(PROJECT_FILE), preset=preset)
    changes = resolve(flags=flags, preset=preset)
    values = {name: getattr(changes.settings, name) for name in changes.origins}
    settings = record.resolved.settings.changed(**values)
    return replace(record.resolved, settings=settings, origins={**record.resolved.origins, **changes.origins})


def _find_parent(name: str) -> RunFolder:
    try:
        return find_run(name, runs_dir())
    except RunNotFoundError as error:
        raise SettingsError(str(error)) from error


def _read_parent_record(folder: RunFolder) -> RunRecord:
    try:
        return read_record(folder)
    except RecordError as error:
        raise SettingsError(str(error)) from error


def check_interpreter(given: Path | None, request: LaunchRequest, prepared: PreparedLaunch) -> None:
    """End with 2 where `given`, the path of the flag, is no Python; say so where the command does not start by it."""
    if given is None:
        return
    if prepared.interpreter.python_version is None:
        fail(f"--interpreter: {prepared.interpreter.problem}", USAGE)
    if _only_probed(request, given):
        print_note(
            f"--interpreter {given} is only asked for its packages: the command starts by its own {prepared.argv[0]}."
        )


def _only_probed(request: LaunchRequest, given: Path) -> bool:
    job = request.job
    if not isinstance(job, CommandJob) or job.launcher != "plain":
        return False
    return resolve_executable(training_python(job, request.environ, working_folder(request))) != resolve_executable(
        given
    )


def print_announcement(prepared: PreparedLaunch) -> None:
    """Say it on standard error, so that standard output stays the result's."""
    for label, text in launch_summary(prepared):
        print_note(f"{label:<12} {text}")
