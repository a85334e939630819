"""Samples CPU and memory of the training's own processes from /proc, by role."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tuner_tui.hardware.host.host_sampler import read_text
from tuner_tui.hardware.processes.process_roles import ClassifiedProcess, Role, role_of
from tuner_tui.hardware.sample import ProcessSample

RESCAN_EVERY = 3
TICKS_HZ = os.sysconf("SC_CLK_TCK")
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
QUEUE_TIME_ROLES = (Role.MAIN, Role.WORKER)
"""Those whose wait for a core is the training's: a launcher or a data server may wait as it likes."""
ROLE_ORDER = {role: place for place, role in enumerate(Role)}
RANK = re.compile(r"[0-9]{1,6}")


@dataclass(frozen=True, slots=True)
class ProcessStat:
    """What is used of /proc/<pid>/stat; `started` (ticks since boot) tells a recycled pid apart.

    `could_run`: its main thread was on a core, or stood in the queue for one.
    """

    comm: str
    ppid: int
    cpu_s: float
    started: int
    rss_bytes: int
    could_run: bool


@dataclass(frozen=True, slots=True)
class TrainingProcess:
    """A process of the training: who it is, as of the last look at the family."""

    pid: int
    person: ClassifiedProcess
    rank: int | None


@dataclass(frozen=True, slots=True)
class CpuReading:
    """A process's CPU time at one moment, and how long its main thread has stood in the queue for a core."""

    started: int
    cpu_s: float
    at_s: float
    queued_s: float | None = None


class ProcessSampler:
    """Reads the processes below given pids: their load at each call, who they are at every `RESCAN_EVERY`th.

    `clock` is monotonic, in seconds; `proc` is a parameter for made-up trees in tests.
    """

    def __init__(self, clock: Callable[[], float], proc: Path = Path("/proc")) -> None:
        self._clock = clock
        self._proc = proc
        self._roots: tuple[int, ...] = ()
        self._family: tuple[TrainingProcess, ...] = ()
        self._readings: dict[int, CpuReading] = {}
        self._calls = 0

    def sample(self, roots: Sequence[int]) -> tuple[ProcessSample, ...]:
        """The processes `roots` and all below them, trainers first; `cpu_pct` is None when one is first seen."""
        if tuple(roots) != self._roots or self._calls % RESCAN_EVERY == 0:
            self._roots = tuple(roots)
            self._family = find_training_processes(self._proc, self._roots) if roots else ()
        self._calls += 1
        before, self._readings = self._readings, {}
        samples = (self._read(member, before.get(member.pid)) for member in self._family)
        return tuple(sample for sample in samples if sample is not None)

    def _read(self, member: TrainingProcess, before: CpuReading | None) -> ProcessSample | None:
        """One process's load, percent of one core; None once it has ended."""
        stat = read_process_stat(self._proc, member.pid)
        if stat is None:
            return None
        queueing = member.person.role in QUEUE_TIME_ROLES
        queued_s = read_queued_s(self._proc, member.pid) if queueing else None
        could_run = stat.could_run if queueing and queued_s is None else None
        now = CpuReading(stat.started, stat.cpu_s, self._clock(), queued_s)
        self._readings[member.pid] = now
        cpu_pct, queue_pct = usage_between(before, now)
        return ProcessSample(
            member.pid, member.person.role.value, cpu_pct, stat.rss_bytes, member.rank, queue_pct, could_run
        )


def usage_between(before: CpuReading | None, now: CpuReading) -> tuple[float | None, float | None]:
    """Percent of the time between two readings: on a core, and in the queue for one; None where not known."""
    if before is None or before.started != now.started or now.at_s <= before.at_s:
        return None, None
    elapsed_s = now.at_s - before.at_s
    cpu_pct = 100 * (now.cpu_s - before.cpu_s) / elapsed_s
    if now.queued_s is None or before.queued_s is None:
        return cpu_pct, None
    return cpu_pct, min(100.0, max(0.0, 100 * (now.queued_s - before.queued_s) / elapsed_s))


def find_training_processes(proc: Path, roots: Sequence[int]) -> tuple[TrainingProcess, ...]:
    """The processes `roots` and all below them: trainers by rank, then workers, then others."""
    members: dict[int, TrainingProcess] = {}
    queue: list[tuple[int, TrainingProcess | None]] = [(root, None) for root in roots]
    children = child_finder(proc)
    while queue:
        pid, parent = queue.pop()
        stat = read_process_stat(proc, pid)
        if stat is not None and pid not in members:
            member = members[pid] = classify_process(proc, pid, stat.comm, parent)
            queue += [(child, member) for child in children(pid)]
    return tuple(sorted(members.values(), key=lambda m: (ROLE_ORDER[m.person.role], m.rank or 0, m.pid)))


def classify_process(proc: Path, pid: int, comm: str, parent: TrainingProcess | None) -> TrainingProcess:
    """Who the process is; a worker has its trainer's rank."""
    command = tuple(read_text(proc / str(pid) / "cmdline").rstrip("\0").split("\0"))
    role = role_of(command, comm, None if parent is None else parent.person)
    if role is Role.MAIN:
        return TrainingProcess(pid, ClassifiedProcess(command, comm, role), read_rank(proc, pid))
    return TrainingProcess(pid, ClassifiedProcess(command, comm, role), None if parent is None else parent.rank)


def read_rank(proc: Path, pid: int) -> int | None:
    """The rank torchrun and accelerate give in the environment; None in a training of one process."""
    for entry in read_text(proc / str(pid) / "environ").split("\0"):
        name, _, value = entry.partition("=")
        if name == "RANK" and RANK.fullmatch(value):
            return int(value)
    return None


def read_process_stat(proc: Path, pid: int) -> ProcessStat | None:
    """The process's line of figures; None when it has ended or is a zombie."""
    head, _, rest = read_text(proc / str(pid) / "stat").rpartition(")")
    fields = rest.split()
    if len(fields) < 22 or fields[0] in "ZX":
        return None
    return ProcessStat(
        comm=head.partition("(")[2],
        ppid=int(fields[1]),
        cpu_s=(int(fields[11]) + int(fields[12])) / TICKS_HZ,
        started=int(fields[19]),
        rss_bytes=int(fields[21]) * PAGE_BYTES,
        could_run=fields[0] == "R",
    )


def read_queued_s(proc: Path, pid: int) -> float | None:
    """How long the process's main thread has waited for a core (Documentation/scheduler/sched-stats.rst).

    None where the kernel does not count: all its figures are 0 then.
    """
    fields = read_text(proc / str(pid) / "schedstat").split()
    counted = len(fields) == 3 and all(field.isdigit() for field in fields) and int(fields[0]) > 0
    return int(fields[1]) / 1e9 if counted else None


def child_finder(proc: Path) -> Callable[[int], list[int]]:
    """A function from a pid to its children: by the kernel's lists where it keeps them, else by everybody's parent."""
    if (proc / "self" / "task").is_dir() and next((proc / "self" / "task").glob("*/children"), None) is not None:
        return lambda pid: listed_children(proc, pid)
    parents: dict[int, list[int]] = {}
    for name in os.listdir(proc):  # noqa: PTH208
        if name.isdigit() and (stat := read_process_stat(proc, int(name))) is not None:
            parents.setdefault(stat.ppid, []).append(int(name))
    return lambda pid: parents.get(pid, [])


def listed_children(proc: Path, pid: int) -> list[int]:
    """The children of all threads of a process."""
    try:
        threads = os.listdir(proc / str(pid) / "task")  # noqa: PTH208
    except OSError:
        return []
    lists = (read_text(proc / str(pid) / "task" / thread / "children") for thread in threads)
    return [int(child) for children in lists for child in children.split()]
