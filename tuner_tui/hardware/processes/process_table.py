"""Every process of the host: its identity, asked once, and its load, read for those that matter."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from tuner_tui.core.procfs import PROC, ProcessStat, list_pids, read_stat
from tuner_tui.hardware.host.system_info import ProcessIdentity, process_identity
from tuner_tui.hardware.processes.process_roles import is_python

KERNEL_THREADS = 2
"""Pid of kthreadd, the parent of the kernel's threads on every Linux."""
SCAN_EVERY = 2
"""Calls of `read` per scan; a new process is found at the next scan."""
SHARES = 5
"""A scan reads one in `SHARES` of the processes that are known and not wanted: their load is not shown, and an old
process rarely executes another program."""
YOUNG_S = 2.0
"""A process younger than this may not have executed its program yet, so its identity is read once more."""
TORCH_AGES_S = (2.0, 20.0, 120.0)
"""Ages at which a Python process is checked for torch; a training has loaded it within its first minutes."""


@dataclass(frozen=True, slots=True)
class HostProcess:
    """The identity of a process. `command` is empty and `user` None where hidden; `started_s` is since the epoch.

    `torch` is True when it has loaded torch; None where this user may not look.
    """

    pid: int
    parent: int
    group: int
    session: int
    comm: str
    start_ticks: int = 0
    user: str | None = None
    command: tuple[str, ...] = ()
    started_s: float | None = None
    torch: bool | None = None


@dataclass(frozen=True, slots=True)
class ProcessLoad:
    """Percent of one core since the previous reading (None at the first one), and resident bytes."""

    cpu_pct: float | None
    rss_bytes: int


@dataclass(slots=True)
class _TableEntry:
    """The last reading of a process; `read_s` is monotonic, `settled` is False while it may still change program."""

    process: HostProcess
    cpu_s: float
    read_s: float
    load: ProcessLoad
    settled: bool
    torch_checks: int = 0


class ProcessTable:
    """The host's processes, without kernel threads. `read` is for one thread at a time.

    Identities come from psutil, once per process. Loads are read again and again, so they come straight from
    /proc/PID/stat, at a fifth of what psutil's two reads cost. The wanted processes are read at each call; every
    `SCAN_EVERY`th call is a scan, which finds new and ended processes and reads the new ones, the young ones, and the
    others in turn.
    """

    def __init__(
        self,
        clock: Callable[[], float] = time.monotonic,
        wall_clock: Callable[[], float] = time.time,
        *,
        proc: Path = PROC,
        identity: Callable[[int], ProcessIdentity | None] = process_identity,
    ) -> None:
        self._clock = clock
        self._wall_clock = wall_clock
        self._proc = str(proc)
        self._identity = identity
        self._entries: dict[int, _TableEntry] = {}
        self._ignored: frozenset[int] = frozenset()
        self._calls = 0
        self._scans = 0

    def read(self, wanted: Collection[int] = ()) -> bool:
        """Reads the processes `wanted`; returns True when this call was a scan, after which all processes are known."""
        is_scan = self._calls % SCAN_EVERY == 0
        self._calls += 1
        if not is_scan:
            self._read_each(wanted)
            return False
        pids = set(list_pids(self._proc))
        self._entries = {pid: entry for pid, entry in self._entries.items() if pid in pids}
        self._read_each(self._due(pids - self._ignored, frozenset(wanted)))
        self._ignored = frozenset(pids - self._entries.keys())
        self._check_for_torch()
        self._scans += 1
        return True

    def _due(self, pids: Collection[int], wanted: Collection[int]) -> list[int]:
        """The pids to read at this scan."""
        turn, known = self._scans % SHARES, self._entries
        return [
            pid for pid in pids if pid in wanted or pid % SHARES == turn or pid not in known or not known[pid].settled
        ]

    @property
    def processes(self) -> Mapping[int, HostProcess]:
        """All processes by pid."""
        return {pid: entry.process for pid, entry in self._entries.items()}

    def load(self, pid: int) -> ProcessLoad | None:
        """The load of a process at its last reading; None for a process that is not in the table."""
        entry = self._entries.get(pid)
        return None if entry is None else entry.load

    def _read_each(self, pids: Collection[int]) -> None:
        for pid in pids:
            stat = read_stat(pid, self._proc)
            if stat is None or not stat.is_running or KERNEL_THREADS in (pid, stat.parent):
                self._entries.pop(pid, None)
            else:
                self._update(stat)

    def _update(self, stat: ProcessStat) -> None:
        entry, now_s = self._entries.get(stat.pid), self._clock()
        if entry is None or entry.process.start_ticks != stat.start_ticks:
            self._add(stat, now_s)
            return
        if now_s > entry.read_s:
            cpu_pct = max(0.0, 100 * (stat.cpu_s - entry.cpu_s) / (now_s - entry.read_s))
            entry.load, entry.cpu_s, entry.read_s = ProcessLoad(cpu_pct, stat.rss_bytes), stat.cpu_s, now_s
        if not entry.settled or _has_changed(entry.process, stat):
            entry.settled = True
            process = self._identify(stat, entry.process.torch)
            if process.command != entry.process.command:
                entry.torch_checks = 0
            entry.process = process

    def _add(self, stat: ProcessStat, now_s: float) -> None:
        process = self._identify(stat)
        settled = process.started_s is None or self._wall_clock() - process.started_s > YOUNG_S
        self._entries[stat.pid] = _TableEntry(process, stat.cpu_s, now_s, ProcessLoad(None, stat.rss_bytes), settled)

    def _identify(self, stat: ProcessStat, torch: bool | None = None) -> HostProcess:
        process = HostProcess(stat.pid, stat.parent, stat.group, stat.session, stat.comm, stat.start_ticks, torch=torch)
        identity = self._identity(stat.pid)
        if identity is None:
            return process
        return replace(process, user=identity.user, command=identity.command, started_s=identity.started_s)

    def _check_for_torch(self) -> None:
        now_s = self._wall_clock()
        for entry in self._entries.values():
            process = entry.process
            if entry.torch_checks == len(TORCH_AGES_S) or process.torch:
                continue
            if not is_python(process.command):
                entry.torch_checks = len(TORCH_AGES_S)  # until it executes another program
            else:
                age_s = now_s - (process.started_s or 0.0)
                due = sum(age_s >= check_at_s for check_at_s in TORCH_AGES_S)
                if due > entry.torch_checks:
                    entry.torch_checks = due
                    entry.process = replace(process, torch=has_torch(f"{self._proc}/{process.pid}/maps"))


def _has_changed(before: HostProcess, stat: ProcessStat) -> bool:
    """True when the process has executed another program, or has moved to another parent, group or session."""
    return (before.comm, before.parent, before.group, before.session) != (
        stat.comm,
        stat.parent,
        stat.group,
        stat.session,
    )


def has_torch(maps: str) -> bool | None:
    """True when a process has loaded torch's library; None where this user may not look.

    Reads /proc/PID/maps: psutil's `memory_maps` reads smaps, for which the kernel walks every page.
    """
    try:
        with open(maps, "rb") as file:  # noqa: PTH123
            return b"/libtorch" in file.read()
    except OSError:
        return None
