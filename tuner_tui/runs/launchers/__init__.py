"""How a command is started: as it is, or as several processes by torchrun or accelerate."""

from __future__ import annotations

from collections.abc import Sequence

from tuner_tui.runs.launchers.accelerate import accelerate
from tuner_tui.runs.launchers.program import program_of
from tuner_tui.runs.launchers.torchrun import torchrun
from tuner_tui.settings.job import Launcher

__all__ = ["launched_by"]


def launched_by(launcher: Launcher, argv: Sequence[str], processes: int, python: str) -> tuple[str, ...]:
    """`argv` as `launcher` starts it on this machine; `python` runs the launcher where `argv` names no Python."""
    match launcher:
        case "torchrun":
            return torchrun(program_of(argv, python), processes)
        case "accelerate":
            return accelerate(program_of(argv, python), processes)
        case "plain":
            return tuple(argv)
