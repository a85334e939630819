"""Cards without a driver: a reader that answers, blocks or fails as a test says; a clock that stands still."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from tuner_tui.hardware.driver import (
    CardUnavailable,
    Driver,
    FastFigures,
    GpusUnavailable,
    SlowFigures,
    gpu_problem,
)
from tuner_tui.hardware.inventory import Gpu, GpuProblemKind, GpuProcess


class Clock:
    """A clock that only the test advances."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


class FakeCard:
    """One card: `fast` counts its readings as utilisation; `lost` makes it fail; `gate` holds its answers up."""

    def __init__(self, name: str = "Tesla T4") -> None:
        self.name = name
        self.lost = False
        self.gate = threading.Event()
        self.gate.set()
        self.asked = threading.Event()
        self.fast_reads = 0
        self.slow_reads = 0
        self.xids: list[int] = []

    def enter(self, index: int) -> None:
        self.asked.set()
        self.gate.wait()
        if self.lost:
            raise CardUnavailable(gpu_problem(GpuProblemKind.GPU_LOST, index))


class FakeReader:
    """A `GpuReader` over fake cards; `problem` makes it fail as a whole, `opening` holds up its start."""

    def __init__(self, *cards: FakeCard, problem: GpuProblemKind | None = None) -> None:
        self.cards: Sequence[FakeCard] = cards
        self.problem = problem
        self.opening = threading.Event()
        self.opening.set()

    def open(self) -> int:
        self.opening.wait()
        if self.problem is not None:
            raise GpusUnavailable(gpu_problem(self.problem))
        return len(self.cards)

    def driver(self) -> Driver:
        return Driver("580.65.06", "13.0")

    def describe(self, index: int) -> Gpu:
        self.cards[index].enter(index)
        return Gpu(index, self.cards[index].name, power_limit_w=70.0)

    def fast(self, index: int) -> FastFigures:
        self.cards[index].enter(index)
        self.cards[index].fast_reads += 1
        return FastFigures(utilisation_pct=self.cards[index].fast_reads, memory_total_bytes=16)

    def slow(self, index: int) -> SlowFigures:
        self.cards[index].enter(index)
        self.cards[index].slow_reads += 1
        return SlowFigures(temperature_c=60 + self.cards[index].slow_reads, processes=(GpuProcess(7, 8),))

    def xids(self, index: int) -> tuple[int, ...]:
        reported, self.cards[index].xids = tuple(self.cards[index].xids), []
        return reported
