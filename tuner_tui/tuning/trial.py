"""A trial, how long it measures, its measurement, the changes that were skipped, the conclusion of a search."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from tuner_tui.core.units import format_duration, format_share
from tuner_tui.settings.model import FIELDS, Settings

TrialOutcome = Literal["measured", "out-of-memory", "failed", "no-step", "not-applied", "other-data", "aborted"]
"""`no-step`: the trial ended or timed out before enough optimizer steps. `not-applied`: it trained with settings other
than the requested ones. `other-data`: it trained on other samples than the start."""
MAX_REPEAT_DIFFERENCE = 0.25
"""Share of the samples drawn twice by which two trainings on the same stream may differ. Two workers that both read all
of it make it a half."""
MIN_IDLE_WAIT = 0.1
"""Share of a step in which the training waits for data, from which more workers than cores may pay"""
MAX_IDLE_CPU = 0.5
"""if training and workers use at most this share of the cores."""


class StepBreakdown(Struct, frozen=True, kw_only=True):
    """Shares of a step's time, each from 0 to 1, or None if not observed.

    `padding` is the share of tokens that are padding, `cpu_busy` that of the usable cores that the training and its
    workers used.
    """

    data_wait: float | None = None
    optimizer: float | None = None
    padding: float | None = None
    cpu_busy: float | None = None

    @property
    def waits_idly(self) -> bool:
        """Whether it waits for data while cores are idle, as where a loader reads over the network."""
        waits = (self.data_wait or 0.0) >= MIN_IDLE_WAIT
        return waits and self.cpu_busy is not None and self.cpu_busy <= MAX_IDLE_CPU


class Measurement(Struct, frozen=True, kw_only=True):
    """The figures of one trial.

    Attributes:
        outcome: How the trial ended.
        seconds: Wall time of the whole trial, start-up and warm-up included.
        steps: Optimizer steps measured.
        samples_s, tokens_s: Throughput over all ranks, padding tokens not counted.
        spread: Half width of the 95 % confidence interval of the throughput, relative to it.
        peak_bytes: Peak memory of the training.
        batch_peak_bytes: Peak of forward and backward alone, if known separately from the optimizer step's.
        resident_bytes: Lower bound of the memory that does not depend on the micro batch.
        dataset_samples: Number of training samples.
        room_bytes: Memory of the GPU available to the training: all but its context and other programs' memory.
        sentence: What happened if nothing was measured, else what the figures leave out.
        not_applied: Fields that the training was seen to ignore, for the outcome `not-applied`.
        passing: The trial was ended from outside (killed, or stalled), which says little about its settings.
        overhead_s: Seconds from the launch to steady training beyond what its steps take at the measured speed:
            start-up, compilation, the first evaluation. None if unknown.
        job_steps: Optimizer steps that the whole training would take; None if unknown.
        others_cpu_share: Share of the usable cores that other processes used meanwhile; None if unknown.
        workers_repeat: The data is a stream of which each of several workers would deliver all samples.
        repeated_samples: Of the first 1, 2, 4, 8 … samples of a stream, those that were drawn before.
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
    resident_bytes: int | None = None
    breakdown: StepBreakdown = StepBreakdown()
    dataset_samples: int | None = None
    room_bytes: int | None = None
    sentence: str = ""
    not_applied: tuple[str, ...] = ()
    passing: bool = False
    overhead_s: float | None = None
    job_steps: int | None = None
    others_cpu_share: float | None = None
    workers_repeat: bool = False
    repeated_samples: tuple[int, ...] = ()

    @property
    def step_samples(self) -> float | None:
        """Samples of an optimizer step over all ranks; None if unknown."""
        return self.samples_s * self.step_time_s if self.samples_s and self.step_time_s else None

    @property
    def throughput(self) -> float | None:
        """Tokens per second if tokens were counted, else samples per second; None if nothing was measured."""
        return self.tokens_s if self.tokens_s is not None else self.samples_s

    def other_data(self, start: Measurement) -> str:
        """Return how the samples of this trial differ from those of `start`; empty if they are the same or unknown."""
        sizes = self.dataset_samples, start.dataset_samples
        if None not in sizes and sizes[0] != sizes[1]:
            return f"It trains on {sizes[0]:,} samples, the current settings on {sizes[1]:,}."
        drawn = list(zip(self.repeated_samples, start.repeated_samples, strict=False))
        if not drawn:
            return ""
        shares = [repeated / 2 ** (len(drawn) - 1) for repeated in drawn[-1]]
        if abs(shares[0] - shares[1]) <= MAX_REPEAT_DIFFERENCE:
            return ""
        mine, current = (format_share(share) for share in shares)
        return f"It draws {mine} of the samples more than once, the current settings {current}."


Objective = Literal["job", "steady"]
"""What is made faster: the whole job, start-up and compilation included, or its steady throughput."""


class WholeJob(Struct, frozen=True, kw_only=True):
    """The length of the training that is tuned: its optimizer steps with the settings of the start, their samples, and
    their tokens without padding (None if these are not counted)."""

    steps: int
    samples: float
    tokens: float | None = None

    @staticmethod
    def of(start: Measurement) -> WholeJob | None:
        """Return the job of which `start` measured the first steps; None if its length is unknown."""
        if not start.job_steps or not start.step_samples or not start.samples_s:
            return None
        samples = start.job_steps * start.step_samples
        tokens = samples * start.tokens_s / start.samples_s if start.tokens_s else None
        return WholeJob(steps=start.job_steps, samples=samples, tokens=tokens)


Purpose = Literal["start", "noise", "batch", "knob", "confirm"]
"""`start`: the settings as given. `noise`: a repeat, to measure the noise between runs. `confirm`: start and winner
alternately, at the end."""


class Trial(Struct, frozen=True, kw_only=True):
    """A proposed short training run.

    Attributes:
        number: Position in the search, from 1.
        changed: Knobs that differ from the best settings so far.
        bound: Maximum gain in throughput (0.12: 12 %), or None if unknown.
        base: The settings that it changes; None if it changes nothing.
        GPU: The GPU or worker that it runs on, if trials run side by side; else None.
    """

    number: int
    purpose: Purpose
    settings: Settings
    reason: str
    changed: tuple[str, ...] = ()
    bound: float | None = None
    base: Settings | None = None
    gpu: str | None = None


class CompletedTrial(Struct, frozen=True):
    """A trial and its measurement."""

    trial: Trial
    measurement: Measurement


class SkippedChange(Struct, frozen=True, kw_only=True):
    """A value that is not tried, because it cannot run here or cannot gain more than the noise."""

    knob: str
    value: str
    reason: str


def group_by_reason(skipped: Sequence[SkippedChange]) -> dict[str, list[str]]:
    """Return the skipped changes (such as `compile on`) by reason, the most frequent reason first."""
    groups: dict[str, list[str]] = {}
    for change in skipped:
        label = FIELDS[change.knob].label if change.knob in FIELDS else change.knob
        groups.setdefault(change.reason, []).append(f"{label} {change.value}")
    return dict(sorted(groups.items(), key=lambda group: -len(group[1])))


class TuningConclusion(Struct, frozen=True, kw_only=True):
    """The result of a search.

    `ratio` is the winner's speed over the start's, measured alternately, with the 95 % confidence interval `ratio_low`
    to `ratio_high`; None if it was not confirmed. It compares the time of all `job_steps`, `start_job_s` and
    `best_job_s`; the throughput if these are None. `start` and `best` are representative measurements. `pairs` were run
    for it. `learning_rate_note` is set if the effective batch changed. `disturbed`: the machine was too busy to judge.
    """

    winner: Settings
    sentence: str
    ratio: float | None = None
    ratio_low: float | None = None
    ratio_high: float | None = None
    start: Measurement | None = None
    best: Measurement | None = None
    learning_rate_note: str = ""
    disturbed: bool = False
    job_steps: int | None = None
    start_job_s: float | None = None
    best_job_s: float | None = None
    pairs: int | None = None

    @property
    def job_times(self) -> str | None:
        """`41 s → 35 s` for the whole job, with the winner's own number of steps; None unless both times are known."""
        if self.job_steps is None or self.start_job_s is None or self.best_job_s is None:
            return None
        steps = None if self.best is None else self.best.job_steps
        length = f" for {steps:,} steps" if steps not in (None, self.job_steps) else ""
        return f"{format_duration(self.start_job_s)} → {format_duration(self.best_job_s)}{length}"


DEFAULT_MINUTES = 9.0
"""Default time of a tuning: enough for a small model and a dozen trials. A tuning can be resumed with more."""
FIRST_STEP_DIVISOR = 3.0
"""A trial may take this fraction (one third) of the tuning's time until its first step."""
TRIAL_VARIABLE = "TUNER_TRIAL"
"""Environment variable that passes the protocol to the observer."""


class TrialProtocol(Struct, frozen=True):
    """How long a trial measures, and when it is given up.

    Attributes:
        spread: Measuring ends when the half width of the throughput's 95 % interval is at most this share of it,
        least_s, most_s: but not before and not after so many seconds of training.
        evaluate: Whether an evaluation step is made, to include its memory in the peak.
        first_step_s: Timeout until the first optimizer step; `compiling_s` while the model compiles.
        stalled_s: Timeout between steps (at least five step times).
    """

    spread: float = 0.02
    least_s: float = 1.0
    most_s: float = 8.0
    evaluate: bool = True
    first_step_s: float = 300.0
    compiling_s: float = 1800.0
    stalled_s: float = 120.0

    @staticmethod
    def within(minutes: float) -> TrialProtocol:
        """Return the protocol for a tuning of so many minutes, which determine the timeout of the first step."""
        default = TrialProtocol()
        return replace(default, first_step_s=max(default.first_step_s, minutes * 60 / FIRST_STEP_DIVISOR))

    def to_json(self) -> str:
        """Return the part for the observer as JSON."""
        return json.dumps(
            {"spread": self.spread, "least_s": self.least_s, "most_s": self.most_s, "evaluate": self.evaluate}
        )
