"""Command and user of a process that the driver gives by its pid alone."""

from __future__ import annotations

import os
import pwd
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path, PurePath

from tuner_tui.hardware.environment import sees_host_pids
from tuner_tui.hardware.host.host_sampler import read_text
from tuner_tui.hardware.inventory import GpuProcess

BRIEF_CHARACTERS = 40


def identify_gpu_processes(
    processes: tuple[GpuProcess, ...] | None, proc: Path = Path("/proc")
) -> tuple[GpuProcess, ...] | None:
    """The processes with brief command and user; None where the driver's pids are another namespace's.

    In a container the driver gives the host's pids. Compared with ours they would name the wrong processes.
    """
    if processes is None or not sees_host_pids(proc):
        return None
    return tuple(
        replace(process, command=brief_command(read_command(process.pid, proc)), user=read_owner(process.pid, proc))
        for process in processes
    )


def with_command_line(process: GpuProcess, proc: Path = Path("/proc")) -> GpuProcess:
    """The process with its whole command line and user, as far as this user may know them."""
    words = read_command(process.pid, proc)
    return replace(process, command=" ".join(words) or None, user=read_owner(process.pid, proc))


def read_command(pid: int, proc: Path) -> list[str]:
    """The words of its command line, or the kernel's name of it where that is hidden; empty when it has ended."""
    line = read_text(proc / str(pid) / "cmdline").rstrip("\0") or read_text(proc / str(pid) / "comm").strip()
    return line.split("\0") if line else []


def brief_command(words: Sequence[str]) -> str | None:
    """What a person calls it: `python train.py`, `python -m ipykernel_launcher`; None for one that has ended."""
    if not words:
        return None
    name = PurePath(words[0]).name
    if name.startswith("python"):
        rest = [word for word in words[1:] if word == "-m" or not word.startswith("-")]
        name = " ".join(["python", *(PurePath(word).name for word in rest[: 2 if rest[:1] == ["-m"] else 1])])
    return name[:BRIEF_CHARACTERS]


def read_owner(pid: int, proc: Path) -> str | None:
    """The owner's name, or number where the box has no name for it; None when it has ended."""
    try:
        owner = os.stat(proc / str(pid)).st_uid  # noqa: PTH116
    except OSError:
        return None
    return user_name(owner)


@lru_cache(maxsize=256)
def user_name(owner: int) -> str:
    """The user's name, asked once: it may come from a server far away."""
    try:
        return pwd.getpwuid(owner).pw_name
    except KeyError:
        return str(owner)
