"""How fast the measured steps were, and how sure that is. Pure arithmetic."""

from __future__ import annotations

import math

T_95 = (12.71, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228)
"""Student's t for a two-sided 95 % interval, by degrees of freedom from 1; beyond ten it is close to its limit."""


BLOCK_S = 0.1
"""Short steps are taken together: one that waited for its batch is followed by one that did not, so that single steps
say little of how sure their sum is."""


class Speed:
    """Amount over time of steps: its ratio, and the half width of its 95 % interval as a share of it.

    Blocks of steps differ in both, so this is the ratio of two sums (a ratio estimator), not the mean of their rates.
    """

    def __init__(self) -> None:
        self.steps = self._blocks = 0
        self.seconds = 0.0
        self._open = (0.0, 0.0)
        self._amount = self._duration = self._amount2 = self._both = self._duration2 = 0.0

    def add(self, amount: float, seconds: float) -> None:
        """One step more."""
        self.steps += 1
        self.seconds += seconds
        self._open = (self._open[0] + amount, self._open[1] + seconds)
        if self._open[1] >= BLOCK_S:
            self._close(*self._open)
            self._open = (0.0, 0.0)

    def _close(self, amount: float, seconds: float) -> None:
        self._blocks += 1
        self._amount += amount
        self._duration += seconds
        self._amount2 += amount * amount
        self._both += amount * seconds
        self._duration2 += seconds * seconds

    def spread(self) -> float | None:
        """Half width of the 95 % interval as a share; None below two blocks."""
        blocks = self._blocks
        if blocks < 2 or self._amount <= 0:
            return None
        ratio = self._amount / self._duration
        left = self._amount2 - 2 * ratio * self._both + ratio * ratio * self._duration2
        error = math.sqrt(max(0.0, left) * blocks / (blocks - 1)) / self._amount
        freedom = blocks - 1
        return error * (T_95[freedom - 1] if freedom <= len(T_95) else 1.96 + 2.5 / freedom)
