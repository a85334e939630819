"""Starts a command as it is, or as several processes by torchrun or accelerate."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Literal

from tuner_tui.settings.job import Launcher

PYTHON = re.compile(r"python[\d.]*")
SWITCHES = re.compile(r"-[bBdEiIOPqsSuvVx]+")


@dataclass(frozen=True, slots=True)
class Program:
    """`words` are the script, module or program, and its arguments. A launcher brings its own Python switches."""

    kind: Literal["script", "module", "program"]
    words: tuple[str, ...]
    python: str


def parse_program(argv: Sequence[str], python: str) -> Program:
    """Take `python -u train.py …`, `python -m package …`, `train.py …` or `some-program …` apart."""
    words = tuple(argv)
    if not PYTHON.fullmatch(PurePath(words[0]).name):
        return Program("script" if words[0].endswith(".py") else "program", words, python)
    rest = list(words[1:])
    while rest and SWITCHES.fullmatch(rest[0]):
        rest.pop(0)
    if len(rest) > 1 and rest[0] == "-m":
        return Program("module", tuple(rest[1:]), words[0])
    if rest and not rest[0].startswith("-"):
        return Program("script", tuple(rest), words[0])
    return Program("program", words, words[0])  # python -c, -W, -X: started unchanged


ACCELERATE_FLAGS = {"script": (), "module": ("--module",), "program": ("--no_python",)}


def accelerate_command(program: Program, processes: int) -> tuple[str, ...]:
    """The program in `processes` processes; everything else is left to the user's own accelerate configuration."""
    starter = (program.python, "-m", "accelerate.commands.launch", f"--num_processes={processes}")
    return (*starter, *ACCELERATE_FLAGS[program.kind], *program.words)


TORCHRUN_FLAGS = {"script": (), "module": ("--module",), "program": ("--no-python",)}


def torchrun_command(program: Program, processes: int) -> tuple[str, ...]:
    """The program in `processes` processes on this machine; a free port is chosen, so that runs do not collide."""
    starter = (program.python, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}")
    return (*starter, *TORCHRUN_FLAGS[program.kind], *program.words)


def launcher_command(launcher: Launcher, argv: Sequence[str], processes: int, python: str) -> tuple[str, ...]:
    """`argv` as `launcher` starts it on this machine; `python` runs the launcher where `argv` names no Python."""
    match launcher:
        case "torchrun":
            return torchrun_command(parse_program(argv, python), processes)
        case "accelerate":
            return accelerate_command(parse_program(argv, python), processes)
        case "plain":
            return tuple(argv)
