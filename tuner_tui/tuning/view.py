"""What is to be seen of a tuning: the snapshot that the command line and the screen draw."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from tuner_tui.tuning.trial import Skipped, Trial, Tried, Verdict

Status = Literal["running", "finished", "aborted", "failed", "killed"]
"""`killed`: nobody works on it and it is not at its end; it can be resumed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TuningView:
    """A tuning as its folder says. Times are seconds since the epoch, sizes bytes.

    `current` is the trial under way, in the run `current_run`. `limit_bytes` is what a trusted trial may take of
    `capacity_bytes`; both None where memory has no known bound. `left_low_s` … `left_high_s` is the time left.
    `preset` is the file that the winner was saved to.
    """

    id: str
    title: str
    status: Status
    created_t: float
    tried: tuple[Tried, ...] = ()
    current: Trial | None = None
    current_run: str | None = None
    current_since_t: float | None = None
    skipped: tuple[Skipped, ...] = ()
    capacity_bytes: int | None = None
    limit_bytes: int | None = None
    left_low_s: float | None = None
    left_high_s: float | None = None
    verdict: Verdict | None = None
    preset: str | None = None
    trouble: str = ""
