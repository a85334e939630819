"""A trial: one short training with settings that the search proposes, and what it came to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from tuner_tui.settings.model import Settings
from tuner_tui.tuning.measurement import Measurement

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
class Tried:
    """A trial and its measurement."""

    trial: Trial
    measurement: Measurement


@dataclass(frozen=True, slots=True, kw_only=True)
class Skipped:
    """A knob or value that was not tried, and why: it cannot run here, or cannot gain more than the noise."""

    knob: str
    value: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
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
