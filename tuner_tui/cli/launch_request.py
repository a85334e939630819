"""Options of `run` and `tune` as launch options, and what is printed before a launch."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from tuner_tui.cli.console import USAGE, fail, print_note
from tuner_tui.cli.machine import LocalMachine, read_local_machine
from tuner_tui.core.units import MIB, parse_size
from tuner_tui.hardware.interpreter import Interpreter, resolve_executable
from tuner_tui.hardware.planned import PlannedCards, UnknownCardError, parse_cards
from tuner_tui.runs.launch.launchers import training_python
from tuner_tui.runs.launch.prepare import LaunchRequest, PreparedLaunch, launch_summary, working_folder
from tuner_tui.runs.supervise.notify import NOTIFY_VARIABLE, target_problem
from tuner_tui.settings.errors import SettingsError
from tuner_tui.settings.job import CommandJob
from tuner_tui.settings.presets import TOOL_FILE_SUFFIXES
from tuner_tui.settings.resolve import JobOptions, Sources, parse_flags
from tuner_tui.tuning.launching import LaunchOptions

JOB_VALUES = ("model", "task", "data")
"""What `--set` changes of the built-in job, in addition to the settings."""


def parse_launch_options(
    job: JobOptions,
    preset: str | None = None,
    values: Sequence[str] | None = None,
    memory_limit: str | None = None,
    interpreter: Path | None = None,
    *,
    fallback: int | None = None,
    resume: str | None = None,
) -> LaunchOptions:
    """Parse the options of the command line. Raises `SettingsError`.

    A configuration file in place of a command is a preset: the file names its tool.
    """
    if preset is None and len(job.command) == 1 and _is_tool_file(job.command[0]):
        job, preset = replace(job, command=()), job.command[0]
    words = [word.partition("=") for word in values or ()]
    chosen = {name: text for name, _, text in words if name in JOB_VALUES and text}
    job = replace(
        job,
        model=chosen.get("model", job.model),
        task=chosen.get("task", job.task),
        data=chosen.get("data", job.data),
    )
    flags = parse_flags("".join(word) for word in words if word[0] not in chosen)
    sources = Sources(preset, flags, dict(os.environ), job=job, fallback=fallback)
    limit = None if memory_limit is None else parse_size_option("--memory-limit", memory_limit)
    return LaunchOptions(sources, resume, limit, interpreter)


def _is_tool_file(word: str) -> bool:
    return word.endswith(TOOL_FILE_SUFFIXES) and Path(word).is_file() and not os.access(word, os.X_OK)


def parse_size_option(flag: str, text: str) -> int:
    """Return the bytes of a size such as `6GiB`. Raises `SettingsError`, also below 1 MiB: the unit is missing then."""
    size = parse_size(text)
    if not size:
        raise SettingsError(f"{flag}: {text!r} is not a size (try 6GiB or 800MB).")
    if size < MIB:
        raise SettingsError(f"{flag}: {text!r} is only {size:,} bytes; add a unit, such as 6GiB or 800MB.")
    return size


def parse_gpus(text: str) -> tuple[PlannedCards, ...]:
    """Parse `--gpu`. Raises `SettingsError` for an unknown GPU."""
    try:
        return tuple(parse_cards(text))
    except UnknownCardError as error:
        raise SettingsError(f"--gpu: {error}") from error


def read_training_machine(given: Path | None) -> LocalMachine:
    """Return this machine; exit with 2 if `given`, the path of `--interpreter`, is no Python: do not ask it again."""
    machine = read_local_machine(given)
    if given is not None:
        _refuse_no_python(machine.interpreter)
    return machine


def check_interpreter(given: Path | None, request: LaunchRequest, prepared: PreparedLaunch) -> None:
    """Exit with 2 if `given`, the path of `--interpreter`, is no Python; print a note if the command uses another."""
    if given is None:
        return
    _refuse_no_python(prepared.interpreter)
    if _only_probed(request, given):
        print_note(f"--interpreter {given} is only used to look up packages; the command runs {prepared.argv[0]}.")


def _refuse_no_python(interpreter: Interpreter) -> None:
    if interpreter.python_version is None:
        fail(f"--interpreter: {interpreter.problem}", USAGE)


def _only_probed(request: LaunchRequest, given: Path) -> bool:
    job = request.job
    if not isinstance(job, CommandJob) or job.launcher != "plain":
        return False
    return resolve_executable(training_python(job, request.environ, working_folder(request))) != resolve_executable(
        given
    )


def print_announcement(prepared: PreparedLaunch) -> None:
    """Print what will be launched to stderr: standard output is for results."""
    for label, text in launch_summary(prepared):
        print_note(f"{label:<12} {text}")


def with_notify_target(request: LaunchRequest, target: str | None) -> LaunchRequest:
    """Return the request with its notification target; exit with 2 if the target is invalid."""
    target = request.environ.get(NOTIFY_VARIABLE) if target is None else target
    if not target:
        return request
    wrong = target_problem(target)
    if wrong is not None:
        fail(wrong, USAGE)
    return replace(request, environ={**request.environ, NOTIFY_VARIABLE: target})
