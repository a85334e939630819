"""What a training of another's takes, by what its runs took on this box: nothing is known of it but that."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tuner_tui.memory.correct import CORRECTED_DOUBT, MeasuredRun
from tuner_tui.memory.device import Device
from tuner_tui.memory.estimate import RESERVE, MemoryEstimate
from tuner_tui.memory.fit import PeakModel, Point, fit
from tuner_tui.memory.slack import Overhead
from tuner_tui.memory.step import Moment
from tuner_tui.settings.model import Settings


@dataclass(frozen=True, slots=True)
class Measured:
    """The peak at the micro batch asked for, and the largest batch; None where too few sizes were run to tell it."""

    estimate: MemoryEstimate
    largest: int | None = None


@dataclass(frozen=True, slots=True)
class NotAtThisBatch:
    """Runs were measured, none at the micro batch asked for, and too few sizes to tell one from the others."""

    batch: int
    peak_bytes: int
    run: str


def measured_peak(
    runs: Sequence[MeasuredRun], settings: Settings, device: Device, batch: int | None = None
) -> Measured | NotAtThisBatch | None:
    """What runs (newest first) with these settings took, at `batch` or at that of the newest; None where none did.

    The allocator's peak, to which CUDA's context is added, or a CPU's largest resident set, to which is added what is
    reserved beside it where a limit counts that. Between sizes and beyond
    them, the model fitted to at least two sizes off the floor.
    """
    newest: dict[int, tuple[MeasuredRun, int]] = {}
    for run in runs:
        peak = _peak(run, device)
        if peak is not None and run.alike(settings):
            newest.setdefault(run.settings.per_device_train_batch_size, (run, peak))
    if not newest:
        return None
    first, (last, peak) = next(iter(newest.items()))
    batch = batch or first
    model = fit([Point(size, taken) for size, (_, taken) in newest.items()])
    largest = None if model is None else _largest(model, device.capacity_bytes)
    if batch in newest:
        run, peak = newest[batch]
        return Measured(_estimate(batch, peak, CORRECTED_DOUBT, f"measured by run {run.id}", device), largest)
    if model is None:
        return NotAtThisBatch(first, peak, last.id)
    expected = model.peak_bytes(batch)
    off = model.doubt_bytes + model.doubt_slope_bytes * max(0, batch - model.reach)
    doubt = max(CORRECTED_DOUBT, off / expected)
    words = f"from {len(newest)} sizes measured, the last by run {last.id}"
    return Measured(_estimate(batch, round(expected), doubt, words, device), largest)


def _peak(run: MeasuredRun, device: Device) -> int | None:
    if not device.on_gpu:
        return None if run.resident_bytes is None else run.resident_bytes + device.reserved_bytes
    held = run.reserved_bytes or run.tensor_bytes
    return None if held is None else held + device.context_bytes


def _largest(model: PeakModel, capacity_bytes: int | None) -> int | None:
    return None if capacity_bytes is None else model.largest_batch(capacity_bytes * (1 - RESERVE))


def _estimate(batch: int, peak: int, doubt: float, words: str, device: Device) -> MemoryEstimate:
    """A peak of which the parts are not known."""
    whole = Moment("the run", 0.0, 0.0, 0.0, float(peak), 0.0)
    nothing = Overhead(0.0, 0.0, 0.0, reserved_doubt_bytes=device.reserved_doubt_bytes)
    return MemoryEstimate(batch, (whole,), device.on_gpu, nothing, doubt, words, device.capacity_bytes)
