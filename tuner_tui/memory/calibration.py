"""Estimates calibrated by runs measured on this machine, and estimates that rest on such runs alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from tuner_tui.memory.closed_form import MemoryPhase
from tuner_tui.memory.device import Device, RuntimeOverhead, runtime_overhead
from tuner_tui.memory.estimate import RESERVE_SHARE, MemoryEstimate, RanOut
from tuner_tui.memory.fit import PeakPoint, fit
from tuner_tui.settings.model import Settings

CALIBRATED_UNCERTAINTY = 0.03
"""Uncertainty between two runs whose settings differ only in the batch; judgement."""
CUDA_SHARE = 0.05
"""Of a GPU's memory CUDA's messages name up to this share less than the driver, which keeps it for itself."""
MEMORY_SETTINGS = (
    "precision", "optim", "gradient_checkpointing", "attn_implementation", "torch_compile", "max_length",
    "peft_method", "lora_r", "weights_dtype", "quantization", "bnb_4bit_use_double_quant",
)  # fmt: skip
"""Settings in which a run must agree to be comparable: all that take memory, except the batch."""


class MeasuredRun(Struct, frozen=True):
    """The memory of one run. On a GPU the peaks of tensors and allocator, on a CPU the largest resident set.

    `ran_out` names the memory that it ran out of, that of its device or of the host; `limit_bytes` is what there was at
    most for it: the limit that was set, or the memory of the GPU that ran out. The micro batch of `settings` is 0 where
    the command has one of its own that was not observed. On a CPU the resident set is the mean of the `processes`.
    """

    id: str
    settings: Settings
    tensor_bytes: int | None = None
    reserved_bytes: int | None = None
    resident_bytes: int | None = None
    ran_out: Literal["gpu", "host"] | None = None
    limit_bytes: int | None = None
    processes: int = 1

    def is_comparable(self, settings: Settings) -> bool:
        """True when the settings differ at most in the batch and in what takes no memory."""
        batches = self.settings.gradient_accumulation_steps > 1, settings.gradient_accumulation_steps > 1
        same = all(getattr(self.settings, name) == getattr(settings, name) for name in MEMORY_SETTINGS)
        return same and batches[0] == batches[1]


def calibrate(
    initial: MemoryEstimate,
    settings: Settings,
    on_gpu: bool,
    runs: Sequence[MeasuredRun],
    estimate: Callable[[Settings], MemoryEstimate],
) -> MemoryEstimate:
    """The estimate `initial`, calibrated by those of `runs` (newest first) that are comparable; else unchanged.

    `estimate` returns the uncalibrated estimate for the settings of a run.
    """
    # On a GPU the allocator's counters give the tensors alone: their ratio to the estimate, by batch, carries over to
    # other batches. On a CPU only the whole process is known: what is not tensors is taken from the run instead.
    comparable = [run for run in runs if run.is_comparable(settings) and run.settings.per_device_train_batch_size]
    calibrated = (_calibrate_gpu if on_gpu else _calibrate_cpu)(initial, comparable, estimate)
    return _with_ran_out(calibrated, comparable)


def _with_ran_out(estimate: MemoryEstimate, runs: Sequence[MeasuredRun]) -> MemoryEstimate:
    """The estimate with the smallest micro batch of `runs` (comparable, newest first) that ran out of this memory.

    A newer run that trained with as much has refuted it, and a run with a tighter limit or a smaller GPU says nothing.
    """
    least = (estimate.capacity_bytes or 0) * (1 - CUDA_SHARE)
    device, trained = "gpu" if estimate.on_gpu else "host", 0
    smallest: RanOut | None = None
    for run in runs:
        batch, limit = run.settings.per_device_train_batch_size, run.limit_bytes
        if run.ran_out is None:
            trained = max(trained, batch)
        elif run.ran_out == device and batch > trained and (limit is None or limit >= least):
            smallest = RanOut(run.id, batch) if smallest is None or batch < smallest.batch else smallest
    if smallest is None:
        return estimate
    refuted = replace(estimate, ran_out=smallest)
    return replace(refuted, rests_on=smallest.sentence) if refuted.refuted_by else refuted


def _calibrate_gpu(
    initial: MemoryEstimate, runs: Sequence[MeasuredRun], estimate: Callable[[Settings], MemoryEstimate]
) -> MemoryEstimate:
    newest: dict[int, MeasuredRun] = {}
    for run in runs:
        if run.tensor_bytes:
            newest.setdefault(run.settings.per_device_train_batch_size, run)
    if not newest:
        return initial
    ratios = tuple(
        (batch, run.tensor_bytes / estimate(run.settings).tensor_bytes(batch))
        for batch, run in sorted(newest.items())
        if run.tensor_bytes
    )
    last, overhead = next(iter(newest.values())), initial.overhead
    if last.tensor_bytes and last.reserved_bytes:
        # The share that the run's allocator held beyond its tensors, instead of the assumed one.
        share = max(0.0, last.reserved_bytes / last.tensor_bytes - 1)
        overhead = replace(overhead, slack_share=share, slack_bytes=0.0, traced_slack=())
    better = replace(initial, ratios=ratios, overhead=overhead, uncertainty=CALIBRATED_UNCERTAINTY, possible_saving=0.0)
    words = f"{initial.rests_on}, corrected by run {last.id}: ×{better.ratio(initial.batch):.2f}"
    return replace(better, rests_on=words)


def _calibrate_cpu(
    initial: MemoryEstimate, runs: Sequence[MeasuredRun], estimate: Callable[[Settings], MemoryEstimate]
) -> MemoryEstimate:
    """On a CPU a run measures the whole process only: the rest above the tensors is libraries, data and slack.

    Reserved memory, which a limit also counts, is not measured by a run and stays as estimated.
    """
    run = next((run for run in runs if run.resident_bytes), None)
    if run is None or run.resident_bytes is None:
        return initial
    tensors = estimate(run.settings).tensor_bytes(run.settings.per_device_train_batch_size)
    rest = run.resident_bytes - tensors
    if rest <= 0:
        return initial
    words = f"{initial.rests_on}, corrected by run {run.id}: {rest / 2**20:,.0f} MiB outside of tensors"
    context = max(0.0, rest - initial.overhead.slack(tensors, run.settings.per_device_train_batch_size))
    overhead = replace(initial.overhead, context_bytes=context, context_uncertainty_bytes=0.0)
    return replace(initial, overhead=overhead, uncertainty=CALIBRATED_UNCERTAINTY, rests_on=words, possible_saving=0.0)


class MeasuredEstimate(Struct, frozen=True):
    """The peak at the requested micro batch, and the largest batch; None where too few sizes were run."""

    estimate: MemoryEstimate
    largest: int | None = None


class UnmeasuredBatch(Struct, frozen=True):
    """Runs were measured, but not at the requested micro batch, and at too few sizes to interpolate."""

    batch: int
    peak_bytes: int
    run: str


def estimate_from_runs(
    runs: Sequence[MeasuredRun], settings: Settings, device: Device, batch: int | None = None
) -> MeasuredEstimate | UnmeasuredBatch | None:
    """The peak of `runs` (newest first) with these settings, at `batch` or the newest run's; None without runs.

    For commands of which nothing else is known; a batch of 0 is their own. On a GPU it is the allocator's peak and
    CUDA's context, on a CPU the largest resident set, with reserved memory where a limit counts it. Sizes that were not
    run come from the model fitted to at least two sizes above the floor.
    """
    comparable = [run for run in runs if run.is_comparable(settings)]
    overhead = runtime_overhead(device)
    newest: dict[int, tuple[MeasuredRun, int]] = {}
    for run in comparable:
        held = (run.reserved_bytes or run.tensor_bytes) if device.on_gpu else run.resident_bytes
        if held is not None and not run.ran_out:
            peak = held + round(overhead.context_bytes if device.on_gpu else overhead.reserved_bytes)
            newest.setdefault(run.settings.per_device_train_batch_size, (run, peak))
    last_batch = comparable[0].settings.per_device_train_batch_size if comparable else None
    refuted = _with_ran_out(_estimate_from_peak(batch or last_batch or 1, 0, 0.0, "", device), comparable)
    if refuted.refuted_by is not None:
        below = [size for size in newest if size < refuted.refuted_by.batch]
        return MeasuredEstimate(refuted, max(below, default=None))
    if not newest:
        return None
    sizes = [size for size in newest if size]
    batch = next(iter(newest)) if batch is None else batch
    model = fit([PeakPoint(size, newest[size][1]) for size in sizes])
    limit = None if device.capacity_bytes is None else device.capacity_bytes * (1 - RESERVE_SHARE)
    largest = None if model is None or limit is None else model.largest_batch(limit)
    if largest is not None and refuted.ran_out is not None:
        largest = min(largest, refuted.ran_out.batch - 1)
    if batch in newest:
        run, peak = newest[batch]
        return MeasuredEstimate(
            _estimate_from_peak(batch, peak, CALIBRATED_UNCERTAINTY, f"measured by run {run.id}", device), largest
        )
    if not sizes:
        return None
    last, peak = newest[sizes[0]]
    if model is None:
        return UnmeasuredBatch(sizes[0], peak, last.id)
    expected = model.peak_bytes(batch)
    off = model.uncertainty_bytes + model.slope_uncertainty_bytes * max(0, batch - model.largest_measured)
    uncertainty = max(CALIBRATED_UNCERTAINTY, off / expected)
    words = f"fitted to {len(sizes)} measured sizes, the newest from run {last.id}"
    return MeasuredEstimate(_estimate_from_peak(batch, round(expected), uncertainty, words, device), largest)


def _estimate_from_peak(batch: int, peak: int, uncertainty: float, words: str, device: Device) -> MemoryEstimate:
    whole = MemoryPhase("the run", 0.0, 0.0, 0.0, float(peak), 0.0)
    unknown = RuntimeOverhead(
        0.0, 0.0, 0.0, reserved_uncertainty_bytes=runtime_overhead(device).reserved_uncertainty_bytes
    )
    return MemoryEstimate(batch, (whole,), device.on_gpu, unknown, uncertainty, words, device.capacity_bytes)
