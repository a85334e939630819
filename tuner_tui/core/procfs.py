"""Reads /proc: the one reader of `/proc/PID/stat`, and processes identified by pid and start time.

Pids are reused; a pid together with its start time is not. Paths are parameters so that tests can use their own trees.
"""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import NamedTuple

from msgspec import Struct

from tuner_tui.core.files import closing_descriptor
from tuner_tui.core.json_struct import HostName, Pid, StartTicks

PROC = Path("/proc")
TICKS_PER_S = os.sysconf("SC_CLK_TCK")
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
STAT_FIELDS = 22
"""Fields of /proc/PID/stat from the state to the resident pages; those after them are not split."""


class ProcessStat(NamedTuple):
    """One process as `/proc/PID/stat` describes it.

    `state` is one letter (`R` running or runnable, `Z` ended and not yet reaped), `cpu_s` user and system time, and
    `start_ticks` the start in clock ticks since boot. A named tuple because hundreds are made each second.
    """

    pid: int
    comm: str
    state: str
    parent: int
    group: int
    session: int
    cpu_s: float
    start_ticks: int
    rss_bytes: int

    @property
    def is_running(self) -> bool:
        """False for a process that has ended."""
        return self.state not in "ZX"


class ProcessId(Struct, frozen=True):
    """A process identified for good: its pid and its start in clock ticks since boot."""

    pid: Pid
    start_ticks: StartTicks


class Machine(Struct, frozen=True):
    """The scope of a pid: host name, boot and pid namespace."""

    host: HostName
    boot_id: str | None = None
    pid_namespace: str | None = None


@cache
def this_machine() -> Machine:
    try:
        namespace: str | None = str((PROC / "self/ns/pid").readlink())
    except OSError:
        namespace = None
    return Machine(socket.gethostname(), read_proc_text(PROC / "sys/kernel/random/boot_id").strip() or None, namespace)


def read_proc_text(path: str | Path) -> str:
    """The text of a file of /proc or /sys; empty where it cannot be read."""
    try:
        # Called many times a second: half the cost of Path.read_text.
        with open(path, encoding="utf-8", errors="replace") as file:  # noqa: PTH123
            return file.read()
    except OSError:
        return ""


def started_with(process: int | str) -> dict[str, str]:
    """The environment that a process was started with, or `self`; empty where it cannot be read."""
    return dict(pair.partition("=")[::2] for pair in read_proc_text(f"{PROC}/{process}/environ").split("\0"))


def read_stat(pid: int, proc: str | Path = PROC) -> ProcessStat | None:
    """The process's entry; None where it is gone or hidden. A process that has ended may still have one."""
    try:
        descriptor = os.open(f"{proc}/{pid}/stat", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        line = os.read(descriptor, 2048)
    except OSError:  # it ended in between
        return None
    finally:
        os.close(descriptor)
    # The name is in parentheses and may itself hold parentheses and blanks.
    head, _, rest = line.rpartition(b")")
    fields = rest.split(None, STAT_FIELDS)
    if len(fields) < STAT_FIELDS:
        return None
    return ProcessStat(
        pid,
        head.partition(b"(")[2].decode("utf-8", "replace"),
        fields[0].decode("ascii"),
        int(fields[1]),
        int(fields[2]),
        int(fields[3]),
        (int(fields[11]) + int(fields[12])) / TICKS_PER_S,
        int(fields[19]),
        int(fields[21]) * PAGE_BYTES,
    )


def list_pids(proc: str | Path = PROC) -> list[int]:
    return [int(name) for name in os.listdir(proc) if name.isdecimal()]  # noqa: PTH208


def identify_process(pid: int) -> ProcessId | None:
    """The identity of process `pid`; None where there is none."""
    stat = read_stat(pid)
    return None if stat is None else ProcessId(pid, stat.start_ticks)


def is_alive(process: ProcessId | ProcessStat) -> bool:
    """True while this very process runs: not for a zombie, nor for another process that got its pid."""
    stat = read_stat(process.pid)
    return stat is not None and stat.start_ticks == process.start_ticks and stat.is_running


def send_signal(process: ProcessId | ProcessStat, number: int) -> None:
    """Signal this very process: not one that got its pid. Does nothing where it is gone or belongs to another user."""
    # The pid may be reused between the check and the signal. A pidfd refers to the process that had the pid when it
    # was opened, so: open it, check that this is the process that is meant, then signal through it.
    with suppress(OSError), closing_descriptor(os.pidfd_open(process.pid)) as descriptor:
        if is_alive(process):
            signal.pidfd_send_signal(descriptor, number)


def end_group(group: int) -> None:
    """Kill the process group of this number; does nothing where there is none, or none of this user."""
    if group <= 1:  # the kernel takes 0 for the own group and 1 for all processes
        return
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(group, signal.SIGKILL)


def children_by_parent(processes: Iterable[ProcessStat]) -> dict[int, list[ProcessStat]]:
    """The processes by the pid of their parent."""
    children: dict[int, list[ProcessStat]] = {}
    for stat in processes:
        children.setdefault(stat.parent, []).append(stat)
    return children


def descendants_in(processes: Iterable[ProcessStat], pids: Iterable[int]) -> list[ProcessStat]:
    """Those of `processes` that run below one of `pids`, parents before children."""
    children = children_by_parent(processes)
    descendants: list[ProcessStat] = []
    pending = list(pids)
    # `pop` also ends a cycle: the processes are not read at one moment, and a reused pid may be its own ancestor.
    while pending:
        below = children.pop(pending.pop(), [])
        descendants += [stat for stat in below if stat.is_running]
        pending += [stat.pid for stat in below]
    return descendants


def read_command_line(pid: int, proc: str | Path = PROC) -> tuple[str, ...]:
    """The arguments of a process's command line, without empty ones at its end; empty where it is gone or hidden."""
    line = read_proc_text(f"{proc}/{pid}/cmdline").rstrip("\0")
    # A program that writes a title over its command line leaves one string, of words between blanks.
    return tuple(line.split("\0" if "\0" in line else " ")) if line else ()


def all_processes(proc: str | Path = PROC) -> Iterator[ProcessStat]:
    """Every process, also those that have ended and were not reaped."""
    for pid in list_pids(proc):
        stat = read_stat(pid, proc)
        if stat is not None:
            yield stat
