"""The memory a training will take, before it has run: a closed form, quick enough for every keystroke.

`estimate` goes from a model's sizes and the settings to bytes, part by part, at the moment of the step that takes most.
All sizes are of one process and its one device.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from tuner_tui.memory.closed_form import MemoryPhase, memory_phases
from tuner_tui.memory.device import Device, RuntimeOverhead, runtime_overhead
from tuner_tui.memory.fit import PeakModel
from tuner_tui.memory.model_shape import ModelShape
from tuner_tui.settings.model import Settings

RESERVE_SHARE = 0.05
"""Share of the card left free beside the estimate's own doubt: fragmentation grows over a long run."""
CLOSED_FORM_UNCERTAINTY = 0.10
NEAREST_FAMILY_UNCERTAINTY = 0.50
"""Of an architecture that was given the family nearest to it: on nine that were measured it was up to a third off."""
DATA_PARALLEL_UNCERTAINTY = 0.25
"""Where one process spreads a batch over several cards: what the first of them takes besides was not measured."""
COMPILE_SAVING = 0.45
"""By how much a compiled training may take less than estimated: the compiler keeps less for backward. On a CPU nine
compiled trainings took 0.57 to 1.03 of the plain ones."""
LARGEST_BATCH = 65_536

FitVerdict = Literal["fits", "tight", "too large", "unknown"]


@dataclass(frozen=True, slots=True)
class MemoryParts:
    """The peak, part by part, in bytes. Activations include what the moment takes only for itself."""

    weights: int
    gradients: int
    optimizer: int
    activations: int
    context: int
    slack: int

    @property
    def total(self) -> int:
        """All parts together."""
        return self.weights + self.gradients + self.optimizer + self.activations + self.context + self.slack


@dataclass(frozen=True, slots=True)
class MemoryEstimate:
    """What one process takes of its device at `batch`, the micro batch of the settings.

    `lines` are the moments of a step; the highest at `batch` sets the peak. `doubt` is the share by which the total may
    be off, up or down, beside the doubt of the overhead. `rests_on` says in words where the figure comes from. `ratios`
    are, by batch, how much more the tensors of earlier runs took than estimated. `capacity_bytes` is None where it is
    not known, and so is `samples`, how many samples this process trains on. `less` is the share by which the total may
    be less where that is more than the doubt.
    """

    batch: int
    lines: tuple[MemoryPhase, ...]
    on_gpu: bool
    overhead: RuntimeOverhead
    doubt: float
    rests_on: str
    capacity_bytes: int | None = None
    ratios: tuple[tuple[int, float], ...] = ()
    samples: int | None = None
    less: float = 0.0

    @property
    def top(self) -> MemoryPhase:
        """The moment that sets the peak."""
        return self._top(self.batch)

    def _top(self, batch: int) -> MemoryPhase:
        return max(self.lines, key=lambda line: line.bytes_at(batch))

    @property
    def moment(self) -> str:
        """Its name: forward and backward, optimizer step, evaluation, …"""
        return self.top.name

    @property
    def parts(self) -> MemoryParts:
        """The peak, part by part."""
        top, ratio = self.top, self.ratio(self.batch)
        tensors = top.bytes_at(self.batch) * ratio
        fixed = top.weights + top.gradients + top.optimizer
        return MemoryParts(
            weights=round(top.weights),
            gradients=round(top.gradients),
            optimizer=round(top.optimizer),
            activations=max(0, round(tensors - fixed)),
            context=round(self.overhead.context_bytes + self.overhead.reserved_bytes),
            slack=round(self.overhead.slack(tensors)),
        )

    @property
    def total_bytes(self) -> int:
        """The peak: everything the process takes of its device."""
        return round(self.peak_bytes(self.batch))

    @property
    def doubt_bytes(self) -> int:
        """By how much the peak may be off, up or down."""
        return round(self.total_bytes * self.doubt + self.overhead.doubt_bytes)

    @property
    def low_bytes(self) -> int:
        """The least it may be, doubt counted."""
        return self.total_bytes - max(self.doubt_bytes, round(self.total_bytes * self.less))

    @property
    def high_bytes(self) -> int:
        """The most it may be, doubt counted."""
        return self.total_bytes + self.doubt_bytes

    @property
    def verdict(self) -> FitVerdict:
        """Against the capacity: fits with doubt and reserve; tight where doubt or reserve decide; too large."""
        if self.capacity_bytes is None:
            return "unknown"
        if self.high_bytes <= self.capacity_bytes * (1 - RESERVE_SHARE):
            return "fits"
        return "tight" if self.low_bytes <= self.capacity_bytes else "too large"

    def tensor_bytes(self, batch: int) -> float:
        """The peak of all tensors at another micro batch: what torch calls allocated."""
        return self._top(batch).bytes_at(batch) * self.ratio(batch)

    def peak_bytes(self, batch: int) -> float:
        """The peak at another micro batch, context and allocator included."""
        return self._whole(self.tensor_bytes(batch))

    def ratio(self, batch: int) -> float:
        """How much more than estimated the tensors take, by the runs nearest in batch; 1 where there was none.

        A run that peaked at another moment of the step can raise the estimate and never lowers it.
        """
        moment = self._top(batch).name
        known = [(b, r if self._top(b).name == moment else max(1.0, r)) for b, r in self.ratios]
        if not known:
            return 1.0
        below = [one for one in known if one[0] <= batch]
        above = [one for one in known if one[0] > batch]
        if not below or not above:
            return below[-1][1] if below else above[0][1]
        (low, first), (high, last) = below[-1], above[0]
        return first + (last - first) * (batch - low) / (high - low)

    @property
    def peak(self) -> PeakModel:
        """The same as `max(floor, base + slope·b)`, exact at this batch and at the largest that fits, never too small
        between them; where none larger is known to fit, at twice this one.
        """
        far = max(2 * self.batch, self.largest_batch() or 0)
        here, there = self._sloped(self.batch), self._sloped(far)
        slope = (there - here) / (far - self.batch)
        floor = max((line.base_bytes for line in self.lines if line.sample == 0), default=0.0)
        return PeakModel(here - slope * self.batch, slope, self._whole(floor * self.ratio(self.batch)))

    def _sloped(self, batch: int) -> float:
        return self._whole(max(line.bytes_at(batch) for line in self.lines if line.sample) * self.ratio(batch))

    def _whole(self, tensors: float) -> float:
        outside = self.overhead.context_bytes + self.overhead.reserved_bytes
        return tensors + outside + self.overhead.slack(tensors)

    def largest_batch(self, reserve: float = RESERVE_SHARE) -> int | None:
        """The largest micro batch that fits with `reserve` left free and the doubt against it; None if unknown.

        Never more than there are samples.
        """
        if self.capacity_bytes is None:
            return None
        limit = (self.capacity_bytes * (1 - reserve) - self.overhead.doubt_bytes) / (1 + self.doubt)
        low, high = 0, 1
        while high <= LARGEST_BATCH and self.peak_bytes(high) <= limit:
            low, high = high, 2 * high
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if self.peak_bytes(middle) <= limit else (low, middle)
        return low if self.samples is None else min(low, self.samples)


def estimate(shape: ModelShape, settings: Settings, device: Device, processes: int = 1) -> MemoryEstimate:
    """The closed form. `processes` train together, each with a device of its own (DistributedDataParallel)."""
    lines = memory_phases(shape, settings, device, processes)
    if shape.near:
        words = f"closed form of {shape.family}, for want of one of {shape.near}"
        return estimate_from_phases(lines, settings, device, NEAREST_FAMILY_UNCERTAINTY, words)
    return estimate_from_phases(lines, settings, device, CLOSED_FORM_UNCERTAINTY, "closed form")


def estimate_from_phases(
    lines: tuple[MemoryPhase, ...], settings: Settings, device: Device, doubt: float, rests_on: str
) -> MemoryEstimate:
    """The estimate that the moments of a step make at the micro batch of `settings`."""
    batch, less = settings.per_device_train_batch_size, COMPILE_SAVING if settings.torch_compile else 0.0
    if device.cards > 1:
        doubt, rests_on = (
            max(doubt, DATA_PARALLEL_UNCERTAINTY),
            f"{rests_on}, the first of {device.cards} cards of DataParallel",
        )
    if less:
        rests_on += ", without what torch.compile saves"
    return MemoryEstimate(
        batch, lines, device.on_gpu, runtime_overhead(device), doubt, rests_on, device.capacity_bytes, less=less
    )
