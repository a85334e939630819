"""Samples CPU and memory of the training's own processes from /proc, by role."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tuner_tui.core.procfs import PROC, children_by_parent, read_command, read_stat, read_text
from tuner_tui.hardware.process_names import ClassifiedProcess, Role, role_of
from tuner_tui.hardware.sample import ProcessSample

# Loads change each second, the set of processes rarely; to find it again, the whole tree is read.
RESCAN_EVERY = 3
QUEUE_TIME_ROLES = (Role.MAIN, Role.WORKER)
"""Roles whose wait for a core delays the training; launchers and data servers may wait."""
ROLE_ORDER = {role: place for place, role in enumerate(Role)}
RANK = re.compile(r"[0-9]{1,6}")


@dataclass(frozen=True, slots=True)
class TrainingProcess:
    """A process of the training: what it is, as of the last scan, and its rank in a distributed training."""

    pid: int
    process: ClassifiedProcess
    rank: int | None


@dataclass(frozen=True, slots=True)
class CpuReading:
    """CPU seconds of a process at `at_s`, and the seconds its main thread has waited in the run queue so far."""

    start_ticks: int
    cpu_s: float
    at_s: float
    queued_s: float | None = None


class ProcessSampler:
    """Samples the processes below given pids: their load at each call, their identity at every `RESCAN_EVERY`th.

    `clock` is monotonic, in seconds.
    """

    def __init__(self, clock: Callable[[], float], proc: Path = PROC) -> None:
        self._clock = clock
        self._proc = proc
        self._roots: tuple[int, ...] = ()
        self._processes: tuple[TrainingProcess, ...] = ()
        self._readings: dict[int, CpuReading] = {}
        self._calls = 0

    def sample(self, roots: Sequence[int]) -> tuple[ProcessSample, ...]:
        """The processes `roots` and all below them, trainers first; `cpu_pct` is None for a new process."""
        if tuple(roots) != self._roots or self._calls % RESCAN_EVERY == 0:
            self._roots = tuple(roots)
            self._processes = find_training_processes(self._proc, self._roots) if roots else ()
        self._calls += 1
        before, self._readings = self._readings, {}
        samples = (self._sample_one(process, before.get(process.pid)) for process in self._processes)
        return tuple(sample for sample in samples if sample is not None)

    def _sample_one(self, process: TrainingProcess, before: CpuReading | None) -> ProcessSample | None:
        stat = read_stat(process.pid, self._proc)
        if stat is None or not stat.is_running:
            return None
        role = process.process.role
        queued_s = read_queued_s(self._proc, process.pid) if role in QUEUE_TIME_ROLES else None
        # Where the kernel does not count the time in the queue, the state at this moment is the next best figure.
        could_run = stat.state == "R" if role in QUEUE_TIME_ROLES and queued_s is None else None
        now = CpuReading(stat.start_ticks, stat.cpu_s, self._clock(), queued_s)
        self._readings[process.pid] = now
        cpu_pct, queue_pct = usage_between(before, now)
        return ProcessSample(process.pid, role.value, cpu_pct, stat.rss_bytes, process.rank, queue_pct, could_run)


def usage_between(before: CpuReading | None, now: CpuReading) -> tuple[float | None, float | None]:
    """Percent of the time between two readings spent on a core, and waiting for one; None where unknown."""
    if before is None or before.start_ticks != now.start_ticks or now.at_s <= before.at_s:
        return None, None
    elapsed_s = now.at_s - before.at_s
    cpu_pct = 100 * (now.cpu_s - before.cpu_s) / elapsed_s
    if now.queued_s is None or before.queued_s is None:
        return cpu_pct, None
    return cpu_pct, min(100.0, max(0.0, 100 * (now.queued_s - before.queued_s) / elapsed_s))


def find_training_processes(proc: Path, roots: Sequence[int]) -> tuple[TrainingProcess, ...]:
    """The processes `roots` and all below them: trainers by rank, then workers, then others."""
    found: dict[int, TrainingProcess] = {}
    pending: list[tuple[int, TrainingProcess | None]] = [(root, None) for root in roots]
    children = child_finder(proc)
    while pending:
        pid, parent = pending.pop()
        stat = read_stat(pid, proc)
        if stat is not None and stat.is_running and pid not in found:
            process = found[pid] = _classify(proc, pid, stat.comm, parent)
            pending += [(child, process) for child in children(pid)]
    return tuple(
        sorted(found.values(), key=lambda process: (ROLE_ORDER[process.process.role], process.rank or 0, process.pid))
    )


def read_rank(proc: Path, pid: int) -> int | None:
    """The rank that torchrun and accelerate set in the environment; None in a training of one process."""
    for entry in read_text(proc / str(pid) / "environ").split("\0"):
        name, _, value = entry.partition("=")
        if name == "RANK" and RANK.fullmatch(value):
            return int(value)
    return None


def read_queued_s(proc: Path, pid: int) -> float | None:
    """Seconds the process's main thread has waited for a core (Documentation/scheduler/sched-stats.rst).

    None where the kernel does not count them: all figures of the file are 0 then.
    """
    fields = read_text(proc / str(pid) / "schedstat").split()
    counted = len(fields) == 3 and all(field.isdigit() for field in fields) and int(fields[0]) > 0
    return int(fields[1]) / 1e9 if counted else None


def child_finder(proc: Path) -> Callable[[int], list[int]]:
    """A function from a pid to its children's: by the kernel's lists where it keeps them, else by everyone's parent."""
    # /proc/PID/task/TID/children exists where the kernel has CONFIG_PROC_CHILDREN: then only the training's own tree
    # is read. Without it all processes are read once, and the tree is built from their parents.
    if (proc / "self" / "task").is_dir() and next((proc / "self" / "task").glob("*/children"), None) is not None:
        return lambda pid: _listed_children(proc, pid)
    children = children_by_parent(proc)
    return lambda pid: [child.pid for child in children.get(pid, ()) if child.is_running]


def _classify(proc: Path, pid: int, comm: str, parent: TrainingProcess | None) -> TrainingProcess:
    command = read_command(pid, proc)
    role = role_of(command, comm, None if parent is None else parent.process)
    inherited = None if parent is None else parent.rank  # a worker has the rank of its trainer
    rank = read_rank(proc, pid) if role is Role.MAIN else inherited
    return TrainingProcess(pid, ClassifiedProcess(command, comm, role), rank)


def _listed_children(proc: Path, pid: int) -> list[int]:
    try:
        threads = os.listdir(proc / str(pid) / "task")  # noqa: PTH208
    except OSError:
        return []
    lists = (read_text(proc / str(pid) / "task" / thread / "children") for thread in threads)
    return [int(child) for children in lists for child in children.split()]
