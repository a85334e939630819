"""The memory that changed settings lead to, of a GPU or, for a training on the CPU, of the host: the estimate,
corrected by what the run and earlier runs of the job measured.

Without an estimate for the job (a command), the run's own figures are scaled: what the allocator holds between steps
stays but for the optimizer's states, which follow from the number of parameters that the process trains; the rest
grows with the micro batch. Where not even that was measured, the share that grows is a guess, and its
bounds are all and nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from itertools import chain

from msgspec import Struct
from msgspec.structs import replace

from tuner_tui.advice.estimate import JobMemoryEstimator, limit_device_memory, limited_target
from tuner_tui.advice.findings.run_metrics import gpu_figures
from tuner_tui.advice.recommend.target import training_code_of
from tuner_tui.advice.situation import Situation
from tuner_tui.core.units import format_size
from tuner_tui.memory.calibration import (
    CALIBRATED_UNCERTAINTY,
    MEMORY_SETTINGS,
    MeasuredEstimate,
    MeasuredRun,
    estimate_from_runs,
)
from tuner_tui.memory.device import CONTEXT_BYTES, Device
from tuner_tui.memory.estimate import CLOSED_FORM_UNCERTAINTY, MemoryEstimate, PeakVerdict, fit_verdict
from tuner_tui.memory.fixed_memory import optimizer_bytes
from tuner_tui.memory.job_task import modelled_job
from tuner_tui.memory.training_code import BUILT_IN, TrainingCode
from tuner_tui.settings.distributed import Sharding
from tuner_tui.settings.job import COMMAND_TO_NAME, BuiltinJob, CommandJob
from tuner_tui.settings.model import Settings, Value

BATCH_FIELDS = frozenset({"per_device_train_batch_size", "per_device_eval_batch_size"})
MEMORY_FIELDS = BATCH_FIELDS | set(MEMORY_SETTINGS) - {"torch_compile"}
"""Settings that change the peak; torch.compile saves memory or leaves it (0.57 to 1.03, measured)."""
GROWING_SHARE = (7.8 - 7.0) / 7.0 / (48 / 32 - 1)
"""Share of the peak that grows with the micro batch, where nothing is known: 7.0 → 7.8 GB from 32 to 48 on the RTX 3070
of the field notes."""
MAX_GUESSED_GROWTH = 1.5
"""A larger step than this is not offered on a guess."""
GRADIENT_BYTES = 4
"""A gradient in fp32."""
CHECKPOINTING_SHARE = 0.6
"""Activations with gradient checkpointing relative to those without: 40 % less in the T4 notes, which is the least. A
deep model keeps a tenth."""


ANY_COMMAND = CommandJob(command=(COMMAND_TO_NAME,))
"""What ran where only its log is there: it may use every GPU."""


class ExpectedPeak(Struct, frozen=True):
    """The peak of a GPU's or the host's memory that a remedy leads to, its bounds, and what there is, in bytes."""

    peak_bytes: int
    low_bytes: int
    high_bytes: int
    capacity_bytes: int
    rests_on: str

    @property
    def verdict(self) -> PeakVerdict:
        """How the peak compares with the capacity."""
        return fit_verdict(self.peak_bytes, self.high_bytes, self.capacity_bytes)

    @property
    def sentence(self) -> str:
        """The peak with its uncertainty: `peak 18.2 of 24.0 GiB (17.7 to 18.8), by …`."""
        capacity = format_size(self.capacity_bytes)
        bounds = f"{format_size(self.low_bytes)} to {format_size(self.high_bytes)}"
        exact = self.low_bytes == self.high_bytes
        words = f"peak {format_size(self.peak_bytes)} of {capacity}" + ("" if exact else f" ({bounds})")
        doubt = {"fits": "", "tight": ": it may not fit", "too large": ": not enough by itself"}[self.verdict]
        return f"{words}{doubt}, {self.rests_on}"


class MeasuredPeak(Struct, frozen=True):
    """What one GPU held at most. `outside_bytes` is memory outside the allocator: context and other processes."""

    used_bytes: int
    capacity_bytes: int
    outside_bytes: int
    resident_bytes: int | None
    """What the allocator holds between steps, scaled like the peak; None if not measured."""


def expected_peak(situation: Situation, change: Mapping[str, Value]) -> ExpectedPeak | None:
    """The peak after `change`; None where it is not known, or the change does not affect that memory.

    The host's memory is predicted for a training that ran out of it only: while it runs, the GPU's is what counts.
    """
    settings = situation.settings
    if settings is None or not change.keys() & MEMORY_FIELDS:
        return None
    if situation.has_gpu is False and not situation.ran_out_of_memory:
        return None
    changed = settings.changed(**change)
    measured = measured_peak(situation)
    peak = _by_earlier_runs(situation, settings, changed) or _by_estimate(situation, settings, changed, measured)
    return peak or (None if measured is None else _by_scaling(situation, settings, changed, measured))


def _by_earlier_runs(situation: Situation, settings: Settings, changed: Settings) -> ExpectedPeak | None:
    """The peak that earlier runs of the same command imply, as the memory bar of the screen shows it.

    Where they did not accumulate and the change does, the gradients are added that then stay between micro batches.
    """
    device = training_device_of(situation)
    if not isinstance(situation.job, CommandJob) or device is None or device.capacity_bytes is None:
        return None
    as_before = changed.changed(gradient_accumulation_steps=settings.gradient_accumulation_steps)
    gradients = GRADIENT_BYTES * (situation.state.trainable_parameters or 0)
    for comparable, extra in ((changed, 0), (as_before, gradients)):
        measured = estimate_from_runs(situation.measured, comparable, device, changed.per_device_train_batch_size)
        if isinstance(measured, MeasuredEstimate):
            peak = measured.estimate
            return _around(peak.total_bytes + extra, peak.uncertainty, device.capacity_bytes, peak.rests_on)
    return None


def measured_peak(situation: Situation) -> MeasuredPeak | None:
    """The measured peak of the fullest GPU of the training; None without a sample, or if memory ran out."""
    if situation.ran_out_of_memory or situation.has_gpu is False:
        return None
    start = situation.state.training_since_t
    window = tuple(sample for sample in situation.samples if start is None or sample.time_s >= start)
    full = max(chain(*gpu_figures(situation, window)), key=lambda gpu: gpu.memory_used_bytes or 0, default=None)
    if full is None or not full.memory_used_bytes or not full.memory_total_bytes:
        return None
    counters = situation.state.counters
    peaks = [(c.reserved_peak_bytes, c.allocated_peak_bytes) for c in counters]
    reserved, allocated = max(((r, a) for r, a in peaks if r and a), default=(None, None))
    used, capacity = full.memory_used_bytes, full.memory_total_bytes
    if reserved is None or allocated is None:
        return MeasuredPeak(used, capacity, min(CONTEXT_BYTES, used), None)
    held = [c.allocated_bytes for rank in situation.state.ranks.values() for c in rank.recent if c.allocated_bytes]
    resident = round(min(held) * reserved / allocated) if held else None
    used = max(used, reserved)
    return MeasuredPeak(used, capacity, used - reserved, resident)


def _by_estimate(
    situation: Situation, settings: Settings, changed: Settings, measured: MeasuredPeak | None
) -> ExpectedPeak | None:
    job, device = modelled_job(situation.job), training_device_of(situation)
    if device is not None and measured is not None:
        device = replace(device, capacity_bytes=measured.capacity_bytes)
    if job is None or device is None or device.capacity_bytes is None:
        return None
    runs = situation.measured if isinstance(situation.job, BuiltinJob) else ()
    code = BUILT_IN if situation.job is None else training_code_of(situation.job, situation.interpreter)
    sharding, replicas = situation.sharding, situation.replicas
    if sharding is not None and not sharding.is_modelled(replicas):
        return None
    rest = runs, code, sharding, replicas if sharding is not None else 1
    before, after = (_estimated(job, device, values, *rest) for values in (settings, changed))
    if before is None or after is None:
        return None
    capacity = device.capacity_bytes
    if measured is None:
        # The present settings took more than there is, whatever the estimate says of them.
        factor = max(1.0, capacity / before.total_bytes) if situation.ran_out_of_memory else 1.0
        words = "estimated, raised above what did not fit" if factor > 1 else "by the estimate"
        return _around(after.total_bytes * factor, after.uncertainty, capacity, words)
    inside = measured.used_bytes - measured.outside_bytes
    peak = measured.outside_bytes + inside * after.tensor_bytes(after.batch) / before.tensor_bytes(before.batch)
    same = all(getattr(settings, name) == getattr(changed, name) for name in MEMORY_FIELDS - BATCH_FIELDS)
    uncertainty = CALIBRATED_UNCERTAINTY if same else min(CLOSED_FORM_UNCERTAINTY, after.uncertainty)
    return _around(peak, uncertainty, capacity, "by the estimate, corrected by this run")


# A ladder asks for many batches, and a live run asks again with each sample.
@lru_cache(maxsize=256)
def _estimated(
    job: BuiltinJob,
    device: Device,
    settings: Settings,
    runs: tuple[MeasuredRun, ...],
    code: TrainingCode,
    sharding: Sharding | None,
    processes: int,
) -> MemoryEstimate | None:
    return JobMemoryEstimator(job, device, processes, runs=runs, code=code, sharding=sharding).closed_form(settings)


def training_device_of(situation: Situation) -> Device | None:
    """The device of one process: that of a new training of the job, or the host with its limit; None if unknown."""
    inventory, limit = situation.inventory, situation.memory_limit_bytes
    if inventory is None:
        return None
    if situation.has_gpu is False:
        host = Device(False, None, inventory.memory.usable_bytes // situation.processes)
        return host if limit is None else limit_device_memory(host, limit, situation.import_footprint)
    if situation.is_alive:  # what its GPUs hold is its own
        inventory = replace(inventory, gpus=tuple(replace(gpu, memory_used_bytes=None) for gpu in inventory.gpus))
    target = limited_target(inventory, situation.interpreter, situation.job or ANY_COMMAND, limit)
    device = target.trained_with(situation.settings or Settings()).device
    return device if device.on_gpu else None


def _by_scaling(
    situation: Situation, settings: Settings, changed: Settings, measured: MeasuredPeak
) -> ExpectedPeak | None:
    states = _state_change(situation, settings, changed)
    factor = _activation_factor(settings, changed)
    if factor is None or states is None or not situation.is_known("per_device_train_batch_size"):
        return None
    inside = measured.used_bytes - measured.outside_bytes
    resident = measured.resident_bytes

    def peak(growing: float) -> int:
        return round(measured.outside_bytes + states + inside * (1 + growing * (factor - 1)))

    if resident is not None and inside > 0:
        freed = max(0.0, 1 - resident / inside)  # between steps
        return _around(peak(freed), CALIBRATED_UNCERTAINTY, measured.capacity_bytes, "scaled from this run's memory")
    low, high = sorted((measured.used_bytes, peak(1.0)))
    guess = peak(GROWING_SHARE) if factor <= MAX_GUESSED_GROWTH else high
    words = "scaled from the GPU's memory; the share that grows with the batch is unknown"
    return ExpectedPeak(guess, low, high, measured.capacity_bytes, words)


def _state_change(situation: Situation, settings: Settings, changed: Settings) -> float | None:
    """Bytes that the optimizer's states take more after the change, by the parameters that the process trains.

    None if it changes the optimizer and their number, or the optimizer now, is not known.
    """
    if settings.optim == changed.optim:
        return 0.0
    trained = situation.state.trainable_parameters
    if trained is None or not situation.is_known("optim"):
        return None
    before, after = (optimizer_bytes(values.optim, True, GRADIENT_BYTES).kept for values in (settings, changed))
    return trained * (after - before)


def _activation_factor(settings: Settings, changed: Settings) -> float | None:
    """Activations after the change relative to those before; None where no bound is known."""
    scaled = {"per_device_train_batch_size", "max_length", "gradient_checkpointing", "optim"}
    if any(getattr(settings, name) != getattr(changed, name) for name in MEMORY_FIELDS - scaled):
        return None
    factor = changed.per_device_train_batch_size / settings.per_device_train_batch_size
    factor *= changed.max_length / settings.max_length
    if settings.gradient_checkpointing and not changed.gradient_checkpointing:
        return None  # ten times as much in a deep model: no bound is known without its shape
    return factor * (CHECKPOINTING_SHARE if changed.gradient_checkpointing != settings.gradient_checkpointing else 1)


def _around(peak: float, uncertainty: float, capacity: int, words: str) -> ExpectedPeak:
    low, high = round(peak * (1 - uncertainty)), round(peak * (1 + uncertainty))
    return ExpectedPeak(round(peak), low, high, capacity, words)
