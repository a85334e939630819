"""Memory peaks, and copies of figures to the host, without synchronisation; and the GPU memory limit."""

from __future__ import annotations

import os
from typing import Any

from ..import_hooks import call_safely

STATUS_FILE = "/proc/self/status"
RESIDENT_PEAK, ANONYMOUS = b"VmHWM", b"RssAnon"


class MemoryPeaks:
    """Memory peaks since the start of this process. CUDA's own are never reset: the training may print them."""

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        self._resident_peak: int | None = None

    def fields(self) -> dict[str, int | None]:
        """Memory fields of a `steps` event: CUDA's once it is initialised, and the peak resident set."""
        resident_peak, anonymous = status_bytes(RESIDENT_PEAK, ANONYMOUS)
        self._resident_peak = max(resident_peak or 0, self._resident_peak or 0) or None
        fields = {"rss_peak_bytes": self._resident_peak, "anonymous_bytes": anonymous}
        if self._torch.cuda.is_initialized():
            stats = self._torch.cuda.memory_stats_as_nested_dict()
            fields["allocated_bytes"] = stats["allocated_bytes"]["all"]["current"]
            fields["allocated_peak_bytes"] = stats["allocated_bytes"]["all"]["peak"]
            fields["reserved_peak_bytes"] = stats["reserved_bytes"]["all"]["peak"]
            fields["alloc_retries"] = stats["num_alloc_retries"]
        return fields


def status_bytes(*names: bytes) -> list[int | None]:
    """Fields of `/proc/self/status` such as `VmHWM`, in bytes; None for those that are missing.

    `ru_maxrss` is no alternative for the resident peak: it survives exec and may be the parent's.
    """
    try:
        with open(STATUS_FILE, "rb") as file:
            status = file.read()
    except OSError:
        status = b""
    values = (status.partition(name + b":")[2].split(None, 1) for name in names)
    return [int(value[0]) * 1024 if value else None for value in values]


class HostCopy:
    """The values of a tensor on a GPU on their way to pinned memory, for which nothing waits."""

    def __init__(self, torch: Any, tensor: Any) -> None:
        self._host = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)
        self._host.copy_(tensor, non_blocking=True)
        self._done = torch.cuda.Event()
        self._done.record()

    def has_arrived(self) -> bool:
        """Whether `values` need not wait."""
        return bool(self._done.query())

    def values(self) -> Any:
        """The number, or a list of numbers."""
        self._done.synchronize()
        return self._host.tolist()


def copy_to_host(torch: Any, tensor: Any) -> HostCopy | None:
    """Begin a copy; None while a CUDA graph is captured, which it would become a part of."""
    return None if torch.cuda.is_current_stream_capturing() else HostCopy(torch, tensor)


def limit_gpu_memory(torch: Any) -> None:
    """Limit this process to `TUNER_MEMORY_LIMIT_BYTES` as soon as CUDA is initialised."""
    wanted = os.environ.get("TUNER_MEMORY_LIMIT_BYTES")
    if wanted:
        torch.cuda._lazy_call(lambda: call_safely(_set_memory_fraction, torch, int(wanted)))


def _set_memory_fraction(torch: Any, wanted_bytes: int) -> None:
    """Only for this process's own device: querying another one would initialise it."""
    local_rank = os.environ.get("LOCAL_RANK")
    device = int(local_rank) if local_rank else torch.cuda.current_device()
    total = torch.cuda.get_device_properties(device).total_memory
    if wanted_bytes < total:
        torch.cuda.set_per_process_memory_fraction(wanted_bytes / total, device)
