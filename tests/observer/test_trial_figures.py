"""What a trial measures on a GPU, on a simulated one: allocator peaks and CUDA events."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

import pytest

from tests.late_module import late_module
from tuner_tui.observer.site._tuner_observer.counters.memory_peaks import MemoryPeaks
from tuner_tui.observer.site._tuner_observer.trial_figures import MAX_EVENT_PAIRS, GpuStopwatch, TrialMemory

GIB = 2**30


class Event:
    """A mark in the queue of a GPU whose clock is the test's."""

    def __init__(self, gpu: GpuOccupancy) -> None:
        self._gpu = gpu
        self.ms = -1.0

    def record(self) -> None:
        self.ms = self._gpu.ms

    def elapsed_time(self, later: Event) -> float:
        assert self._gpu.synchronised, "nobody waited for the GPU"
        return later.ms - self.ms


class GpuOccupancy:
    """`torch.cuda` with what a training takes of it set by the test."""

    def __init__(self) -> None:
        self.ms = 0.0
        self.peak = self.reserved = self.now_reserved = self.now_allocated = 0
        self.synchronised = False
        self.Event = lambda enable_timing: Event(self)

    def is_initialized(self) -> bool:
        return True

    def synchronize(self) -> None:
        self.synchronised = True

    def max_memory_allocated(self) -> int:
        return self.peak

    def max_memory_reserved(self) -> int:
        return self.reserved

    def memory_allocated(self) -> int:
        return self.now_allocated

    def memory_reserved(self) -> int:
        return self.now_reserved

    def reset_peak_memory_stats(self) -> None:
        self.peak = self.reserved = 0

    def mem_get_info(self) -> tuple[int, int]:
        return 10 * GIB, 24 * GIB


@pytest.fixture
def gpu() -> GpuOccupancy:
    return GpuOccupancy()


def peaks_of(gpu: GpuOccupancy, steps: list[tuple[int, int]]) -> dict[str, Any]:
    """After steps of (forward and backward, optimizer), the last one past the warm-up, in GiB."""
    peaks = TrialMemory(SimpleNamespace(cuda=gpu))
    peaks.begin()
    for number, (batch, optimizer) in enumerate(steps):
        if number == len(steps) - 1:
            peaks.warm()
        gpu.peak = max(gpu.peak, batch * GIB)
        gpu.reserved = max(gpu.reserved, (batch + 1) * GIB)
        peaks.before_step()
        gpu.peak = max(gpu.peak, optimizer * GIB)
        gpu.reserved = max(gpu.reserved, (optimizer + 1) * GIB)
        peaks.after_step()
    return peaks.fields()


def test_forward_and_backward_apart_from_the_optimizer(gpu: GpuOccupancy) -> None:
    gpu.now_reserved = 12 * GIB
    fields = peaks_of(gpu, [(5, 7), (6, 7), (3, 4)])
    assert fields["batch_peak_bytes"] == 6 * GIB
    assert fields["allocated_peak_bytes"] == 7 * GIB
    assert fields["reserved_peak_bytes"] == 8 * GIB
    assert (fields["device_total_bytes"], fields["device_outside_bytes"]) == (24 * GIB, 2 * GIB)
    assert "data_peak_bytes" not in fields


def test_what_comes_after_the_warm_up_counts_too(gpu: GpuOccupancy) -> None:
    fields = peaks_of(gpu, [(5, 7), (6, 7), (9, 4)])
    assert (fields["allocated_peak_bytes"], fields["reserved_peak_bytes"]) == (9 * GIB, 10 * GIB)
    assert fields["batch_peak_bytes"] == 6 * GIB


def test_the_stretch_is_timed_by_the_gpu(gpu: GpuOccupancy) -> None:
    """The program says two seconds; the GPU, which works behind its back, needed half a second more."""
    watch = GpuStopwatch(SimpleNamespace(cuda=gpu))
    began = time.perf_counter()
    watch.begin()
    gpu.ms = 500.0
    watch.end()
    host_s = time.perf_counter() - began
    assert watch.corrected(2.0) == pytest.approx(2.5, abs=host_s + 0.01)


def test_the_optimizers_share_is_that_of_the_steps_that_were_timed(gpu: GpuOccupancy) -> None:
    watch = GpuStopwatch(SimpleNamespace(cuda=gpu))
    watch.optimizer_begins()
    watch.optimizer_ends()
    watch.begin()
    for _ in range(MAX_EVENT_PAIRS + 36):
        watch.optimizer_begins()
        gpu.ms += 3.0
        watch.optimizer_ends()
        gpu.ms += 7.0
    watch.end()
    assert watch.optimizer_s(MAX_EVENT_PAIRS + 36) == pytest.approx(0.3)


def test_without_a_gpu_the_programs_clock_is_all() -> None:
    watch = GpuStopwatch(SimpleNamespace(cuda=SimpleNamespace(is_initialized=lambda: False)))
    watch.begin()
    watch.end()
    assert watch.corrected(2.0) == 2.0
    assert watch.optimizer_s(10) is None


def test_without_an_optimizer_step_nothing_is_known_to_be_resident(gpu: GpuOccupancy) -> None:
    assert TrialMemory(SimpleNamespace(cuda=gpu)).fields()["resident_bytes"] is None


torch = late_module("torch")


def on_gpu(*shape: int, dtype: str = "float32") -> Any:
    """A tensor that says it is on the GPU."""

    class GpuTensor(torch.Tensor):  # type: ignore[name-defined]
        device = torch.device("cuda", 0)

    return torch.zeros(*shape, dtype=getattr(torch, dtype)).as_subclass(GpuTensor)


def resident_bytes(gpu: GpuOccupancy, weights: Any, states: dict[str, Any], accumulates: bool) -> Any:
    memory = TrialMemory(SimpleNamespace(cuda=gpu, Tensor=torch.Tensor))
    memory.begin()
    optimizer = SimpleNamespace(param_groups=[{"params": [weights]}], state={weights: states})
    for _ in range(3):
        memory.first_stepped(optimizer)
    return memory.fields(accumulates)["resident_bytes"]


def test_what_every_forward_pass_begins_with() -> None:
    """1,000 weights in fp32, their gradients, two moments, one of them in 8 bit, and a step count on the host."""
    weights = on_gpu(1000)
    weights.grad = on_gpu(1000)
    states = {"step": torch.zeros(()), "exp_avg": on_gpu(1000), "quantised": on_gpu(1000, dtype="uint8")}
    assert resident_bytes(GpuOccupancy(), weights, states, accumulates=False) == 4000 + 4000 + 1000
    assert resident_bytes(GpuOccupancy(), weights, states, accumulates=True) == 4000 + 4000 + 1000 + 4000


def test_frozen_weights_count_as_they_exist_before_the_first_batch() -> None:
    gpu = GpuOccupancy()
    gpu.now_allocated = 14 * GIB
    assert resident_bytes(gpu, on_gpu(1000), {"exp_avg": on_gpu(1000)}, accumulates=False) == 14 * GIB + 4000


class FakeCuda:
    """The allocator of a started device: a settable peak, and its statistics as torch nests them."""

    def __init__(self) -> None:
        self.peak = 100
        self.started = True

    def is_initialized(self) -> bool:
        return self.started

    def max_memory_allocated(self) -> int:
        return self.peak

    def memory_stats_as_nested_dict(self) -> dict[str, Any]:
        allocated = {"all": {"peak": self.peak, "current": 150}}
        return {"allocated_bytes": allocated, "reserved_bytes": {"all": {"peak": 400}}, "num_alloc_retries": 2}


def test_peaks_of_the_device_and_of_the_process() -> None:
    cuda = FakeCuda()
    peaks = MemoryPeaks(SimpleNamespace(cuda=cuda))
    cuda.peak = 300
    fields = peaks.fields()
    assert fields["rss_peak_bytes"]
    assert fields["anonymous_bytes"]
    assert fields["allocated_bytes"] == 150
    assert (fields["allocated_peak_bytes"], fields["reserved_peak_bytes"]) == (300, 400)
    assert fields["alloc_retries"] == 2
    cuda.started = False
    assert set(peaks.fields()) == {"rss_peak_bytes", "anonymous_bytes"}
