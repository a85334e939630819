"""Processes as `/proc` shows them, identified by number and start time because numbers are reused."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

PROC = Path("/proc")


@dataclass(frozen=True, slots=True)
class ProcessId:
    """A process that cannot be mistaken: its number and its start, in clock ticks since boot."""

    pid: int
    start_ticks: int


@dataclass(frozen=True, slots=True)
class Machine:
    """Where a process number means something: the host's name, this boot of it, this pid namespace."""

    host: str
    boot_id: str | None = None
    pid_namespace: str | None = None


@dataclass(frozen=True, slots=True)
class ProcessStat:
    """What `/proc/PID/stat` says; `state` is one letter, Z for a process that ended and was not collected."""

    pid: int
    state: str
    parent: int
    group: int
    session: int
    start_ticks: int


def this_machine() -> Machine:
    """This machine, this boot, this namespace."""
    return Machine(
        socket.gethostname(), _read_text(PROC / "sys/kernel/random/boot_id"), _read_link(PROC / "self/ns/pid")
    )


def identify_process(pid: int) -> ProcessId | None:
    """The identity of the living process `pid`; None where there is none."""
    stat = read_stat(pid)
    return None if stat is None else ProcessId(pid, stat.start_ticks)


def is_alive(process: ProcessId | ProcessStat) -> bool:
    """Whether this very process runs. A zombie does not, nor does another process that got its number."""
    stat = read_stat(process.pid)
    return stat is not None and stat.start_ticks == process.start_ticks and stat.state not in "ZX"


def read_stat(pid: int) -> ProcessStat | None:
    """The process's entry, or None where it is gone or hidden."""
    try:
        text = (PROC / str(pid) / "stat").read_text("utf-8", "replace")
        rest = text[text.rindex(")") + 2 :].split()  # the name may hold anything, brackets and blanks too
        return ProcessStat(pid, rest[0], int(rest[1]), int(rest[2]), int(rest[3]), int(rest[19]))
    except (OSError, ValueError, IndexError):
        return None


def descendants(pid: int) -> list[ProcessStat]:
    """The living processes below `pid`, parents before children. Reads all of `/proc`: not for every second."""
    children: dict[int, list[ProcessStat]] = {}
    for stat in _all_processes():
        children.setdefault(stat.parent, []).append(stat)
    found: list[ProcessStat] = []
    waiting = [pid]
    while waiting:
        below = children.pop(waiting.pop(), [])
        found += [stat for stat in below if stat.state not in "ZX"]
        waiting += [stat.pid for stat in below]
    return found


def session_members(session: int) -> list[ProcessStat]:
    """The living processes of a session."""
    return [stat for stat in _all_processes() if stat.session == session and stat.state not in "ZX"]


def command_line(pid: int) -> str:
    """The command of a process in one line, cut at 120 characters; empty where it is gone."""
    try:
        words = (PROC / str(pid) / "cmdline").read_bytes().split(b"\0")
    except OSError:
        return ""
    return b" ".join(word for word in words if word).decode("utf-8", "replace")[:120]


def process_name(pid: int) -> str | None:
    """The name that the process gives itself (`comm`); None where it is gone."""
    return _read_text(PROC / str(pid) / "comm")


def _all_processes() -> Iterator[ProcessStat]:
    for entry in PROC.iterdir():
        if entry.name.isdecimal():
            stat = read_stat(int(entry.name))
            if stat is not None:
                yield stat


def _read_text(path: Path) -> str | None:
    try:
        return path.read_text("utf-8", "replace").strip() or None
    except OSError:
        return None


def _read_link(path: Path) -> str | None:
    try:
        return str(path.readlink())
    except OSError:
        return None
