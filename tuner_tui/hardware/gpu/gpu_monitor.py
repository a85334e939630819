"""Monitors one GPU from its own thread, so that a card that does not answer blocks nothing else."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace

from tuner_tui.hardware.gpu.driver import CardUnavailable, FastFigures, GpuReader, SlowFigures
from tuner_tui.hardware.gpu.xid import xid_meaning
from tuner_tui.hardware.inventory import Gpu, GpuProcess
from tuner_tui.hardware.processes.process_names import identify_gpu_processes
from tuner_tui.hardware.sample import GpuSample

FAST_PERIOD_S = 1.0
SLOW_EVERY = 3
STALE_AFTER_S = 2.0
GpuProcesses = tuple[GpuProcess, ...] | None
LOST_PERIOD_S = 10.0
"""Seconds between attempts to read a lost card: each can block the driver for the cards that still work."""


class GpuMonitor:
    """Reads one card and holds its newest sample.

    `refresh` is for the card's own thread and may block for as long as the driver does; `newest` never blocks. `clock`
    is monotonic, in seconds.
    """

    def __init__(
        self,
        reader: GpuReader,
        index: int,
        clock: Callable[[], float],
        identify: Callable[[GpuProcesses], GpuProcesses] = identify_gpu_processes,
    ) -> None:
        self._reader = reader
        self._identify = identify
        self._index = index
        self._clock = clock
        self._ticks = 0
        self._name = f"GPU {index}"
        self._power_limit_w: float | None = None
        self.described: Gpu | None = None
        """The card as it was when it first answered: its UUID and what else does not change."""
        self._started_s = clock()
        self._sample = GpuSample(index=index, name=self._name)
        self._read_s: float | None = None
        self._slow = SlowFigures()
        self._xid: tuple[int, float] | None = None
        self.answered = threading.Event()
        """Set once the card was read for the first time, or found lost."""

    def refresh(self) -> None:
        """Reads the card: the fast figures, and every `SLOW_EVERY`th time the slow ones."""
        reads_slow = self._ticks % SLOW_EVERY == 0
        try:
            self._describe()
            fast = self._reader.fast(self._index)
            if reads_slow:
                slow = self._reader.slow(self._index)
                self._slow = replace(slow, processes=self._identify(slow.processes))
            self._ticks += 1
        except CardUnavailable:
            self._mark_lost()
        else:
            self._publish(fast)
        if reads_slow or self._sample.lost:
            self._read_xids()
        self.answered.set()

    def pause_s(self) -> float:
        """Seconds until the next refresh."""
        return LOST_PERIOD_S if self._sample.lost else FAST_PERIOD_S

    def newest(self) -> GpuSample:
        """The newest sample, with its age when it is stale or the card is lost."""
        sample, read_s = self._sample, self._read_s
        age_s = self._clock() - (self._started_s if read_s is None else read_s)
        if sample.lost or age_s > STALE_AFTER_S:
            sample = replace(sample, age_s=age_s)
        if self._xid is not None:
            number, noticed_s = self._xid
            sample = replace(sample, xid=number, xid_age_s=self._clock() - noticed_s)
        return sample

    def _read_xids(self) -> None:
        """Keeps an error of the card itself until the next one: later errors of programs are its consequences."""
        xids = self._reader.xids(self._index)
        own = [number for number in xids if xid_meaning(number).fault == "card"]
        known = self._xid is not None and xid_meaning(self._xid[0]).fault == "card"
        if own or (xids and not known):
            self._xid = ((own or xids)[-1], self._clock())

    def _describe(self) -> None:
        if self.described is None:
            self.described = gpu = self._reader.describe(self._index)
            self._name, self._power_limit_w = gpu.name, gpu.power_limit_w

    def _publish(self, fast: FastFigures) -> None:
        slow = self._slow
        self._sample = GpuSample(
            index=self._index,
            name=self._name,
            utilisation_pct=fast.utilisation_pct,
            memory_used_bytes=fast.memory_used_bytes,
            memory_total_bytes=fast.memory_total_bytes,
            power_w=fast.power_w,
            power_limit_w=self._power_limit_w,
            temperature_c=slow.temperature_c,
            fan_pct=slow.fan_pct,
            clock_sm_mhz=fast.clock_sm_mhz,
            clock_memory_mhz=fast.clock_memory_mhz,
            throttle=fast.throttle,
            processes=slow.processes,
        )
        self._read_s = self._clock()

    def _mark_lost(self) -> None:
        """Keeps the row of a lost card, without outdated figures."""
        self._slow, self._ticks = SlowFigures(), 0
        self._sample = GpuSample(
            index=self._index,
            name=self._name,
            memory_total_bytes=self._sample.memory_total_bytes,
            power_limit_w=self._power_limit_w,
            lost=True,
        )
