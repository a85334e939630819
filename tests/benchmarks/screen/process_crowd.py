"""Five hundred real processes for `watch`, among them trainings with ranks and loader workers.

Most of them sleep, and each rank works some milliseconds a second so that figures change. All end with the process that
started them.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.fakes.nvml.scenario import GIB, FakeProcess, Scenario, Wave, a100

RANK = r"""
import os, random, sys, time
workers, launcher, rank = int(sys.argv[1]), os.getppid(), os.getpid()
for _ in range(workers):
    if os.fork() == 0:
        while os.getppid() == rank:
            time.sleep(5)
        os._exit(0)
os.write(1, b"%d\n" % os.getpid())
while os.getppid() == launcher:
    ends = time.perf_counter() + random.random() * 0.004
    while time.perf_counter() < ends:
        pass
    time.sleep(0.25)
"""
LAUNCHER = """
import subprocess, sys
ranks, workers = sys.argv[1:3]
each = [subprocess.Popen([sys.executable, sys.argv[3], workers], start_new_session=True) for _ in range(int(ranks))]
sys.stdin.read()
"""
TRAININGS = ((4, 16), (2, 12), (1, 16), (1, 16))
"""Ranks, and loader workers per rank; each rank has its own GPU."""
CARDS = sum(ranks for ranks, _ in TRAININGS)


@contextmanager
def start_processes(processes: int, folder: Path) -> Iterator[list[int]]:
    """Start `processes` processes including the trainings', yield the pids of the ranks, and end them all."""
    (folder / "train.py").write_text(RANK)
    (folder / "torchrun").write_text(LAUNCHER)
    started: list[subprocess.Popen[str]] = []
    pids: list[int] = []
    reading, writing = os.pipe()
    try:
        for ranks, workers in TRAININGS:
            command = [sys.executable, str(folder / "torchrun"), str(ranks), str(workers), str(folder / "train.py")]
            launcher = subprocess.Popen(
                command, stdin=reading, stdout=subprocess.PIPE, text=True, start_new_session=True
            )
            started.append(launcher)
            assert launcher.stdout is not None
            pids += [int(launcher.stdout.readline()) for _ in range(ranks)]
        trainers = sum(1 + ranks * (1 + workers) for ranks, workers in TRAININGS)
        started += [subprocess.Popen(["cat"], stdin=reading, text=True) for _ in range(processes - trainers)]
        yield pids
    finally:
        os.close(writing)
        os.close(reading)
        for pid in pids:
            os.killpg(pid, signal.SIGKILL)
        for one in started:
            one.wait()


def scenario_of(ranks: list[int]) -> Scenario:
    """Eight GPUs with one rank each."""
    return Scenario(tuple(a100(index, FakeProcess(pid, 38 * GIB, sm=Wave(70, 25, 20, index)))
                          for index, pid in enumerate(ranks)))  # fmt: skip
