"""How fast the measured steps were, and how sure that is. Pure arithmetic."""

from __future__ import annotations

import math

T_95 = (12.71, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228)
"""Student's t for a two-sided 95 % interval, by degrees of freedom from 1; beyond ten it is close to its limit."""


class Speed:
    """Amount over time of single steps: its ratio, and the half width of its 95 % interval as a share of it.

    The steps differ in both, so this is the ratio of two sums (a ratio estimator), not the mean of the steps' rates.
    """

    def __init__(self) -> None:
        self.steps = 0
        self.amount = self.seconds = 0.0
        self._amount2 = self._both = self._seconds2 = 0.0

    def add(self, amount: float, seconds: float) -> None:
        """One step more."""
        self.steps += 1
        self.amount += amount
        self.seconds += seconds
        self._amount2 += amount * amount
        self._both += amount * seconds
        self._seconds2 += seconds * seconds

    def spread(self) -> float | None:
        """Half width of the 95 % interval as a share; None below two steps."""
        if self.steps < 2 or self.amount <= 0 or self.seconds <= 0:
            return None
        ratio = self.amount / self.seconds
        left = self._amount2 - 2 * ratio * self._both + ratio * ratio * self._seconds2
        error = math.sqrt(max(0.0, left) * self.steps / (self.steps - 1)) / self.amount
        freedom = self.steps - 1
        return error * (T_95[freedom - 1] if freedom <= len(T_95) else 1.96 + 2.5 / freedom)
