"""Samples the load of a training's processes."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path

from msgspec import Struct

from tuner_tui.core.procfs import PROC, all_processes, children_by_parent, read_command_line, read_proc_text, read_stat
from tuner_tui.hardware.processes import Role, role_of
from tuner_tui.hardware.sample import ProcessSample

# Loads change each second, the set of processes rarely; to find it again, the whole tree is read.
RESCAN_EVERY = 3
QUEUE_TIME_ROLES = (Role.MAIN, Role.WORKER)
"""Roles whose wait for a core delays the training; launchers and data servers may wait."""
ROLE_ORDER = {role: order for order, role in enumerate(Role)}
RANK = re.compile(r"(?:^|\0)RANK=([0-9]{1,6})(?:\0|$)")
"""In the environment of each trainer that torchrun or accelerate started."""


class TrainingProcess(Struct, frozen=True):
    """A process of the training as of the last scan, with its rank in a distributed training."""

    pid: int
    command: tuple[str, ...]
    role: Role
    rank: int | None


class CpuReading(Struct, frozen=True):
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
        samples = []
        for process in self._processes:
            pid, role = process.pid, process.role
            stat = read_stat(pid, self._proc)
            if stat is None or not stat.is_running:
                continue
            waits = role in QUEUE_TIME_ROLES
            queued_s = read_queued_s(self._proc, pid) if waits else None
            self._readings[pid] = now = CpuReading(stat.start_ticks, stat.cpu_s, self._clock(), queued_s)
            cpu_pct, queue_pct = usage_between(before.get(pid), now)
            state = stat.state if waits else None
            samples.append(ProcessSample(pid, role.value, cpu_pct, stat.rss_bytes, process.rank, queue_pct, state))
        return tuple(samples)


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
    training: dict[int, TrainingProcess] = {}
    pending: list[tuple[int, TrainingProcess | None]] = [(root, None) for root in roots]
    # The kernel's list of the children of each thread would cost more: a trainer has a hundred threads.
    children = children_by_parent(all_processes(proc))
    while pending:
        pid, parent = pending.pop()
        stat = read_stat(pid, proc)
        if stat is not None and stat.is_running and pid not in training:
            command = read_command_line(pid, proc)
            role = role_of(command, stat.comm, None if parent is None else (parent.command, parent.role))
            rank = None if parent is None else parent.rank  # a worker has the rank of its trainer
            if role is Role.MAIN:
                match = RANK.search(read_proc_text(proc / str(pid) / "environ"))
                rank = None if match is None else int(match[1])
            process = training[pid] = TrainingProcess(pid, command, role, rank)
            pending += [(child.pid, process) for child in children.get(pid, ())]
    return tuple(
        sorted(training.values(), key=lambda process: (ROLE_ORDER[process.role], process.rank or 0, process.pid))
    )


def read_queued_s(proc: Path, pid: int) -> float | None:
    """Seconds the process's main thread has waited for a core (Documentation/scheduler/sched-stats.rst).

    None where the kernel does not count them: all figures of the file are 0 then.
    """
    fields = read_proc_text(proc / str(pid) / "schedstat").split()
    counted = len(fields) == 3 and all(field.isdigit() for field in fields) and int(fields[0]) > 0
    return int(fields[1]) / 1e9 if counted else None
