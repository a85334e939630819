"""Samples GPUs, host and processes without ever waiting for a card."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from tuner_tui.core.daemon_thread import start_daemon_thread
from tuner_tui.hardware.gpu.driver import GpuReader, GpusUnavailable
from tuner_tui.hardware.gpu.gpu_monitor import GpuMonitor, GpuProcesses
from tuner_tui.hardware.gpu.nvml import NvmlReader
from tuner_tui.hardware.host.cgroup import Cgroups
from tuner_tui.hardware.host.host_sampler import HostSampler
from tuner_tui.hardware.inventory import Gpu, GpuProblem
from tuner_tui.hardware.processes.process_names import identify_gpu_processes
from tuner_tui.hardware.processes.process_sampler import ProcessSampler
from tuner_tui.hardware.sample import Sample

REOPEN_S = 5.0
"""Seconds between attempts to open a driver that is not there: it may be loaded later."""


class Sampler:
    """Samples GPUs, host and processes. `sample` is for one thread at a time.

    The driver's library is opened in one daemon thread and each card is read in another, so a driver that hangs delays
    neither a sample nor the end of the program. There are no cards until the driver has answered.
    """

    def __init__(
        self,
        reader: GpuReader,
        host: HostSampler,
        processes: ProcessSampler,
        *,
        clock: Callable[[], float] = time.monotonic,
        wall_clock: Callable[[], float] = time.time,
        identify: Callable[[GpuProcesses], GpuProcesses] = identify_gpu_processes,
        reopen_s: float = REOPEN_S,
    ) -> None:
        self._reader = reader
        self._host = host
        self._processes = processes
        self._clock = clock
        self._wall_clock = wall_clock
        self._identify = identify
        self._reopen_s = reopen_s
        self._closing = threading.Event()
        self._opened = threading.Event()
        self._polling = threading.Event()
        self._polling.set()
        self._monitors: tuple[GpuMonitor, ...] = ()
        self.problem: GpuProblem | None = None
        """The reason for having no cards, as long as there is one."""

    def start(self) -> None:
        """Starts to read the cards in the background."""
        start_daemon_thread("gpu-open", self._open)

    def sample(self, watched: Sequence[int] = ()) -> Sample:
        """The newest figures of the cards, and the current ones of the host and of the processes below `watched`."""
        return Sample(
            time_s=self._wall_clock(),
            gpus=tuple(monitor.newest() for monitor in self._monitors),
            host=self._host.sample(),
            processes=self._processes.sample(watched),
        )

    def cards(self) -> tuple[Gpu | None, ...]:
        """The cards as they were when they first answered, in the order of the samples; None before that."""
        return tuple(monitor.described for monitor in self._monitors)

    def pause(self) -> None:
        """Stops to poll the cards until `resume`; the driver stays open, and `sample` returns old figures."""
        self._polling.clear()

    def resume(self) -> None:
        """Polls the cards again."""
        self._polling.set()

    def wait_ready(self, timeout_s: float) -> bool:
        """Waits until every card was read once or found lost; returns False on a timeout."""
        ends_s = self._clock() + timeout_s
        if not self._opened.wait(timeout_s):
            return False
        return all(monitor.answered.wait(max(0.0, ends_s - self._clock())) for monitor in self._monitors)

    def close(self) -> None:
        """Stops reading; a thread that is blocked in the driver ends with the program."""
        self._closing.set()
        self._polling.set()

    def _open(self) -> None:
        while not self._open_cards():
            self._opened.set()
            if self._closing.wait(self._reopen_s):
                return
        self._opened.set()

    def _open_cards(self) -> bool:
        """Opens the driver and starts a thread per card; False, with the problem, where there is none (yet)."""
        try:
            count = self._reader.open()
        except GpusUnavailable as error:
            self.problem = error.problem
            return False
        self.problem = None
        self._monitors = tuple(GpuMonitor(self._reader, index, self._clock, self._identify) for index in range(count))
        for index, monitor in enumerate(self._monitors):
            start_daemon_thread(f"gpu-{index}", partial(self._run, monitor))
        return True

    def _run(self, monitor: GpuMonitor) -> None:
        while self._polling.wait() and not self._closing.is_set():
            monitor.refresh()
            self._closing.wait(monitor.pause_s())


def open_sampler(disk_folder: Path) -> Sampler:
    """A started sampler of this machine; free disk space is that of the file system of `disk_folder`."""
    clock = time.monotonic
    cgroups = Cgroups.of_this_process()
    host = HostSampler(
        disk_folder,
        clock,
        cores=frozenset(os.sched_getaffinity(0)),
        cpu=cgroups.tightest_cpu(),
        memory=cgroups.tightest_memory(),
    )
    sampler = Sampler(NvmlReader(), host, ProcessSampler(clock))
    sampler.start()
    return sampler
