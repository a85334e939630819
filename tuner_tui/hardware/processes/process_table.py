"""Every process of the host: its identity, asked once, and its load, read for those that matter."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from tuner_tui.hardware.host.system_info import ProcessIdentity, process_identity
from tuner_tui.hardware.processes.process_roles import is_python
from tuner_tui.hardware.processes.process_sampler import PAGE_BYTES, TICKS_HZ

KERNEL_THREADS = 2
"""The parent of the kernel's own threads, on every Linux."""
KERNEL_PARENT = b"%d" % KERNEL_THREADS
SCAN_EVERY = 2
"""Who has come is seen this many looks later at most."""
SHARES = 5
"""Of those that nobody wants and that were read before, one in so many is read at a scan: what they do is not shown,
and a process that has long been there rarely becomes another program."""
FIELDS = 22
"""Of /proc/<pid>/stat, from the state to the resident pages; what follows them is not looked at."""
YOUNG_S = 2.0
"""A process this young may not have become its program yet: it is asked once more who it is."""
TORCH_AGES_S = (2.0, 20.0, 120.0)
"""Ages at which a Python process is asked whether it has loaded torch; a training has within its first minutes."""


@dataclass(frozen=True, slots=True)
class HostProcess:
    """Who a process is. `command` is empty and `user` None where they are hidden; `started_s` is since the epoch.

    `torch` says whether it has loaded torch; None where that cannot be seen.
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
    """A process's load: percent of one core since it was read before (None at first), and resident bytes."""

    cpu_pct: float | None
    rss_bytes: int


@dataclass(slots=True)
class _TableEntry:
    """A process as it was read last; `read_s` by the monotonic clock."""

    process: HostProcess
    cpu_s: float
    read_s: float
    load: ProcessLoad
    settled: bool
    torch_asked: int = 0


class ProcessTable:
    """The host's processes. `read` is for one thread at a time.

    Who a process is comes from psutil, once a process. Its load comes straight from /proc/<pid>/stat, since it is asked
    again and again: one read costs 5 µs where psutil's two cost 29 µs (500 processes a second: 0.2 % of a core instead
    of 1.4 %). The wanted ones are read each time; every `SCAN_EVERY`th time is a scan, which finds who has come and
    who has gone, and reads the newcomers, the young, and a share of the others in turn. The kernel's own threads are
    left out.
    """

    def __init__(
        self,
        clock: Callable[[], float] = time.monotonic,
        wall_clock: Callable[[], float] = time.time,
        *,
        proc: Path = Path("/proc"),
        identity: Callable[[int], ProcessIdentity | None] = process_identity,
    ) -> None:
        self._clock = clock
        self._wall_clock = wall_clock
        self._proc = str(proc)
        self._identity = identity
        self._known: dict[int, _TableEntry] = {}
        self._left_out: frozenset[int] = frozenset()
        self._calls = 0
        self._scans = 0

    def read(self, wanted: Collection[int] = ()) -> bool:
        """Read the processes `wanted`; True where it was time for a scan, so that everybody is known."""
        scans = self._calls % SCAN_EVERY == 0
        self._calls += 1
        if not scans:
            self._read_each(wanted)
            return False
        pids = {int(name) for name in os.listdir(self._proc) if name.isdigit()}  # noqa: PTH208
        self._known = {pid: known for pid, known in self._known.items() if pid in pids}
        self._read_each(self._due(pids - self._left_out, frozenset(wanted)))
        self._left_out = frozenset(pids - self._known.keys())
        self._ask_for_torch()
        self._scans += 1
        return True

    def _due(self, pids: Collection[int], wanted: Collection[int]) -> list[int]:
        """Which of those that are there are read at this scan."""
        turn, known = self._scans % SHARES, self._known
        return [
            pid for pid in pids if pid in wanted or pid % SHARES == turn or pid not in known or not known[pid].settled
        ]

    @property
    def processes(self) -> Mapping[int, HostProcess]:
        """Everybody by pid."""
        return {pid: known.process for pid, known in self._known.items()}

    def load(self, pid: int) -> ProcessLoad | None:
        """The load of a process when it was read last; None where it is not there."""
        known = self._known.get(pid)
        return None if known is None else known.load

    def _read_each(self, pids: Collection[int]) -> None:
        for pid in pids:
            read = read_fields(f"{self._proc}/{pid}/stat")
            if read is None or read[1][0] in b"ZX" or pid == KERNEL_THREADS or read[1][1] == KERNEL_PARENT:
                self._known.pop(pid, None)
            else:
                self._take(pid, *read)

    def _take(self, pid: int, comm: str, fields: list[bytes]) -> None:
        """What one process's line says; `fields` begin with its state."""
        cpu_s, rss_bytes = (int(fields[11]) + int(fields[12])) / TICKS_HZ, int(fields[21]) * PAGE_BYTES
        known, now_s = self._known.get(pid), self._clock()
        if known is None or known.process.start_ticks != int(fields[19]):
            self._meet(process_from_stat(pid, comm, fields), cpu_s, now_s, rss_bytes)
            return
        if now_s > known.read_s:
            cpu_pct = max(0.0, 100 * (cpu_s - known.cpu_s) / (now_s - known.read_s))
            known.load, known.cpu_s, known.read_s = ProcessLoad(cpu_pct, rss_bytes), cpu_s, now_s
        if not known.settled or has_changed(known.process, comm, fields):
            known.settled = True
            known.process = self._identified(replace(process_from_stat(pid, comm, fields), torch=known.process.torch))

    def _meet(self, process: HostProcess, cpu_s: float, now_s: float, rss_bytes: int) -> None:
        process = self._identified(process)
        settled = process.started_s is None or self._wall_clock() - process.started_s > YOUNG_S
        self._known[process.pid] = _TableEntry(process, cpu_s, now_s, ProcessLoad(None, rss_bytes), settled)

    def _identified(self, process: HostProcess) -> HostProcess:
        who = self._identity(process.pid)
        if who is None:
            return process
        return replace(process, user=who.user, command=who.command, started_s=who.started_s)

    def _ask_for_torch(self) -> None:
        now_s = self._wall_clock()
        for known in self._known.values():
            process = known.process
            if known.torch_asked < len(TORCH_AGES_S) and not process.torch and is_python(process.command):
                age_s = now_s - (process.started_s or 0.0)
                due = sum(age_s >= asked_at for asked_at in TORCH_AGES_S)
                if due > known.torch_asked:
                    known.torch_asked = due
                    known.process = replace(process, torch=has_torch(f"{self._proc}/{process.pid}/maps"))


def process_from_stat(pid: int, comm: str, fields: list[bytes]) -> HostProcess:
    """A process by its line of figures alone."""
    return HostProcess(pid, int(fields[1]), int(fields[2]), int(fields[3]), comm, int(fields[19]))


def has_changed(before: HostProcess, comm: str, fields: list[bytes]) -> bool:
    """Whether the process has become another program or somebody else's child."""
    return (
        before.comm != comm
        or before.parent != int(fields[1])
        or before.group != int(fields[2])
        or before.session != int(fields[3])
    )


def read_fields(path: str) -> tuple[str, list[bytes]] | None:
    """The name and the figures of /proc/<pid>/stat, which begin with the state; None when the process has ended."""
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except OSError:
        return None
    try:
        text = os.read(descriptor, 2048)
    except OSError:
        return None
    finally:
        os.close(descriptor)
    head, _, rest = text.rpartition(b")")
    fields = rest.split(None, FIELDS)
    if len(fields) < FIELDS:
        return None
    return head.partition(b"(")[2].decode("utf-8", "replace"), fields


def has_torch(maps: str) -> bool | None:
    """Whether a process has loaded torch's library; None where this user may not look.

    Straight from /proc/<pid>/maps: psutil's `memory_maps` walks every page (/proc/<pid>/smaps).
    """
    try:
        with open(maps, "rb") as file:  # noqa: PTH123
            return b"/libtorch" in file.read()
    except OSError:
        return None
