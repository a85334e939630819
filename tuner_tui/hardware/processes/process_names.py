"""Command and owner of a process that the driver identifies by its pid alone."""

from __future__ import annotations

import os
import pwd
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path, PurePath

from tuner_tui.core.procfs import PROC, read_command, read_text
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
        rest = [word for word in words[1:] if word in ("-m", "-c") or not word.startswith("-")]
        shown = 2 if rest[:1] == ["-m"] else 1  # the code after -c says little, and may be long
        name = " ".join(["python", *(PurePath(word).name for word in rest[:shown])])
    return name[:MAX_COMMAND_LENGTH]


def read_owner(pid: int, proc: Path = PROC) -> str | None:
    """The owner's name, or the user id where it has no name; None when the process has ended."""
    try:
        owner = os.stat(proc / str(pid)).st_uid  # noqa: PTH116
    except OSError:
        return None
    return user_name(owner)


@lru_cache(maxsize=256)
def user_name(uid: int) -> str:
    """The user's name, cached because looking it up may ask a server."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def _command_words(pid: int, proc: Path) -> tuple[str, ...]:
    """The command line, or the kernel's name of the process where that is hidden; empty when it has ended."""
    if command := read_command(pid, proc):
        return command
    name = read_text(proc / str(pid) / "comm").strip()
    return (name,) if name else ()
