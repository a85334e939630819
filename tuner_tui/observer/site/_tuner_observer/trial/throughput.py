"""Throughput of the measured steps with its confidence interval, and a stopwatch that is exact on a GPU."""

from __future__ import annotations

import math
import time
from typing import Any

T_95 = (12.71, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228)
"""Student's t for a two-sided 95 % interval, by degrees of freedom from 1 to 10; later values are approximated."""


MIN_BLOCK_S = 0.1
"""Short steps are combined into blocks: a step that waited for its batch is followed by one that did not, so that
single steps are not independent.
"""
MAX_PARTIAL_BLOCK_S = 1.0
"""A block of this length is closed before all loader workers have delivered."""


class ThroughputEstimate:
    """Throughput with the half width of its 95 % interval relative to it.

    Blocks differ in both amount and time, so this is a ratio estimator (sum of amounts over sum of times), not the mean
    of rates.

    Where the training waits for its data, all `workers` of the loader deliver at nearly the same time, and then none
    does for a while. So a block ends after a multiple of their number, and the measurement with a block.
    """

    def __init__(self, workers: int = 0) -> None:
        self.steps = self._blocks = 0
        self.seconds = 0.0
        self._workers = max(1, workers)
        self._batches = 0
        self._open = (0.0, 0.0)
        self._amount = self._duration = self._amount2 = self._both = self._duration2 = 0.0

    def add(self, amount: float, seconds: float, batches: int = 1) -> bool:
        """Add a step that took `batches` from the loader. Returns whether a block ended with it."""
        self.steps += 1
        self.seconds += seconds
        self._batches += batches
        self._open = (self._open[0] + amount, self._open[1] + seconds)
        if self._open[1] < (MAX_PARTIAL_BLOCK_S if self._batches % self._workers else MIN_BLOCK_S):
            return False
        self._close(*self._open)
        self._open, self._batches = (0.0, 0.0), 0
        return True

    def _close(self, amount: float, seconds: float) -> None:
        self._blocks += 1
        self._amount += amount
        self._duration += seconds
        self._amount2 += amount * amount
        self._both += amount * seconds
        self._duration2 += seconds * seconds

    def spread(self) -> float | None:
        """Half width of the 95 % interval relative to the estimate, None below two blocks."""
        blocks = self._blocks
        if blocks < 2 or self._amount <= 0:
            return None
        ratio = self._amount / self._duration
        squares = self._amount2 - 2 * ratio * self._both + ratio * ratio * self._duration2
        error = math.sqrt(max(0.0, squares) * blocks / (blocks - 1)) / self._amount
        freedom = blocks - 1
        return error * (T_95[freedom - 1] if freedom <= len(T_95) else 1.96 + 2.5 / freedom)


MAX_EVENT_PAIRS = 64
"""Maximum number of optimizer steps timed by CUDA events; the result is scaled to all steps."""


class GpuStopwatch:
    """Times the measured span and the optimizer's share of it; without CUDA by `perf_counter` alone.

    With CUDA the host runs ahead of the GPU, so that both ends of the span are marked by events in the GPU's queue.
    """

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        self._runs = False
        self._optimizer_s = 0.0
        self._since_s = 0.0
        self._pairs: list[tuple[Any, Any]] = []
        self._began: tuple[float, Any] | None = None
        self._late_s = 0.0

    def begin(self) -> None:
        """Start the measured span, or restart it."""
        self._runs = True
        self._optimizer_s = 0.0
        self._pairs.clear()
        self._began = (time.perf_counter(), self._event())

    def optimizer_begins(self) -> None:
        self._since_s = time.perf_counter()
        event = self._event() if self._runs and len(self._pairs) < MAX_EVENT_PAIRS else None
        if event is not None:
            self._pairs.append((event, None))

    def optimizer_ends(self) -> None:
        if not self._runs:
            return
        self._optimizer_s += time.perf_counter() - self._since_s
        if self._pairs and self._pairs[-1][1] is None:
            self._pairs[-1] = (self._pairs[-1][0], self._event())

    def end(self) -> None:
        """End the span: synchronise, and determine how far the GPU lagged behind at either end."""
        self._runs = False
        if self._began is None or self._began[1] is None:
            return
        last_s, last = time.perf_counter(), self._event()
        self._torch.cuda.synchronize()
        self._late_s = self._began[1].elapsed_time(last) / 1000 - (last_s - self._began[0])

    def corrected(self, seconds: float) -> float:
        """Length of the span on the GPU, given its `seconds` on the host."""
        return max(seconds + self._late_s, 0.0)

    def optimizer_s(self, steps: int) -> float | None:
        """Seconds that the optimizer took in `steps` steps, None if none was timed."""
        pairs = [(first, last) for first, last in self._pairs if last is not None]
        if pairs:
            seconds = sum(float(first.elapsed_time(last)) for first, last in pairs) / 1000
            return round(seconds * steps / len(pairs), 6)
        return round(self._optimizer_s, 6) or None

    def _event(self) -> Any:
        """A recorded CUDA event, None without CUDA."""
        if not self._torch.cuda.is_initialized():
            return None
        event = self._torch.cuda.Event(enable_timing=True)
        event.record()
        return event
