"""Search spaces and measurements for searches that are driven to their end."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.benchmarks.tuning.simulated_training import GIB, PYTHON, recorded
from tests.fakes.situations import box, make_gpu
from tuner_tui.settings.job import BuiltinJob, CommandJob
from tuner_tui.settings.model import Settings
from tuner_tui.tuning.search.search import Search
from tuner_tui.tuning.search.space import SearchSpace, build_space
from tuner_tui.tuning.trial import Measurement, StepBreakdown, Trial

Run = Callable[[Trial], Measurement]
GPU = 24 * GIB


def space(start: Settings, job: BuiltinJob | CommandJob | None = None, cores: int = 8, **fields: Any) -> SearchSpace:
    """A machine with one RTX 3090."""
    return build_space(box(make_gpu(memory_total_bytes=GPU), cores=cores), PYTHON, job or BuiltinJob(), start, **fields)


def measured(rate: float, peak: int = GIB, **changes: Any) -> Measurement:
    """A trial at `rate` samples a second that took `peak` bytes, the wait for data and padding nothing."""
    figures: dict[str, Any] = {
        "samples_s": rate,
        "spread": 0.005,
        "peak_bytes": peak,
        "batch_peak_bytes": peak,
        "breakdown": StepBreakdown(data_wait=0.0, optimizer=0.0, padding=0.0),
    }
    return Measurement(outcome="measured", seconds=10.0, **{**figures, **changes})


def out_of_memory() -> Measurement:
    """A trial that did not fit."""
    return Measurement(outcome="out-of-memory", seconds=5.0, sentence="CUDA out of memory")


def linear_measurement(
    trial: Trial, base: int = 4 * GIB, sample: int = GIB, once_s: float = 0.02, own_s: float = 0.01
) -> Measurement:
    """Memory is a line in the micro batch; of the time a part is what each micro batch costs once."""
    micro = trial.settings.per_device_train_batch_size
    peak = base + sample * micro
    return measured(micro / (once_s + own_s * micro), peak) if peak <= GPU else out_of_memory()


def run_search(search: Search, run: Run) -> Search:
    """The search at its end."""
    while (trial := search.propose()) is not None:
        search = recorded(search, trial, run(trial))
    return search


def sizes(search: Search) -> list[int]:
    """The micro batches in the order of their trials."""
    return [completed.trial.settings.per_device_train_batch_size for completed in search.trials]


def purposes(search: Search) -> list[str]:
    """What the trials were for."""
    return [completed.trial.purpose for completed in search.trials]
