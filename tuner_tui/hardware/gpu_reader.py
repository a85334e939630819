"""The seam between the program and a GPU driver: what a reader of cards must answer, and how it may fail.

`nvml.NvmlReader` is the real one. Every call may block for as long as the driver pleases, so callers keep each card in
a thread of its own; a figure the card does not give is `None`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from tuner_tui.hardware.inventory import Gpu, GpuProblem, GpuProcess


@dataclass(frozen=True, slots=True)
class FastFigures:
    """What changes from second to second and costs the driver microseconds. Percent, bytes, watts, MHz."""

    utilisation_pct: float | None = None
    memory_used_bytes: int | None = None
    memory_total_bytes: int | None = None
    power_w: float | None = None
    clock_sm_mhz: int | None = None
    clock_memory_mhz: int | None = None
    throttle: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SlowFigures:
    """What changes slowly or costs the driver more: degrees Celsius, percent of the fan, processes."""

    temperature_c: float | None = None
    fan_pct: float | None = None
    processes: tuple[GpuProcess, ...] | None = None


@dataclass(frozen=True, slots=True)
class Driver:
    """The driver's version (`580.65.06`) and the newest CUDA it runs (`13.0`)."""

    version: str | None = None
    cuda: str | None = None


class GpusUnavailable(Exception):
    """No card of this box can be read; `problem` says why and what to do."""

    def __init__(self, problem: GpuProblem) -> None:
        super().__init__(problem.sentence)
        self.problem = problem


class CardUnavailable(Exception):
    """One card does not answer any more (it fell off the bus, or its driver is wedged); the others go on."""

    def __init__(self, problem: GpuProblem) -> None:
        super().__init__(problem.sentence)
        self.problem = problem


class GpuReader(Protocol):
    """Reads the cards of a box. `index` counts from 0 as the driver does, not as CUDA_VISIBLE_DEVICES does."""

    def open(self) -> int:
        """Starts the driver's library once and gives the number of cards (at least 1), or raises GpusUnavailable."""
        ...

    def driver(self) -> Driver:
        """The driver's versions; after `open`."""
        ...

    def describe(self, index: int) -> Gpu:
        """What the card is, without abilities. Raises CardUnavailable."""
        ...

    def fast(self, index: int) -> FastFigures:
        """The figures of the one-second tier. Raises CardUnavailable."""
        ...

    def slow(self, index: int) -> SlowFigures:
        """The figures of the slow tier. Raises CardUnavailable."""
        ...

    def xids(self, index: int) -> tuple[int, ...]:
        """The driver's critical errors (Xid) on the card since the last call, oldest first; raises nothing.

        What was before the first call is not known. Empty where the driver does not tell.
        """
        ...
