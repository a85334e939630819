"""One sample of the box whenever it is asked for, without ever waiting for a card."""

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
from tuner_tui.hardware.inventory import GpuProblem
from tuner_tui.hardware.processes.process_names import identify_gpu_processes
from tuner_tui.hardware.processes.process_sampler import ProcessSampler
from tuner_tui.hardware.sample import Sample


class Sampler:
    """Samples GPUs, host and processes. `sample` is for one thread at a time.

    The driver's library is started in a thread of its own and each card is read in another, all of them daemons: a
    driver that hangs delays neither a sample nor the end of the program. Until the driver has answered there are no
    cards.
    """

    def __init__(
        self,
        reader: GpuReader,
        host: HostSampler,
        processes: ProcessSampler,
        *,
        clock: Callable[[], float] = time.monotonic,
        wall_clock: Callable[[], float] = time.time,
        recognise: Callable[[GpuProcesses], GpuProcesses] = identify_gpu_processes,
    ) -> None:
        self._reader = reader
        self._host = host
        self._processes = processes
        self._clock = clock
        self._wall_clock = wall_clock
        self._recognise = recognise
        self._closing = threading.Event()
        self._opened = threading.Event()
        self._watches: tuple[GpuMonitor, ...] = ()
        self.problem: GpuProblem | None = None
        """Why there are no cards, once that is known."""

    def start(self) -> None:
        """Begins watching the cards, in the background."""
        start_daemon_thread("gpu-open", self._open)

    def sample(self, watched: Sequence[int] = ()) -> Sample:
        """The newest figures of the cards, and the host and the processes below the pids `watched` right now."""
        return Sample(
            time_s=self._wall_clock(),
            gpus=tuple(watch.newest() for watch in self._watches),
            host=self._host.sample(),
            processes=self._processes.sample(watched),
        )

    def wait_ready(self, timeout_s: float) -> bool:
        """Waits until every card has answered once or turned out to be lost; False when the time ran out first."""
        ends_s = self._clock() + timeout_s
        if not self._opened.wait(timeout_s):
            return False
        return all(watch.answered.wait(max(0.0, ends_s - self._clock())) for watch in self._watches)

    def close(self) -> None:
        """Ends the watching; a thread stuck in the driver is left behind and ends with the program."""
        self._closing.set()

    def _open(self) -> None:
        try:
            count = self._reader.open()
        except GpusUnavailable as error:
            self.problem = error.problem
        else:
            self._watches = tuple(
                GpuMonitor(self._reader, index, self._clock, self._recognise) for index in range(count)
            )
            for index, watch in enumerate(self._watches):
                start_daemon_thread(f"gpu-{index}", partial(self._watch, watch))
        self._opened.set()

    def _watch(self, watch: GpuMonitor) -> None:
        while not self._closing.is_set():
            watch.refresh()
            self._closing.wait(watch.pause_s())


def open_sampler(disk_folder: Path) -> Sampler:
    """A sampler of this box, watching from now on; `disk_folder`'s file system gives the free disk space."""
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
