"""Estimates calibrated by runs measured on this box, and estimates that rest on such runs alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from tuner_tui.memory.closed_form import MemoryPhase
from tuner_tui.memory.device import Device, RuntimeOverhead
from tuner_tui.memory.estimate import RESERVE_SHARE, MemoryEstimate
from tuner_tui.memory.fit import PeakModel, PeakPoint, fit
from tuner_tui.settings.model import Settings

CALIBRATED_UNCERTAINTY = 0.03
"""What is left between two runs whose settings differ in the batch alone; judgement."""
MEMORY_SETTINGS = (
    "precision", "optim", "gradient_checkpointing", "attn_implementation", "torch_compile", "max_length",
    "peft_method", "lora_r",
)  # fmt: skip
"""What a run must have had as well for its memory to say something: all but the batch and what does not matter."""


@dataclass(frozen=True, slots=True)
class MeasuredRun:
    """What one run took. On a GPU: the peaks of tensors and of the allocator; on a CPU: the largest resident set."""

    id: str
    settings: Settings
    tensor_bytes: int | None = None
    reserved_bytes: int | None = None
    resident_bytes: int | None = None

    def alike(self, settings: Settings) -> bool:
        """Whether only the batch, or what takes no memory, is different."""
        batches = self.settings.gradient_accumulation_steps > 1, settings.gradient_accumulation_steps > 1
        same = all(getattr(self.settings, name) == getattr(settings, name) for name in MEMORY_SETTINGS)
        return same and batches[0] == batches[1]


def calibrate(
    found: MemoryEstimate,
    settings: Settings,
    on_gpu: bool,
    runs: Sequence[MeasuredRun],
    again: Callable[[Settings], MemoryEstimate],
) -> MemoryEstimate:
    """`found` put right by those of `runs` (newest first) that had the same settings but for the batch.

    `again` gives the uncorrected estimate for the settings of a run. Where no run says anything, `found` as it is.
    """
    alike = [run for run in runs if run.alike(settings)]
    return _calibrate_gpu(found, alike, again) if on_gpu else _calibrate_cpu(found, alike, again)


def _calibrate_gpu(
    found: MemoryEstimate, runs: Sequence[MeasuredRun], again: Callable[[Settings], MemoryEstimate]
) -> MemoryEstimate:
    newest: dict[int, MeasuredRun] = {}
    for run in runs:
        if run.tensor_bytes:
            newest.setdefault(run.settings.per_device_train_batch_size, run)
    if not newest:
        return found
    ratios = tuple(
        (batch, run.tensor_bytes / again(run.settings).tensor_bytes(batch))
        for batch, run in sorted(newest.items())
        if run.tensor_bytes
    )
    last = next(iter(newest.values()))
    better = replace(
        found, ratios=ratios, overhead=_measured_overhead(found.overhead, last), doubt=CALIBRATED_UNCERTAINTY, less=0.0
    )
    words = f"{found.rests_on}, corrected by run {last.id}: ×{better.ratio(found.batch):.2f}"
    return replace(better, rests_on=words)


def _measured_overhead(overhead: RuntimeOverhead, run: MeasuredRun) -> RuntimeOverhead:
    """The share that the run's allocator held beyond its tensors, in place of the assumed one."""
    if not run.tensor_bytes or not run.reserved_bytes:
        return overhead
    share = max(0.0, run.reserved_bytes / run.tensor_bytes - 1)
    return replace(overhead, slack_share=share, slack_bytes=0.0)


def _calibrate_cpu(
    found: MemoryEstimate, runs: Sequence[MeasuredRun], again: Callable[[Settings], MemoryEstimate]
) -> MemoryEstimate:
    """On a CPU only the whole process is measured: what stands above the tensors is libraries, data and slack.

    What a limit counts beside the resident memory is not measured by a run and stays as it was.
    """
    run = next((run for run in runs if run.resident_bytes), None)
    if run is None or run.resident_bytes is None:
        return found
    tensors = again(run.settings).tensor_bytes(run.settings.per_device_train_batch_size)
    rest = run.resident_bytes - tensors
    if rest <= 0:
        return found
    words = f"{found.rests_on}, corrected by run {run.id}: {rest / 2**20:,.0f} MiB beside the tensors"
    context = max(0.0, rest - found.overhead.slack(tensors))
    overhead = replace(found.overhead, context_bytes=context, context_doubt_bytes=0.0)
    return replace(found, overhead=overhead, doubt=CALIBRATED_UNCERTAINTY, rests_on=words, less=0.0)


@dataclass(frozen=True, slots=True)
class MeasuredEstimate:
    """The peak at the micro batch asked for, and the largest batch; None where too few sizes were run to tell it."""

    estimate: MemoryEstimate
    largest: int | None = None


@dataclass(frozen=True, slots=True)
class UnmeasuredBatch:
    """Runs were measured, none at the micro batch asked for, and too few sizes to tell one from the others."""

    batch: int
    peak_bytes: int
    run: str


def estimate_from_runs(
    runs: Sequence[MeasuredRun], settings: Settings, device: Device, batch: int | None = None
) -> MeasuredEstimate | UnmeasuredBatch | None:
    """What runs (newest first) with these settings took, at `batch` or at that of the newest; None where none did.

    The allocator's peak, to which CUDA's context is added, or a CPU's largest resident set, to which is added what is
    reserved beside it where a limit counts that. Between sizes and beyond
    them, the model fitted to at least two sizes off the floor.
    """
    newest: dict[int, tuple[MeasuredRun, int]] = {}
    for run in runs:
        peak = _run_peak(run, device)
        if peak is not None and run.alike(settings):
            newest.setdefault(run.settings.per_device_train_batch_size, (run, peak))
    if not newest:
        return None
    first, (last, peak) = next(iter(newest.items()))
    batch = batch or first
    model = fit([PeakPoint(size, taken) for size, (_, taken) in newest.items()])
    largest = None if model is None else _largest_batch(model, device.capacity_bytes)
    if batch in newest:
        run, peak = newest[batch]
        return MeasuredEstimate(
            _estimate_from_peak(batch, peak, CALIBRATED_UNCERTAINTY, f"measured by run {run.id}", device), largest
        )
    if model is None:
        return UnmeasuredBatch(first, peak, last.id)
    expected = model.peak_bytes(batch)
    off = model.doubt_bytes + model.doubt_slope_bytes * max(0, batch - model.reach)
    doubt = max(CALIBRATED_UNCERTAINTY, off / expected)
    words = f"from {len(newest)} sizes measured, the last by run {last.id}"
    return MeasuredEstimate(_estimate_from_peak(batch, round(expected), doubt, words, device), largest)


def _run_peak(run: MeasuredRun, device: Device) -> int | None:
    if not device.on_gpu:
        return None if run.resident_bytes is None else run.resident_bytes + device.reserved_bytes
    held = run.reserved_bytes or run.tensor_bytes
    return None if held is None else held + device.context_bytes


def _largest_batch(model: PeakModel, capacity_bytes: int | None) -> int | None:
    return None if capacity_bytes is None else model.largest_batch(capacity_bytes * (1 - RESERVE_SHARE))


def _estimate_from_peak(batch: int, peak: int, doubt: float, words: str, device: Device) -> MemoryEstimate:
    """A peak of which the parts are not known."""
    whole = MemoryPhase("the run", 0.0, 0.0, 0.0, float(peak), 0.0)
    nothing = RuntimeOverhead(0.0, 0.0, 0.0, reserved_doubt_bytes=device.reserved_doubt_bytes)
    return MemoryEstimate(batch, (whole,), device.on_gpu, nothing, doubt, words, device.capacity_bytes)
