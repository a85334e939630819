"""A reading of the wall clock and of the monotonic clock at the same moment."""

from __future__ import annotations

import time
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ClockReading:
    """`t` in seconds since the epoch is written down; `s`, monotonic seconds, is what patience is measured by."""

    t: float
    s: float

    @classmethod
    def now(cls) -> ClockReading:
        """This moment."""
        return cls(time.time(), time.monotonic())
