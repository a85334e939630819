"""What `--interpreter` means for a launch: refused where it is no Python, told where it starts nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tuner_tui.cli.output import USAGE, fail, note
from tuner_tui.hardware.interpreter.probe import resolve_executable
from tuner_tui.runs.launch.prepare import working_folder
from tuner_tui.runs.launch.training_python import training_python
from tuner_tui.settings.job import CommandJob

if TYPE_CHECKING:
    from pathlib import Path

    from tuner_tui.runs.launch.prepare import LaunchRequest, PreparedLaunch


def check_given(given: Path | None, request: LaunchRequest, prepared: PreparedLaunch) -> None:
    """End with 2 where `given`, the path of the flag, is no Python; say so where the command does not start by it."""
    if given is None:
        return
    if prepared.interpreter.python_version is None:
        fail(f"--interpreter: {prepared.interpreter.problem}", USAGE)
    if _only_asked(request, given):
        note(f"--interpreter {given} is only asked for its packages: the command starts by its own {prepared.argv[0]}.")


def _only_asked(request: LaunchRequest, given: Path) -> bool:
    job = request.job
    if not isinstance(job, CommandJob) or job.launcher != "plain":
        return False
    return resolve_executable(training_python(job, request.environ, working_folder(request))) != resolve_executable(
        given
    )
