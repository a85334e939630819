"""The best available memory estimate of a job: closed form at once or a trace in seconds, corrected by measured
runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

from tuner_tui.advice.recommend.workload import model_of
from tuner_tui.hardware.interpreter.probe import Interpreter
from tuner_tui.memory.calibration import MeasuredRun, calibrate
from tuner_tui.memory.device import Device, ImportFootprint
from tuner_tui.memory.estimate import MemoryEstimate, estimate
from tuner_tui.memory.model_shape import config_path, known_shape
from tuner_tui.memory.trace import MemoryTrace, TraceError, cached_trace, estimate_from_trace, trace_memory
from tuner_tui.settings.job import BuiltinJob
from tuner_tui.settings.model import Settings

NAME_ONLY_UNCERTAINTY = 0.3
"""Relative uncertainty if only the model's name is known; judgement."""


def limit_device_memory(device: Device, limit_bytes: int, import_footprint: ImportFootprint | None) -> Device:
    """The CPU device under `--memory-limit`, which limits private memory to `limit_bytes`.

    `import_footprint` is the measured memory of the imports alone; None if unknown.
    """
    least = limit_bytes if device.capacity_bytes is None else min(limit_bytes, device.capacity_bytes)
    return replace(device, capacity_bytes=least, limited=True, import_footprint=import_footprint)


@dataclass(frozen=True, slots=True)
class JobMemoryEstimator:
    """Estimates the memory of one job on one device, corrected by measured runs (newest first).

    Each of `processes` has a device of its own. `interpreter` runs traces; None if there is none.
    """

    job: BuiltinJob
    device: Device
    processes: int = 1
    interpreter: Interpreter | None = None
    runs: Sequence[MeasuredRun] = ()

    def at_once(self, settings: Settings) -> MemoryEstimate | None:
        """The estimate from a cached trace, else the closed form; None if there is neither. Reads one small file."""
        python = self.interpreter
        found = None if python is None else cached_trace(python, self.job, settings, self.device)
        return self.closed_form(settings) if found is None else self._traced_estimate(found, settings)

    def closed_form(self, settings: Settings) -> MemoryEstimate | None:
        """The closed-form estimate, from the shape that the model's name suggests if need be; None without a shape."""
        shape = known_shape(self.job.model, self.job.task)
        if shape is not None:
            return self._calibrate(settings, lambda one: estimate(shape, one, self.device, self.processes))
        guess = model_of(self.job.model, self.job.task)
        if guess.guessed or config_path(self.job.model) is not None:  # its configuration says that it is none of ours
            return None
        rests_on = f"closed form, shape guessed from the name {guess.label}"
        named = partial(replace, uncertainty=NAME_ONLY_UNCERTAINTY, rests_on=rests_on)
        return self._calibrate(settings, lambda one: named(estimate(guess.shape, one, self.device, self.processes)))

    def traced(self, settings: Settings) -> MemoryEstimate:
        """The traced estimate; takes seconds unless the trace is cached. Raises `TraceError`."""
        if self.interpreter is None:
            raise TraceError("No interpreter to trace with: pass --interpreter.")
        return self._traced_estimate(trace_memory(self.interpreter, self.job, settings, self.device), settings)

    def _traced_estimate(self, found: MemoryTrace, settings: Settings) -> MemoryEstimate:
        return self._calibrate(settings, lambda one: estimate_from_trace(found, one, self.device, self.processes))

    def _calibrate(self, settings: Settings, way: Callable[[Settings], MemoryEstimate]) -> MemoryEstimate:
        found = calibrate(way(settings), settings, self.device.on_gpu, self.runs, way)
        most = self.job.max_samples
        return found if most is None else replace(found, samples=max(1, most // self.processes))
