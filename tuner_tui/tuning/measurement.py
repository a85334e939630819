"""What one short training came to: the figures that the search decides by."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Outcome = Literal["measured", "out-of-memory", "failed", "no-step", "not-applied", "aborted"]
"""`no-step`: it ended or ran out of time before enough optimizer steps. `not-applied`: it trained with other settings
than it was given."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Breakdown:
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

    outcome: Outcome
    seconds: float
    run_id: str | None = None
    steps: int = 0
    samples_s: float | None = None
    tokens_s: float | None = None
    spread: float | None = None
    step_time_s: float | None = None
    peak_bytes: int | None = None
    batch_peak_bytes: int | None = None
    breakdown: Breakdown = Breakdown()
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
