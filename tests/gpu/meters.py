"""Meters of memory per phase: CUDA's own counters, or all allocations that torch makes on a CPU."""

from __future__ import annotations

import os
import resource
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol

import torch

MARK_BYTES = 3_000_017
"""Size of an allocation that marks the start of a phase; no tensor of a model has this size."""
PHASES = ("first", "batch", "step", "evaluation", "outside")


class Meter(Protocol):
    """Measures peaks per phase within `measuring`."""

    context_bytes: int | None

    def enter(self, phase: str) -> None:
        """Start `phase`."""

    def measuring(self) -> Any:
        """Context in which phases are separated."""

    def peaks(self) -> dict[str, int]:
        """Peak of each phase, in bytes above the level before measuring."""


class CpuMeter:
    """Sums every allocation that torch's profiler reports. An allocation of a known size marks the start of a phase.

    The sum starts at 0, so weights created earlier are not included.
    """

    def __init__(self) -> None:
        # Resident memory with everything imported, before a model is there.
        self.context_bytes: int | None = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        self._events: list[tuple[int, int]] = []

    def enter(self, phase: str) -> None:
        torch.empty(MARK_BYTES + PHASES.index(phase), dtype=torch.uint8)

    @contextmanager
    def measuring(self) -> Iterator[None]:
        with torch.autograd.profiler.profile(profile_memory=True) as profile:
            yield
        results = profile.kineto_results
        assert results is not None
        events = [(event.start_ns(), event.nbytes()) for event in results.events() if event.name() == "[memory]"]
        self._events = sorted(events, key=lambda event: event[0])

    def peaks(self) -> dict[str, int]:
        """Maximum of the running sum within each phase, without the marks."""
        collected: dict[str, int] = defaultdict(int)
        total, phase = 0, "outside"
        for _, size in self._events:
            mark = abs(size) - MARK_BYTES
            if 0 <= mark < len(PHASES):
                phase = PHASES[mark]
                collected[phase] = max(collected[phase], total)
                continue
            total += size
            collected[phase] = max(collected[phase], total)
        return dict(collected)


class CudaMeter:
    """Reads and resets CUDA's peaks at every phase; NVML reports the driver's figure for this process."""

    def __init__(self) -> None:
        torch.cuda.init()
        torch.zeros(1, device="cuda")
        torch.cuda.synchronize()
        self.context_bytes: int | None = self._driver_bytes(torch.cuda.memory_reserved())
        self.reserved_bytes = 0
        self._before = 0
        self._phase = "outside"
        self._peaks: dict[str, int] = defaultdict(int)

    def enter(self, phase: str) -> None:
        torch.cuda.synchronize()
        peak = torch.cuda.max_memory_allocated() - self._before
        self._peaks[self._phase] = max(self._peaks[self._phase], peak)
        self.reserved_bytes = max(self.reserved_bytes, torch.cuda.max_memory_reserved())
        torch.cuda.reset_peak_memory_stats()
        self._phase = phase

    @contextmanager
    def measuring(self) -> Iterator[None]:
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        self._peaks.clear()
        self._before, self._phase, self.reserved_bytes = torch.cuda.memory_allocated(), "outside", 0
        yield
        self.enter("outside")

    def peaks(self) -> dict[str, int]:
        return dict(self._peaks)

    def driver_bytes(self) -> int | None:
        """The driver's figure for this process, None if it reports none."""
        return self._driver_bytes(0)

    def _driver_bytes(self, less: int) -> int | None:
        from pynvml import (
            NVMLError,
            nvmlDeviceGetComputeRunningProcesses,
            nvmlDeviceGetHandleByUUID,
            nvmlInit,
            nvmlShutdown,
        )

        try:
            nvmlInit()
            handle = nvmlDeviceGetHandleByUUID(f"GPU-{torch.cuda.get_device_properties(0).uuid}")
            processes = nvmlDeviceGetComputeRunningProcesses(handle)
            nvmlShutdown()
        except NVMLError:
            return None
        # In a container the driver names the host's process: the only one there is then ours.
        mine = [process for process in processes if process.pid == os.getpid()] or (
            processes if len(processes) == 1 else []
        )
        used = mine[0].usedGpuMemory if mine else None
        return None if used is None else used - less


def storage_bytes(model: Any) -> int:
    """Bytes of a model's parameters and buffers, each storage counted once."""
    tensors = [*model.parameters(), *model.buffers()]
    return sum({tensor.untyped_storage().data_ptr(): tensor.untyped_storage().nbytes() for tensor in tensors}.values())
