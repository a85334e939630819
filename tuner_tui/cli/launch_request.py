"""Options of `run` and `tune` as launch options, and what is printed before a launch."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from tuner_tui.advice.recommend.recommendation import with_recommended
from tuner_tui.advice.recommend.target import limit_gpu_memory
from tuner_tui.cli.console import USAGE, fail, print_note
from tuner_tui.cli.machine import LocalMachine, ReadMachine, read_local_machine
from tuner_tui.core.units import MIB, parse_size
from tuner_tui.hardware.interpreter import Interpreter, resolve_executable
from tuner_tui.hardware.known_cards import PlannedCards, UnknownCardError, parse_cards
from tuner_tui.runs.launch.launchers import training_python
from tuner_tui.runs.launch.prepare import LaunchRequest, PreparedLaunch, build_request, launch_summary, working_folder
from tuner_tui.runs.supervise.notify import NOTIFY_VARIABLE, target_problem
from tuner_tui.settings.errors import SettingsError
from tuner_tui.settings.job import BuiltinJob, CommandJob
from tuner_tui.settings.model import Resolved
from tuner_tui.settings.presets import TOOL_FILE_SUFFIXES
from tuner_tui.settings.resolve import LaunchOptions, parse_flags

JOB_VALUES = ("model", "task", "data")
"""What `--set` changes of the built-in job, in addition to the settings."""


def parse_launch_options(
    options: LaunchOptions, values: Sequence[str] | None = None, memory_limit: str | None = None
) -> LaunchOptions:
    """Complete `options` by `--set`, `--memory-limit` and the environment. Raises `SettingsError`.

    A configuration file in place of a command is a preset: the file names its tool.
    """
    if options.preset is None and len(options.command) == 1 and _is_tool_file(options.command[0]):
        options = replace(options, command=(), preset=options.command[0])
    words = [word.partition("=") for word in values or ()]
    chosen: dict[str, Any] = {name: text for name, _, text in words if name in JOB_VALUES and text}
    flags = parse_flags("".join(word) for word in words if word[0] not in chosen)
    limit = None if memory_limit is None else parse_size_option("--memory-limit", memory_limit)
    return replace(options, flags=flags, environment=dict(os.environ), memory_limit_bytes=limit, **chosen)


def launch_request(options: LaunchOptions, read_machine: ReadMachine) -> LaunchRequest:
    """The launch that the options ask for, with what is recommended for the machine. Raises `SettingsError`."""

    def recommend(resolved: Resolved, job: BuiltinJob) -> Resolved:
        machine = read_machine(options.interpreter)
        inventory = limit_gpu_memory(machine.inventory, options.memory_limit_bytes)
        return with_recommended(resolved, inventory, machine.interpreter, job)

    return build_request(options, recommend)


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
