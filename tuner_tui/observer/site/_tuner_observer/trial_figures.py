"""The figures of a trial: throughput with its confidence interval, exact times on a GPU, and memory peaks.

Memory peaks are those of forward and backward apart from the optimizer step. With CUDA the allocator's peaks are reset
between the two, which only a trial does. Without CUDA the process is polled 1,000 times a second during warm-up, which
contains the longest batch: the kernel keeps no peak of the private memory that `RLIMIT_DATA` limits. There the two
cannot be separated, since the process keeps memory freed to its allocator. What does not grow with the batch is seen
apart: what exists before the first batch, and the optimizer's states.
"""

from __future__ import annotations

import math
import os
import threading
import time
from typing import Any

from .counters.memory_peaks import RESIDENT_PEAK, status_bytes

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


SAMPLE_INTERVAL_S = 0.001


class TrialMemory:
    """Polls from the first batch to the end of warm-up; afterwards only CUDA's allocator keeps track."""

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        self._batch = self._optimizer = self._reserved = self._data = 0
        self._stop: threading.Event | None = None
        self._warm = False
        self._before_first_batch = 0
        self._resident: dict[int, tuple[int, int, int]] = {}

    def begin(self) -> None:
        """Read what exists before the first batch, and start polling unless the training runs on a GPU.

        On a CPU that is not known: what the process holds may be free for its tensors.
        """
        cuda = self._torch.cuda
        self._before_first_batch = int(cuda.memory_allocated()) if cuda.is_initialized() else 0
        if self._stop is None and not self._torch.cuda.is_initialized() and has_data_limit():
            self._stop = threading.Event()
            threading.Thread(target=self._watch, args=(self._stop,), daemon=True, name="tuner-trial-memory").start()

    def before_step(self) -> None:
        """Record the peak of forward and backward."""
        if not self._warm and self._torch.cuda.is_initialized():
            self._batch = max(self._batch, self._allocated())

    def after_step(self) -> None:
        """Record the peak of the optimizer step."""
        if not self._warm and self._torch.cuda.is_initialized():
            self._optimizer = max(self._optimizer, self._allocated())

    def first_stepped(self, optimizer: Any) -> None:
        """Add up weights, gradients and states of each optimizer once, after its first step."""
        if id(optimizer) not in self._resident:
            weights = [weight for group in optimizer.param_groups for weight in group["params"]]
            states = [value for state in optimizer.state.values() for value in state.values()]
            self._resident[id(optimizer)] = (
                sum(map(self._size, weights)),
                sum(self._size(weight.grad) for weight in weights),
                sum(map(self._size, states)),
            )

    def warm(self) -> None:
        """Stop measuring after warm-up, because it costs time."""
        self._warm = True
        if self._stop is not None:
            self._stop.set()

    def fields(self, accumulates: bool = False) -> dict[str, int | None]:
        """Memory fields of the `trial` event. `accumulates`: gradients persist from one micro batch to the next."""
        fields: dict[str, int | None] = {
            "rss_peak_bytes": status_bytes(RESIDENT_PEAK)[0],
            "resident_bytes": self._resident_bytes(accumulates),
        }
        if self._torch.cuda.is_initialized():
            return {**fields, **self._cuda_fields()}
        if has_data_limit():
            self._read_data()
            fields["data_peak_bytes"] = self._data or None
        return fields

    def _cuda_fields(self) -> dict[str, int | None]:
        cuda = self._torch.cuda
        rest = self._allocated()
        free, total = cuda.mem_get_info()
        return {
            "allocated_peak_bytes": max(self._batch, self._optimizer, rest),
            "reserved_peak_bytes": self._reserved,
            "batch_peak_bytes": self._batch or None,
            "device_outside_bytes": total - free - cuda.memory_reserved(),
            "device_total_bytes": total,
        }

    def _resident_bytes(self, accumulates: bool) -> int | None:
        """At most what exists when a forward pass begins; None before the first step.

        Frozen weights are in no optimizer, but they exist before the first batch.
        """
        if not self._resident:
            return None
        weights, gradients, states = map(sum, zip(*self._resident.values()))  # noqa: B905 - no `strict` in Python 3.8
        return int(max(self._before_first_batch, weights) + states + (gradients if accumulates else 0))

    def _size(self, value: Any) -> int:
        """Bytes of a tensor (of a sharded one, this process's part) in the memory that the peak counts, else 0.

        Wrappers, such as quantised states, may take less than their shape says, so they count as 0.
        """
        tensor, plain = getattr(value, "_local_tensor", value), self._torch.Tensor
        if not isinstance(tensor, plain) or type(tensor).__torch_dispatch__ != plain.__torch_dispatch__:
            return 0
        counted = "cuda" if self._torch.cuda.is_initialized() else "cpu"
        return int(tensor.numel() * tensor.element_size()) if tensor.device.type == counted else 0

    def _allocated(self) -> int:
        """Peak since the last call."""
        cuda = self._torch.cuda
        self._reserved = max(self._reserved, cuda.max_memory_reserved())
        peak = int(cuda.max_memory_allocated())
        cuda.reset_peak_memory_stats()
        return peak

    def _watch(self, stop: threading.Event) -> None:
        while not stop.wait(SAMPLE_INTERVAL_S):
            self._read_data()

    def _read_data(self) -> None:
        """Read the private writable memory of this process."""
        self._data = max(self._data, status_bytes(b"VmData")[0] or 0)


def has_data_limit() -> bool:
    """Whether the memory limit of this run limits private memory (`RLIMIT_DATA`) of this process."""
    if not os.environ.get("TUNER_MEMORY_LIMIT_BYTES"):
        return False
    import resource

    return resource.getrlimit(resource.RLIMIT_DATA)[0] != resource.RLIM_INFINITY
