"""A reading of the wall clock and of the monotonic clock at the same moment."""

from __future__ import annotations

import time

from msgspec import Struct

LATEST_T = 253_402_214_400.0
"""The last day of the year 9999, in seconds since the epoch. Later moments in files are damage: none can be shown."""


class ClockReading(Struct, frozen=True):
    """`wall_s` is seconds since the epoch, written to files; the user may set that clock. `monotonic_s` measures
    timeouts."""

    wall_s: float
    monotonic_s: float

    @classmethod
    def now(cls) -> ClockReading:
        return cls(time.time(), time.monotonic())
