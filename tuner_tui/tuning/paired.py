"""What a few paired differences say of their mean, where their noise is known only to lie between two bounds."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

NOISES = 20
"""Sizes of noise between the bounds, evenly spaced in their logarithm, that stand for all of them."""
TAIL = 0.025
"""Of the 95 % interval, on either side."""
HALVINGS = 40
_NORMAL = statistics.NormalDist()


def half_width(differences: Sequence[float], least: float, most: float) -> float:
    """Half the 95 % interval of the mean of `differences`, each with the same noise of unknown size.

    The noise is a standard deviation between `least` and `most` (both above 0). Before the differences are looked at,
    every size between is believed alike on a scale of ratios; how far they agree weighs the sizes, and the interval is
    that of all of them together. Differences that agree well so narrow it, as far as their number bears it out, and
    what is known of the noise from elsewhere keeps it from the width that a t-distribution of one degree of freedom
    would give. One difference says nothing of its noise.
    """
    sizes = [least * (most / least) ** (step / (NOISES - 1)) for step in range(NOISES)] if least < most else [least]
    weights = _weights(differences, sizes)
    root = math.sqrt(len(differences))
    low, high = 0.0, 10 * sizes[-1] / root
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        beyond = sum(weight * _NORMAL.cdf(-middle * root / size) for weight, size in zip(weights, sizes, strict=True))
        low, high = (middle, high) if beyond > TAIL else (low, middle)
    return high


def _weights(differences: Sequence[float], sizes: Sequence[float]) -> list[float]:
    """How likely each size of noise makes it that the differences lie as far apart as they do; together 1."""
    mean, free = statistics.fmean(differences), len(differences) - 1
    squares = sum((one - mean) ** 2 for one in differences)
    logs = [-free * math.log(size) - squares / (2 * size**2) for size in sizes]
    likely = [math.exp(one - max(logs)) for one in logs]
    return [one / sum(likely) for one in likely]
