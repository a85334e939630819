"""Roles of the processes below a training command: trainer, loader worker, other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import dropwhile


class Role(StrEnum):
    """What a process of the training does."""

    MAIN = "main"
    WORKER = "worker"
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class ClassifiedProcess:
    """A process's command line, its kernel name (`comm`) and its role."""

    command: tuple[str, ...]
    comm: str
    role: Role


LOADER_WORKER = "pt_data_worker"
"""The name that torch gives its loader workers (torch/utils/data/_utils/worker.py)."""
LAUNCHERS = frozenset({"torchrun", "accelerate", "deepspeed", "conda", "mamba", "tuner-tui", "ipython", "jupyter"})
LAUNCHER_MODULES = (
    "torch.distributed.",
    "accelerate.commands.",
    "deepspeed.launcher.",
    "tuner_tui.cli",
    "tuner_tui.runs",
)
SPAWN = "from multiprocessing.spawn import spawn_main"
FORKSERVER = "from multiprocessing.forkserver import main"
HELPERS = ("from multiprocessing.resource_tracker import", "torch/_inductor/compile_worker")


def role_of(command: tuple[str, ...], comm: str, parent: ClassifiedProcess | None) -> Role:
    """The role of a process, from its command line and its parent; `parent` is None for the launched command.

    The first Python below shells and launchers is the trainer. Its forks (same command line) and the children that
    multiprocessing spawns for it are loader workers; other programs it starts are not.
    """
    if comm == LOADER_WORKER:
        return Role.WORKER
    line = " ".join(command)
    if FORKSERVER in line:
        # The fork server is a child of the trainer; the workers it forks keep its command line.
        return Role.WORKER if parent is not None and parent.command == command else Role.OTHER
    if not is_python(command) or is_launcher(command) or any(helper in line for helper in HELPERS):
        return Role.OTHER
    if parent is not None and parent.role is Role.MAIN:
        return Role.WORKER if command == parent.command or SPAWN in line else Role.OTHER
    return Role.MAIN if parent is None or may_start_trainer(parent) else Role.OTHER


def may_start_trainer(process: ClassifiedProcess) -> bool:
    """True for shells, launchers and tools like `uv run`; False for trainers, workers and a trainer's helpers."""
    return process.role is Role.OTHER and not any(helper in " ".join(process.command) for helper in HELPERS)


def is_python(command: Sequence[str]) -> bool:
    """True when the program is Python; for a script with a `#!` line too, as the kernel puts the interpreter first."""
    return bool(command) and program_name(command[0]).startswith("python")


def program_name(word: str) -> str:
    """The last part of a path. Called for hundreds of command lines at once, where pathlib costs five times as much."""
    return word.rpartition("/")[2]


def is_launcher(command: Sequence[str]) -> bool:
    """True when the command starts a trainer: torchrun, accelerate launch and the like."""
    words = list(dropwhile(lambda word: word.startswith("-") and word != "-m", command[1:]))
    if len(words) > 1 and words[0] == "-m":
        return words[1].startswith(LAUNCHER_MODULES)
    return bool(words) and program_name(words[0]) in LAUNCHERS
