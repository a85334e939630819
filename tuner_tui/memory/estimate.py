"""The memory that a training will take, before it has run. Quick enough to be computed at every keystroke.

`estimate` computes the parts of the peak in the phase of a step that takes most, from model sizes and settings.
All sizes are of one process and its one device.
"""

from __future__ import annotations

from bisect import bisect_right
from functools import cached_property
from typing import Literal, NamedTuple

from msgspec import Struct

from tuner_tui.inspection.peak_memory import MemoryBreakdown, MemoryPart
from tuner_tui.memory.activation_memory import FOUR_BITS
from tuner_tui.memory.closed_form import MemoryPhase, memory_phases
from tuner_tui.memory.device import Device, RuntimeOverhead, interpolate, runtime_overhead
from tuner_tui.memory.fit import PeakModel
from tuner_tui.memory.model_shape import ModelShape
from tuner_tui.memory.parameter_counts import count_parameters
from tuner_tui.memory.training_code import BUILT_IN, TrainingCode, training_code
from tuner_tui.settings.distributed import Sharding
from tuner_tui.settings.model import Settings

RESERVE_SHARE = 0.05
"""Share of the capacity kept free on top of the uncertainty, as fragmentation grows over a long run."""
CLOSED_FORM_UNCERTAINTY = BUILT_IN.uncertainty
NEAREST_FAMILY_UNCERTAINTY = 0.40
"""For an architecture estimated by the nearest family: the worst of ten that were measured was 36 % off, enlarged by a
tenth; of nine others none was more than 22 % off."""
SIZE_ONLY_UNCERTAINTY = 0.30
"""Where only the number of parameters is known; judgement."""
DATA_PARALLEL_UNCERTAINTY = 0.25
"""Where one process splits a batch over several GPUs (DataParallel): the extra on the first was not measured."""
SHARDED_UNCERTAINTY = 0.27
"""Where ZeRO or FSDP divide the state: by the peaks in tests/memory/published_peaks.yaml."""
COMPILE_SAVING = 0.45
"""Share that torch.compile may save, as it keeps less for backward: on a CPU nine compiled trainings took 0.57 to 1.03
of the plain ones."""
LARGEST_BATCH = 65_536

PeakVerdict = Literal["fits", "tight", "too large"]
FitVerdict = PeakVerdict | Literal["unknown"]


def fit_verdict(peak_bytes: float, high_bytes: float, capacity_bytes: float) -> PeakVerdict:
    """`fits` if the upper bound leaves the reserve free, `too large` if the peak itself does not fit, else `tight`."""
    if high_bytes <= capacity_bytes * (1 - RESERVE_SHARE):
        return "fits"
    return "tight" if peak_bytes <= capacity_bytes else "too large"


class RanOut(NamedTuple):
    """The run that ran out of this memory with comparable settings, and its micro batch."""

    run: str
    batch: int

    @property
    def sentence(self) -> str:
        """Return `r002 ran out of memory with micro batch 16`."""
        return f"{self.run} ran out of memory with micro batch {self.batch:,}"


class MemoryParts(Struct, frozen=True):
    """The parts of the peak in bytes. Activations include the temporary tensors of the phase."""

    weights: int
    gradients: int
    optimizer: int
    activations: int
    context: int
    slack: int

    @property
    def total(self) -> int:
        return self.weights + self.gradients + self.optimizer + self.activations + self.context + self.slack


class MemoryEstimate(Struct, frozen=True, dict=True):
    """The memory that one process takes of its device at `batch`, the micro batch of the settings.

    Each of `phases` is a straight line in the batch; the highest one at `batch` sets the peak. `uncertainty` is the
    relative error of the total, in both directions, without that of the overhead; `possible_saving` is a larger one
    downwards. `rests_on` is the basis of the figure as text. `ratios` has, by batch, the measured tensors of earlier
    runs relative to their estimates. `capacity_bytes` and `samples`, the training samples of this process, are None
    where unknown. `ran_out`, if any, refutes the figure for its micro batch and larger ones.
    """

    batch: int
    phases: tuple[MemoryPhase, ...]
    on_gpu: bool
    overhead: RuntimeOverhead
    uncertainty: float
    rests_on: str
    capacity_bytes: int | None = None
    ratios: tuple[tuple[int, float], ...] = ()
    samples: int | None = None
    possible_saving: float = 0.0
    ran_out: RanOut | None = None

    @property
    def refuted_by(self) -> RanOut | None:
        """The run that ran out of memory with this micro batch or a smaller one."""
        return self.ran_out if self.ran_out is not None and self.ran_out.batch <= self.batch else None

    @property
    def peak_phase(self) -> str:
        """The name of the phase that sets the peak: forward and backward, optimizer step, …"""
        return self.highest_phase(self.batch).name

    def highest_phase(self, batch: int) -> MemoryPhase:
        """The phase that sets the peak at another micro batch."""
        return max(self.phases, key=lambda phase: phase.bytes_at(batch))

    @cached_property
    def parts(self) -> MemoryParts:
        top, ratio = self.highest_phase(self.batch), self.ratio(self.batch)
        tensors = top.bytes_at(self.batch) * ratio
        fixed = top.weights + top.gradients + top.optimizer
        return MemoryParts(
            weights=round(top.weights),
            gradients=round(top.gradients),
            optimizer=round(top.optimizer),
            activations=max(0, round(tensors - fixed)),
            context=round(self.overhead.context_bytes + self.overhead.reserved_bytes),
            slack=round(self.overhead.slack(tensors, self.batch)),
        )

    @property
    def breakdown(self) -> MemoryBreakdown:
        """The tensors at the peak by kind, as a trace has them by module."""
        kinds = {"weights": "weights", "gradients": "gradients", "optimizer": "optimizer states"}
        sizes = [(kind, getattr(self.parts, name)) for name, kind in {**kinds, "activations": "activations"}.items()]
        return MemoryBreakdown(self.peak_phase, tuple(MemoryPart("", kind, "", size) for kind, size in sizes))

    @cached_property
    def total_bytes(self) -> int:
        """The peak: everything that the process takes of its device; at least the capacity where that ran out."""
        least = (self.capacity_bytes or 0) if self.refuted_by else 0
        return max(least, round(self.peak_bytes(self.batch)))

    @property
    def uncertainty_bytes(self) -> int:
        """The uncertainty of the peak in bytes, in both directions."""
        return round(self.total_bytes * self.uncertainty + self.overhead.uncertainty_bytes)

    @property
    def low_bytes(self) -> int:
        return self.total_bytes - max(self.uncertainty_bytes, round(self.total_bytes * self.possible_saving))

    @property
    def high_bytes(self) -> int:
        return self.total_bytes + self.uncertainty_bytes

    @property
    def verdict(self) -> FitVerdict:
        """How the expected peak compares with the capacity. A run that ran out of memory counts for more."""
        if self.refuted_by is not None:
            return "too large"
        if self.capacity_bytes is None:
            return "unknown"
        return fit_verdict(self.total_bytes, self.high_bytes, self.capacity_bytes)

    def tensor_bytes(self, batch: int) -> float:
        """The peak of all tensors at another micro batch, which torch calls allocated memory."""
        return self.highest_phase(batch).bytes_at(batch) * self.ratio(batch)

    def peak_bytes(self, batch: int) -> float:
        """The peak at another micro batch, with context and allocator."""
        return self._whole(self.tensor_bytes(batch), batch)

    def ratio(self, batch: int) -> float:
        """Measured tensors relative to estimated ones, interpolated between runs; 1 without runs.

        A run whose peak is set by another phase than at this batch can raise the estimate and never lowers it.
        """
        # The ratio is the error of one line of the closed form. That of another line says nothing sure: it is kept
        # where it makes the estimate larger, as a batch that is too large costs more than one that is too small.
        phase = self.highest_phase(batch).name
        ratios = [
            (size, ratio if self.highest_phase(size).name == phase else max(1.0, ratio)) for size, ratio in self.ratios
        ]
        return interpolate(ratios, batch) if ratios else 1.0

    @property
    def peak(self) -> PeakModel:
        """The estimate as `max(floor, base + slope·b)`.

        The line goes through this batch and the largest that fits (at least twice this one). The peak is convex in the
        batch, so the line is exact at both and never too low between them.
        """
        far = max(2 * self.batch, self.largest_batch() or 0)
        here, there = self._sloped(self.batch), self._sloped(far)
        slope = (there - here) / (far - self.batch)
        floor = max((line.base_bytes for line in self.phases if line.sample == 0), default=0.0)
        return PeakModel(here - slope * self.batch, slope, self._whole(floor * self.ratio(self.batch), self.batch))

    def _sloped(self, batch: int) -> float:
        return self._whole(max(line.bytes_at(batch) for line in self.phases if line.sample) * self.ratio(batch), batch)

    def _whole(self, tensors: float, batch: int) -> float:
        outside = self.overhead.context_bytes + self.overhead.reserved_bytes
        return tensors + outside + self.overhead.slack(tensors, batch)

    def largest_batch(self, reserve: float = RESERVE_SHARE) -> int | None:
        """The largest micro batch that fits at the upper end of the uncertainty with `reserve` left free.

        At most the number of samples; None where the capacity is unknown.
        """
        if self.capacity_bytes is None:
            return None
        limit = (self.capacity_bytes * (1 - reserve) - self.overhead.uncertainty_bytes) / (1 + self.uncertainty)
        most = LARGEST_BATCH if self.samples is None else min(LARGEST_BATCH, self.samples)
        most = most if self.ran_out is None else min(most, self.ran_out.batch - 1)
        return bisect_right(range(1, most + 1), limit, key=self.peak_bytes)  # the peak never falls with the batch


def estimate(
    shape: ModelShape,
    settings: Settings,
    device: Device,
    processes: int = 1,
    code: TrainingCode = BUILT_IN,
    sharding: Sharding | None = None,
) -> MemoryEstimate:
    """The estimate by the closed form of what `code` trains; `processes` together, each on its own device.

    Each has a copy of the training's state (DDP), or a part of it by `sharding`, whose stage must be known.
    """
    phases = memory_phases(shape, settings, device, processes, code=code, sharding=sharding)
    uncertainty, unknown = code.uncertainty, code.unknown
    if sharding is not None:
        uncertainty = max(SHARDED_UNCERTAINTY, uncertainty)
        words = f"by formula, divided among {processes} processes by {sharding.name}"
    elif shape.size_only:
        uncertainty = SIZE_ONLY_UNCERTAINTY
        words = f"formula for a model of {count_parameters(shape, Settings()).total / 1e9:.2g} billion parameters"
    elif shape.approximates:
        uncertainty = NEAREST_FAMILY_UNCERTAINTY
        words = f"formula of {shape.family} (used for {shape.approximates})"
    else:
        if code.keeps_inputs and settings.quantization in FOUR_BITS:
            older = training_code("older bitsandbytes")
            uncertainty, unknown = max(uncertainty, older.uncertainty), unknown or older.unknown
        words = f"by formula, not knowing {unknown}" if unknown else "by formula"
    return estimate_from_phases(phases, settings, device, uncertainty, words)


def estimate_from_phases(
    phases: tuple[MemoryPhase, ...], settings: Settings, device: Device, uncertainty: float, rests_on: str
) -> MemoryEstimate:
    """The estimate made by the phases of a step, at the micro batch of `settings`."""
    saving = COMPILE_SAVING if settings.torch_compile else 0.0
    if device.gpu_count > 1:
        uncertainty = max(uncertainty, DATA_PARALLEL_UNCERTAINTY)
        rests_on = f"{rests_on}, first of {device.gpu_count} GPUs with DataParallel"
    if saving:
        rests_on += ", savings of torch.compile not included"
    return MemoryEstimate(
        settings.per_device_train_batch_size,
        phases,
        device.on_gpu,
        runtime_overhead(device),
        uncertainty,
        rests_on,
        device.capacity_bytes,
        possible_saving=saving,
    )
