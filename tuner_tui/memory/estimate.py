"""The memory a training will take, before it has run: a closed form, quick enough for every keystroke.

`estimate` goes from a model's sizes and the settings to bytes, part by part, at the moment of the step that takes most.
All sizes are of one process and its one device.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from tuner_tui.memory.device import Device
from tuner_tui.memory.fit import PeakModel
from tuner_tui.memory.shapes import ModelShape
from tuner_tui.memory.slack import slack_bytes
from tuner_tui.memory.step import Moment, moments
from tuner_tui.settings.model import Settings

RESERVE = 0.05
"""Share of the card left free beside the estimate's own doubt: fragmentation grows over a long run."""
CLOSED_FORM_DOUBT = 0.10

Verdict = Literal["fits", "tight", "too large", "unknown"]


@dataclass(frozen=True, slots=True)
class Parts:
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

    `moment` is the part of the step that sets the peak. `doubt` is the share by which the total may be off, up or down.
    `rests_on` says in words where the figure comes from. `capacity_bytes` is None where it is not known.
    """

    batch: int
    parts: Parts
    moment: str
    lines: tuple[Moment, ...]
    on_gpu: bool
    doubt: float
    rests_on: str
    capacity_bytes: int | None = None

    @property
    def total_bytes(self) -> int:
        """The peak: everything the process takes of its device."""
        return self.parts.total

    @property
    def low_bytes(self) -> int:
        """The least it may be, doubt counted."""
        return round(self.total_bytes * (1 - self.doubt))

    @property
    def high_bytes(self) -> int:
        """The most it may be, doubt counted."""
        return round(self.total_bytes * (1 + self.doubt))

    @property
    def verdict(self) -> Verdict:
        """Against the capacity: fits with doubt and reserve; tight where doubt or reserve decide; too large."""
        if self.capacity_bytes is None:
            return "unknown"
        if self.high_bytes <= self.capacity_bytes * (1 - RESERVE):
            return "fits"
        return "tight" if self.low_bytes <= self.capacity_bytes else "too large"

    def peak_bytes(self, batch: int) -> float:
        """The peak at another micro batch."""
        tensors = max(line.bytes_at(batch) for line in self.lines)
        return tensors + self.parts.context + slack_bytes(tensors, self.on_gpu)

    @property
    def peak(self) -> PeakModel:
        """The same as `max(floor, base + slope·b)`, exact at this batch and at twice it."""
        here, twice = self._sloped(self.batch), self._sloped(2 * self.batch)
        slope = (twice - here) / self.batch
        floor = max((line.base_bytes for line in self.lines if line.sample == 0), default=0.0)
        floor += self.parts.context + slack_bytes(floor, self.on_gpu)
        return PeakModel(here - slope * self.batch, slope, floor)

    def _sloped(self, batch: int) -> float:
        tensors = max(line.bytes_at(batch) for line in self.lines if line.sample)
        return tensors + self.parts.context + slack_bytes(tensors, self.on_gpu)

    def largest_batch(self, reserve: float = RESERVE) -> int | None:
        """The largest micro batch that fits with `reserve` left free and the doubt against it; None if unknown."""
        if self.capacity_bytes is None:
            return None
        limit = self.capacity_bytes * (1 - reserve) / (1 + self.doubt)
        if self.peak_bytes(1) > limit:
            return 0
        low, high = 1, 2
        while self.peak_bytes(high) <= limit:
            low, high = high, 2 * high
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if self.peak_bytes(middle) <= limit else (low, middle)
        return low


def estimate(shape: ModelShape, settings: Settings, device: Device, processes: int = 1) -> MemoryEstimate:
    """The closed form. `processes` train together, each with a device of its own (DistributedDataParallel)."""
    lines = moments(shape, settings, device, processes)
    return of_lines(lines, settings, device, CLOSED_FORM_DOUBT, "closed form")


def of_lines(
    lines: tuple[Moment, ...], settings: Settings, device: Device, doubt: float, rests_on: str
) -> MemoryEstimate:
    """The estimate that the moments of a step make at the micro batch of `settings`."""
    batch = settings.per_device_train_batch_size
    top = max(lines, key=lambda line: line.bytes_at(batch))
    tensors = top.bytes_at(batch)
    parts = Parts(
        weights=round(top.weights),
        gradients=round(top.gradients),
        optimizer=round(top.optimizer),
        activations=round(top.temporary + top.sample * batch),
        context=device.context_bytes,
        slack=round(slack_bytes(tensors, device.on_gpu)),
    )
    return MemoryEstimate(batch, parts, top.name, lines, device.on_gpu, doubt, rests_on, device.capacity_bytes)
