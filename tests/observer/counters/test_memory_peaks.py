"""Memory peaks of a simulated CUDA allocator."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from tuner_tui.observer.site._tuner_observer.counters.memory_peaks import MemoryPeaks


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


def test_peaks_of_the_device_and_of_the_optimizer_step() -> None:
    cuda = FakeCuda()
    peaks = MemoryPeaks(SimpleNamespace(cuda=cuda))
    peaks.before_step()
    cuda.peak = 300
    peaks.after_step()
    fields = peaks.fields()
    assert fields["rss_peak_bytes"]
    assert fields["anonymous_bytes"]
    assert fields["allocated_bytes"] == 150
    assert (fields["allocated_peak_bytes"], fields["reserved_peak_bytes"]) == (300, 400)
    assert (fields["step_peak_bytes"], fields["alloc_retries"]) == (300, 2)
    cuda.started = False
    assert set(peaks.fields()) == {"rss_peak_bytes", "anonymous_bytes"}
