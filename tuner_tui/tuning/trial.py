"""A trial, its measurement, the changes that were skipped, and the conclusion of a search."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from tuner_tui.core.units import format_gib
from tuner_tui.settings.model import Settings

TrialOutcome = Literal["measured", "out-of-memory", "failed", "no-step", "not-applied", "aborted"]
"""`no-step`: it ended or ran out of time before enough optimizer steps. `not-applied`: it trained with other settings
than it was given."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepBreakdown:
    """Where the time of a step goes, as shares of it from 0 to 1; `padding` is the share of tokens that are padding.

    `gpu_busy` is the share of time in which any kernel ran. None where it was not seen.
    """

    data_wait: float | None = None
    optimizer: float | None = None
    padding: float | None = None
    gpu_busy: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """One trial's figures.

    `samples_s` and `tokens_s` (padding left out) are samples and tokens a second, over all ranks, `spread` the half
    width of their 95 % interval as a share. `peak_bytes` is the most memory the training took, `batch_peak_bytes` that
    of forward and backward alone where it is known apart from the optimizer step's. `seconds` is what the whole trial
    took, start and warm-up included. `dataset_samples` is how many the training data has, `room_bytes` what
    the card had for it: all but its context and what other programs held. `sentence` says in plain words what happened
    where no figure did, and what a figure leaves out. `not_applied` names the settings that the training was seen not
    to have taken, where the outcome is that one. `passing`: what ended it came from outside, or seemed to, and says
    little of its settings: it was killed, or stood still.
    """

    outcome: TrialOutcome
    seconds: float
    run_id: str | None = None
    steps: int = 0
    samples_s: float | None = None
    tokens_s: float | None = None
    spread: float | None = None
    step_time_s: float | None = None
    peak_bytes: int | None = None
    batch_peak_bytes: int | None = None
    breakdown: StepBreakdown = StepBreakdown()
    dataset_samples: int | None = None
    room_bytes: int | None = None
    sentence: str = ""
    not_applied: tuple[str, ...] = ()
    passing: bool = False

    @property
    def throughput(self) -> float | None:
        """Tokens a second where tokens were counted, else samples a second; None where nothing was measured."""
        return self.tokens_s if self.tokens_s is not None else self.samples_s

    @property
    def unit(self) -> str:
        """What `throughput` counts."""
        return "tokens/s" if self.tokens_s is not None else "samples/s"


Purpose = Literal["start", "noise", "batch", "knob", "confirm"]
"""`start`: the settings as they were given. `noise`: the same again, to learn what a difference must exceed.
`confirm`: start and winner in turn, at the end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """The `number`th proposal (from 1), what it is for and why it is worth its time.

    `changed` names the knobs in which it differs from the best settings so far. `bound` is the most it can gain, as a
    share of throughput (0.12: twelve per cent); None where no bound is known.
    """

    number: int
    purpose: Purpose
    settings: Settings
    reason: str
    changed: tuple[str, ...] = ()
    bound: float | None = None


@dataclass(frozen=True, slots=True)
class CompletedTrial:
    """A trial and its measurement."""

    trial: Trial
    measurement: Measurement


@dataclass(frozen=True, slots=True, kw_only=True)
class SkippedChange:
    """A knob or value that was not tried, and why: it cannot run here, or cannot gain more than the noise."""

    knob: str
    value: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TuningConclusion:
    """How a search ended. `ratio` is the winner's throughput over the start's, measured in turn, in the range
    `ratio_low` … `ratio_high`; None where it could not be confirmed. `learning_rate_note` is said where the effective
    batch changed. `sentence` is for a person."""

    winner: Settings
    sentence: str
    ratio: float | None = None
    ratio_low: float | None = None
    ratio_high: float | None = None
    start: Measurement | None = None
    best: Measurement | None = None
    learning_rate_note: str = ""


def format_throughput(measured: Measurement) -> str:
    """`12,345 tokens/s` or `98.7 samples/s`; empty where nothing was measured."""
    speed = measured.throughput
    if speed is None:
        return ""
    return f"{speed:,.0f} {measured.unit}" if speed >= 1000 else f"{speed:.4g} {measured.unit}"


def format_peak_memory(measured: Measurement) -> str:
    """`1.72 GiB`; empty where it is not known."""
    return "" if measured.peak_bytes is None else format_gib(measured.peak_bytes, 2)
