"""GPUs without a driver: a reader that answers, blocks or fails as a test says; a clock that stands still."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from tuner_tui.hardware.driver import GpuUnavailable
from tuner_tui.hardware.inventory import Gpu, GpuProblemKind, GpuProcess
from tuner_tui.hardware.nvml import NvmlGpu, NvmlReader
from tuner_tui.hardware.sample import GpuSample


class Clock:
    """A clock that only the test advances."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


class FakeHandle(NvmlGpu):
    """One GPU: `fast` counts its readings as utilisation; `lost` makes it fail; `gate` holds its answers up."""

    def __init__(self, name: str = "Tesla T4", index: int = 0) -> None:
        super().__init__(None, index)
        self.name = name
        self.lost = False
        self.gate = threading.Event()
        self.gate.set()
        self.asked = threading.Event()
        self.fast_reads = 0
        self.slow_reads = 0
        self.reported: list[int] = []

    def _enter(self) -> None:
        self.asked.set()
        self.gate.wait()
        if self.lost:
            raise GpuUnavailable(GpuProblemKind.GPU_LOST, self.index)

    def describe(self) -> Gpu:
        self._enter()
        return Gpu(self.index, self.name, power_limit_w=70.0)

    def fast(self) -> GpuSample:
        self._enter()
        self.fast_reads += 1
        return GpuSample(self.index, self.name, utilisation_pct=self.fast_reads, memory_total_bytes=16)

    def slow(self) -> GpuSample:
        self._enter()
        self.slow_reads += 1
        return GpuSample(self.index, self.name, temperature_c=60 + self.slow_reads, processes=(GpuProcess(7, 8),))

    def xids(self) -> tuple[int, ...]:
        reported, self.reported = tuple(self.reported), []
        return reported


class FakeReader(NvmlReader):
    """Opens fake GPUs; `problem` makes it fail as a whole, `opening` holds up its start."""

    def __init__(self, *gpus: FakeHandle, problem: GpuProblemKind | None = None) -> None:
        super().__init__()
        self.gpus = gpus
        for index, gpu in enumerate(gpus):
            gpu.index = index
        self.problem = problem
        self.opening = threading.Event()
        self.opening.set()

    def open(self) -> Sequence[FakeHandle]:
        self.opening.wait()
        if self.problem is not None:
            raise GpuUnavailable(self.problem)
        return self.gpus

    def driver(self) -> tuple[str, str]:
        return "580.65.06", "13.0"
