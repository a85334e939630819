"""Memory peaks of a trial: forward and backward apart from the optimizer step.

With CUDA the allocator's peaks are reset between the two, which only a trial does. Without CUDA the process is polled
1,000 times a second during warm-up, which contains the longest batch: the kernel keeps no peak of the private memory
that `RLIMIT_DATA` limits. There the two cannot be separated, since the process keeps memory freed to its allocator.

What does not grow with the batch is seen apart: what exists before the first batch, and the optimizer's states.
"""

from __future__ import annotations

import os
import threading
from typing import Any

from ..counters.memory_peaks import RESIDENT_PEAK, status_bytes

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
            fields["data_peak_bytes"] = max(self._data, private_writable_bytes() or 0) or None
        return fields

    def _cuda_fields(self) -> dict[str, int | None]:
        cuda = self._torch.cuda
        rest = self._allocated()
        free, total = cuda.mem_get_info()
        return {
            "allocated_peak_bytes": max(self._batch, self._optimizer, rest),
            "reserved_peak_bytes": self._reserved,
            "batch_peak_bytes": self._batch or None,
            "optimizer_peak_bytes": self._optimizer or None,
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
            self._data = max(self._data, private_writable_bytes() or 0)


def private_writable_bytes() -> int | None:
    """Private writable memory of this process, None if unknown."""
    return status_bytes(b"VmData")[0]


def has_data_limit() -> bool:
    """Whether the memory limit of this run limits private memory (`RLIMIT_DATA`) of this process."""
    if not os.environ.get("TUNER_MEMORY_LIMIT_BYTES"):
        return False
    import resource

    return resource.getrlimit(resource.RLIMIT_DATA)[0] != resource.RLIM_INFINITY
