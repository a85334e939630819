"""A moment by two clocks: one that tells the time of day and may be set, one that only ever goes on."""

from __future__ import annotations

import time
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Moment:
    """`t` in seconds since the epoch is written down; `s`, monotonic seconds, is what patience is measured by."""

    t: float
    s: float

    @classmethod
    def now(cls) -> Moment:
        """This moment."""
        return cls(time.time(), time.monotonic())
