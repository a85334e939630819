"""Samples the machine; each GPU from its own thread, so that a GPU that does not answer blocks nothing else."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from msgspec.structs import replace

from tuner_tui.core.daemon_thread import start_daemon_thread
from tuner_tui.hardware.driver import GpuUnavailable, xid_meaning
from tuner_tui.hardware.environment import allocated_gpus
from tuner_tui.hardware.host_sampler import HostSampler
from tuner_tui.hardware.inventory import Gpu, GpuProblem, GpuProcess
from tuner_tui.hardware.nvml import NvmlGpu, NvmlReader
from tuner_tui.hardware.process_sampler import ProcessSampler
from tuner_tui.hardware.processes import identify_gpu_processes
from tuner_tui.hardware.sample import GpuSample, Sample
from tuner_tui.hardware.system_info import Cgroups

# Utilisation and power are means of the driver over up to a second: to ask more often shows nothing new. A sample two
# periods old is stale: one that came a little late is not.
FAST_PERIOD_S = 1.0
SLOW_EVERY = 3
STALE_AFTER_S = 2.0
LOST_PERIOD_S = 10.0
"""Seconds between attempts to read a lost GPU: each can block the driver for the GPUs that still work."""


Identify = Callable[[tuple[GpuProcess, ...] | None], tuple[GpuProcess, ...] | None]


class GpuMonitor:
    """Reads one GPU and holds its newest sample.

    `refresh` is for the GPU's own thread and may block for as long as the driver does; `newest` never blocks. `clock`
    is monotonic, in seconds.
    """

    def __init__(self, gpu: NvmlGpu, clock: Callable[[], float], identify: Identify = identify_gpu_processes) -> None:
        self._gpu = gpu
        self._identify = identify
        self._clock = clock
        self._ticks = 0
        self.described: Gpu | None = None
        """The GPU as it was when it first answered: its UUID and what else does not change."""
        self._started_s = clock()
        self._identity = self._sample = self._slow = GpuSample(gpu.index, f"GPU {gpu.index}")
        self._read_s: float | None = None
        self._xid: tuple[int, float] | None = None
        self.answered = threading.Event()
        """Set once the GPU was read for the first time, or found lost."""

    def refresh(self) -> None:
        """Reads the GPU: the fast figures, and every `SLOW_EVERY`th time the slow ones."""
        reads_slow = self._ticks % SLOW_EVERY == 0
        try:
            if self.described is None:
                self.described = gpu = self._gpu.describe()
                self._identity = replace(self._identity, name=gpu.name, power_limit_w=gpu.power_limit_w)
            fast = self._gpu.fast()
            if reads_slow:
                slow = self._gpu.slow()
                self._slow = replace(slow, processes=self._identify(slow.processes))
            self._ticks += 1
        except GpuUnavailable:
            # Its row stays, without outdated figures.
            lost = replace(self._identity, lost=True)
            self._sample = replace(lost, memory_total_bytes=self._sample.memory_total_bytes)
            self._slow, self._ticks = lost, 0
        else:
            identity, slow = self._identity, self._slow
            self._sample = replace(
                fast,
                name=identity.name,
                power_limit_w=identity.power_limit_w,
                temperature_c=slow.temperature_c,
                fan_pct=slow.fan_pct,
                processes=slow.processes,
            )
            self._read_s = self._clock()
        if reads_slow or self._sample.lost:
            self._read_xids()
        self.answered.set()

    def pause_s(self) -> float:
        return LOST_PERIOD_S if self._sample.lost else FAST_PERIOD_S

    def newest(self) -> GpuSample:
        """The newest sample, with its age when it is stale or the GPU is lost."""
        # No lock: the GPU's thread replaces the whole frozen sample by one assignment, which Python does not
        # interrupt. A lock would be held while the driver hangs, and would stop the reader too.
        sample, read_s = self._sample, self._read_s
        age_s = self._clock() - (self._started_s if read_s is None else read_s)
        if sample.lost or age_s > STALE_AFTER_S:
            sample = replace(sample, age_s=age_s)
        if self._xid is not None:
            number, noticed_s = self._xid
            sample = replace(sample, xid=number, xid_age_s=self._clock() - noticed_s)
        return sample

    def _read_xids(self) -> None:
        """Keeps an error of the GPU itself until the next one: later errors of programs are its consequences."""
        if not (xids := self._gpu.xids()):
            return
        of_gpu = [number for number in xids if xid_meaning(number).fault == "gpu"]
        keeps = self._xid is not None and xid_meaning(self._xid[0]).fault == "gpu"
        if of_gpu or not keeps:
            self._xid = ((of_gpu or xids)[-1], self._clock())


REOPEN_S = 5.0
"""Seconds between attempts to open a driver that is not there: it may be loaded later."""


class Sampler:
    """Samples GPUs, host and processes. `sample` is for one thread at a time.

    The driver's library is opened in one daemon thread and each GPU is read in another, so a driver that hangs delays
    neither a sample nor the end of the program. There are no GPUs until the driver has answered.
    """

    def __init__(
        self,
        reader: NvmlReader,
        host: HostSampler,
        processes: ProcessSampler,
        allocated: frozenset[int] | None = None,
        *,
        identify: Identify = identify_gpu_processes,
        reopen_s: float = REOPEN_S,
    ) -> None:
        """Read only the GPUs `allocated`; None: all."""
        self._identify = identify
        self._reopen_s = reopen_s
        self._reader = reader
        self._host = host
        self._processes = processes
        self._allocated = allocated
        self._closing = threading.Event()
        self._opened = threading.Event()
        self._polling = threading.Event()
        self._polling.set()
        self._monitors: tuple[GpuMonitor, ...] = ()
        self._unavailable: GpuUnavailable | None = None

    @property
    def problem(self) -> GpuProblem | None:
        """The reason for having no GPUs, as long as there is one."""
        return None if self._unavailable is None else self._unavailable.problem

    def start(self) -> None:
        start_daemon_thread("gpu-open", self._open)

    def sample(self, watched: Sequence[int] = ()) -> Sample:
        """The newest figures of the GPUs, and the current ones of the host and of the processes below `watched`."""
        return Sample(
            time_s=time.time(),
            gpus=tuple(monitor.newest() for monitor in self._monitors),
            host=self._host.sample(),
            processes=self._processes.sample(watched),
        )

    def gpus(self) -> tuple[Gpu | None, ...]:
        """The GPUs as they were when they first answered, in the order of the samples; None before that."""
        return tuple(monitor.described for monitor in self._monitors)

    def pause(self) -> None:
        """Stops to poll the GPUs until `resume`; the driver stays open, and `sample` returns old figures."""
        self._polling.clear()

    def resume(self) -> None:
        self._polling.set()

    def wait_ready(self, timeout_s: float) -> bool:
        """Waits until every GPU was read once or found lost; returns False on a timeout."""
        ends_s = time.monotonic() + timeout_s
        if not self._opened.wait(timeout_s):
            return False
        return all(monitor.answered.wait(max(0.0, ends_s - time.monotonic())) for monitor in self._monitors)

    def close(self) -> None:
        self._closing.set()
        self._polling.set()

    def _open(self) -> None:
        while True:
            is_open = self._open_gpus()
            self._opened.set()
            if is_open or self._closing.wait(self._reopen_s):
                return

    def _open_gpus(self) -> bool:
        """Opens the driver and starts a thread per GPU; False, with the problem, where there is none (yet)."""
        try:
            gpus = self._reader.open()
        except GpuUnavailable as error:
            self._unavailable = error
            return False
        self._unavailable = None
        shown = [gpu for gpu in gpus if self._allocated is None or gpu.index in self._allocated]
        self._monitors = tuple(GpuMonitor(gpu, time.monotonic, self._identify) for gpu in shown)
        for gpu, monitor in zip(shown, self._monitors, strict=True):
            start_daemon_thread(f"gpu-{gpu.index}", partial(self._run, monitor))
        return True

    def _run(self, monitor: GpuMonitor) -> None:
        # `close` also sets `_polling`, so that a paused thread wakes up, sees `_closing` and ends.
        while self._polling.wait() and not self._closing.is_set():
            monitor.refresh()
            self._closing.wait(monitor.pause_s())


def open_sampler(disk_folder: Path) -> Sampler:
    """A started sampler of this machine; free disk space is that of the file system of `disk_folder`."""
    clock = time.monotonic
    cgroups = Cgroups.of_this_process()
    cores, cpu, memory = frozenset(os.sched_getaffinity(0)), cgroups.tightest_cpu(), cgroups.tightest_memory()
    host = HostSampler(disk_folder, clock, cores=cores, cpu=cpu, memory=memory)
    sampler = Sampler(NvmlReader(), host, ProcessSampler(clock), allocated_gpus(os.environ))
    sampler.start()
    return sampler
