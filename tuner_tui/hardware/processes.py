"""Processes: their names, owners and roles in a training."""

from __future__ import annotations

import os
from collections.abc import Sequence
from enum import StrEnum
from itertools import dropwhile
from pathlib import Path, PurePath

from msgspec.structs import replace

from tuner_tui.core.ownership import user_name
from tuner_tui.core.procfs import PROC, read_command_line, read_proc_text
from tuner_tui.core.redaction import redact_argv
from tuner_tui.hardware.environment import sees_host_pids
from tuner_tui.hardware.inventory import GpuProcess

MAX_COMMAND_LENGTH, MAX_BRIEF_WORDS = 40, 8


def identify_gpu_processes(
    processes: tuple[GpuProcess, ...] | None, proc: Path = PROC
) -> tuple[GpuProcess, ...] | None:
    """The processes with a brief command and their owner.

    None in a container: the driver reports the host's pids there, which are other processes in our namespace.
    """
    if processes is None or not sees_host_pids(proc):
        return None
    return tuple(
        replace(process, command=brief_command(_command_words(process.pid, proc)), user=read_owner(process.pid, proc))
        for process in processes
    )


def with_command_line(process: GpuProcess, proc: Path = PROC) -> GpuProcess:
    """The process with its whole command line, secrets hidden, and its owner, as far as this user may read them."""
    words = redact_argv(_command_words(process.pid, proc))
    return replace(process, command=" ".join(words) or None, user=read_owner(process.pid, proc))


def brief_command(words: Sequence[str]) -> str | None:
    """The command as people write it: `python train.py`, `python -m ipykernel_launcher`; None without words."""
    if not words:
        return None
    words = redact_argv(words[:MAX_BRIEF_WORDS])
    name = PurePath(words[0]).name
    if name.startswith("python"):
        started = [word for word in words[1:] if word in ("-m", "-c") or not word.startswith("-")]
        shown = 2 if started[:1] == ["-m"] else 1  # the code after -c says little, and may be long
        name = " ".join(["python", *(PurePath(word).name for word in started[:shown])])
    return name[:MAX_COMMAND_LENGTH]


def read_owner(pid: int, proc: str | Path = PROC) -> str | None:
    """The owner's name, or the user id where it has no name; None when the process has ended."""
    try:
        owner = os.stat(f"{proc}/{pid}").st_uid  # noqa: PTH116
    except OSError:
        return None
    return user_name(owner)


def _command_words(pid: int, proc: Path) -> tuple[str, ...]:
    """The command line, or the kernel's name of the process where that is hidden; empty when it has ended."""
    if command := read_command_line(pid, proc):
        return command
    name = read_proc_text(proc / str(pid) / "comm").strip()
    return (name,) if name else ()


class Role(StrEnum):
    """What a process of the training does."""

    MAIN = "main"
    WORKER = "worker"
    OTHER = "other"


Parent = tuple[tuple[str, ...], Role]
"""The command line and the role of a parent."""

LOADER_WORKER = "pt_data_worker"
"""The name that torch gives its loader workers (torch/utils/data/_utils/worker.py)."""
LAUNCHERS = frozenset({"torchrun", "accelerate", "deepspeed", "conda", "mamba", "tuner-tui", "ipython", "jupyter"})
RANK_LAUNCHER_MODULES = ("torch.distributed.", "accelerate.commands.", "deepspeed.launcher.", "tuner_tui.runs.")
LAUNCHER_MODULES = (*RANK_LAUNCHER_MODULES, "tuner_tui.cli")
SPAWN = "from multiprocessing.spawn import spawn_main"
FORKSERVER = "from multiprocessing.forkserver import main"
HELPERS = ("from multiprocessing.resource_tracker import", "torch/_inductor/compile_worker")


def role_of(command: tuple[str, ...], comm: str, parent: Parent | None) -> Role:
    """The role of a process, from its command line and its parent; `parent` is None for the launched command.

    The first Python below shells and launchers is the trainer. Its forks (same command line) and the children that
    multiprocessing spawns for it are loader workers; other programs it starts are not.
    """
    # torch names its workers in newer releases. For older ones, and for other libraries, the tree decides: workers are
    # forked (same command line as the trainer) or spawned (a command line of multiprocessing).
    if comm == LOADER_WORKER:
        return Role.WORKER
    line = " ".join(command)
    if FORKSERVER in line:
        # The fork server is a child of the trainer; the workers it forks keep its command line.
        return Role.WORKER if parent is not None and parent[0] == command else Role.OTHER
    if not is_python(command) or is_launcher(command) or any(helper in line for helper in HELPERS):
        return Role.OTHER
    if parent is None:
        return Role.MAIN
    above, role = parent
    if role is Role.MAIN:
        return Role.WORKER if command == above or SPAWN in line else Role.OTHER
    # Shells, launchers and tools like `uv run` start trainers; workers and a trainer's helpers do not.
    starts = role is Role.OTHER and not any(helper in " ".join(above) for helper in HELPERS)
    return Role.MAIN if starts else Role.OTHER


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
