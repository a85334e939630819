"""The processes of the host, their identity and their load."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from tuner_tui.core.procfs import (
    PROC,
    TICKS_PER_S,
    ProcessStat,
    list_pids,
    read_command_line,
    read_proc_text,
    read_stat,
)
from tuner_tui.hardware.processes import is_python, read_owner

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


class HostProcess(Struct, frozen=True):
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


class ProcessLoad(Struct, frozen=True):
    """Percent of one core since the previous reading (None at the first one), and resident bytes."""

    cpu_pct: float | None
    rss_bytes: int


class _TableEntry(Struct):
    """The last reading of a process; `read_s` is monotonic, `settled` is False while it may still change program."""

    process: HostProcess
    cpu_s: float
    read_s: float
    load: ProcessLoad
    settled: bool
    torch_checks: int = 0


class ProcessTable:
    """The host's processes, without kernel threads. `read` is for one thread at a time.

    Identities are read once per process, loads again and again. The wanted processes are read at each call; every
    `SCAN_EVERY`th call is a scan, which finds new and ended processes and reads the new ones, the young ones, and the
    others in turn.
    """

    def __init__(
        self,
        clock: Callable[[], float] = time.monotonic,
        wall_clock: Callable[[], float] = time.time,
        *,
        proc: Path = PROC,
    ) -> None:
        self._clock = clock
        self._wall_clock = wall_clock
        self._proc = str(proc)
        boot_s = read_proc_text(proc / "stat").partition("btime ")[2].split(None, 1)[:1]
        self._boot_s = float(boot_s[0]) if boot_s else None  # seconds since the epoch
        self._entries: dict[int, _TableEntry] = {}
        self._ignored: frozenset[int] = frozenset()
        self._calls = 0

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
        return True

    def _due(self, pids: Collection[int], wanted: Collection[int]) -> list[int]:
        # A pid is read at every scan if it is wanted, new, or young; else when its pid modulo SHARES has its turn. A
        # host with thousands of processes then costs a fifth per scan, and no process is older than SHARES scans.
        turn = self._calls // SCAN_EVERY % SHARES
        settled = {pid for pid, entry in self._entries.items() if entry.settled}
        return [pid for pid in pids if pid in wanted or pid % SHARES == turn or pid not in settled]

    @property
    def processes(self) -> Mapping[int, HostProcess]:
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
        before = entry.process
        # It has executed another program, or has moved to another parent, group or session.
        now = (stat.comm, stat.parent, stat.group, stat.session)
        if not entry.settled or (before.comm, before.parent, before.group, before.session) != now:
            entry.settled = True
            process = self._identify(stat, before.torch)
            if process.command != before.command:
                entry.torch_checks = 0
            entry.process = process

    def _add(self, stat: ProcessStat, now_s: float) -> None:
        process = self._identify(stat)
        settled = process.started_s is None or self._wall_clock() - process.started_s > YOUNG_S
        self._entries[stat.pid] = _TableEntry(process, stat.cpu_s, now_s, ProcessLoad(None, stat.rss_bytes), settled)

    def _identify(self, stat: ProcessStat, torch: bool | None = None) -> HostProcess:
        started_s = None if self._boot_s is None else self._boot_s + stat.start_ticks / TICKS_PER_S
        user, command = read_owner(stat.pid, self._proc), read_command_line(stat.pid, self._proc)
        ids = (stat.pid, stat.parent, stat.group, stat.session)
        return HostProcess(*ids, stat.comm, stat.start_ticks, user, command, started_s, torch)

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


def has_torch(maps: str) -> bool | None:
    """True when a process has loaded torch's library; None where this user may not look.

    Reads /proc/PID/maps: psutil's `memory_maps` reads smaps, for which the kernel walks every page.
    """
    try:
        with open(maps, "rb") as file:  # noqa: PTH123
            return b"/libtorch" in file.read()
    except OSError:
        return None
