"""What is asked of the memory estimate, and what it answers: memory, time and data of the settings shown.

Imports nothing else at run time, as the first frame of the screen needs it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from tuner_tui.advice.recommend.duration_estimate import DurationEstimate
    from tuner_tui.advice.recommend.memory_breakdown import BreakdownRow
    from tuner_tui.advice.recommend.sample_lengths import SampleLengths
    from tuner_tui.hardware.interpreter import Interpreter
    from tuner_tui.hardware.inventory import Inventory
    from tuner_tui.memory.estimate import MemoryEstimate
    from tuner_tui.settings.job import Job
    from tuner_tui.settings.model import Resolved


@dataclass(frozen=True, slots=True)
class EstimateRequest:
    """Settings whose memory is to be estimated.

    `worked_on`: the user changed something and no training runs, so an estimate that takes seconds of CPU time is
    allowed. A command has its own values for the settings that no source gives. While `training`, data is not measured.
    """

    resolved: Resolved
    job: Job
    inventory: Inventory
    interpreter: Interpreter
    memory_limit_bytes: int | None = None
    worked_on: bool = False
    training: bool = False


class PeakMemory(NamedTuple):
    """Where the memory of the peak goes, in the phase `phase`: by kind, and by module and kind."""

    title: str
    phase: str
    total_bytes: int
    by_kind: tuple[BreakdownRow, ...]
    by_module: tuple[BreakdownRow, ...]


class DataOutlook(NamedTuple):
    """How long the samples of the data are, and the share of them that is cut and of a batch that is padding."""

    lengths: SampleLengths
    cut_share: float
    padding_share: float


@dataclass(frozen=True, slots=True)
class MemoryOutlook:
    """The expected memory of a GPU, or of the host where `on_gpu` is False.

    `against` names the capacity if it is not that of the device; `unknown` says why there is no estimate.
    `measured`: the estimate comes from runs of a command only, and `measured_largest` is the largest batch they imply.
    `duration` is the expected time, `data` the lengths of the samples; each None if unknown.
    """

    estimate: MemoryEstimate | None = None
    on_gpu: bool = True
    against: str = ""
    unknown: str = ""
    measured: bool = False
    measured_largest: int | None = None
    duration: DurationEstimate | None = None
    data: DataOutlook | None = None

    @property
    def largest(self) -> int | None:
        """The largest micro batch that fits, or None if unknown."""
        return self.measured_largest if self.measured or self.estimate is None else self.estimate.largest_batch()
