"""Batch and learning-rate arithmetic, by the right names.

The effective batch is micro batch × accumulation × processes. Held exactly, the learning rate needs no change. Where it
changes, Adam-like optimizers scale the learning rate with the square root of the ratio (Malladi et al. 2022), SGD
linearly (Goyal et al. 2017).
"""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Split:
    """One way to make an effective batch: samples a device at once, micro batches added up, processes."""

    micro: int
    accumulation: int
    processes: int = 1

    @property
    def effective(self) -> int:
        """Samples behind one optimizer step."""
        return self.micro * self.accumulation * self.processes


@dataclass(frozen=True, slots=True)
class Rebalanced:
    """A new split, the effective batch it was to hold, and whether it does so exactly."""

    split: Split
    wanted: int

    @property
    def exact(self) -> bool:
        """Whether the effective batch is the one wanted."""
        return self.split.effective == self.wanted

    @property
    def ratio(self) -> float:
        """New effective batch divided by the wanted one."""
        return self.split.effective / self.wanted


def divisors(number: int) -> tuple[int, ...]:
    """Every divisor of `number`, ascending."""
    small = [d for d in range(1, math.isqrt(number) + 1) if number % d == 0]
    return tuple(small + [number // d for d in reversed(small) if d * d != number])


def rebalance(micro: int, accumulation: int, processes: int, new_micro: int) -> Rebalanced:
    """The split with the largest micro batch up to `new_micro` that holds the effective batch exactly.

    A divisor below half of `new_micro` would cost more speed than an inexact batch costs accuracy: then `new_micro`
    itself is taken, with the accumulation that comes nearest, and the caller shows the difference.
    """
    share = micro * accumulation
    best = max(d for d in divisors(share) if d <= new_micro)
    if 2 * best >= new_micro:
        return Rebalanced(Split(best, share // best, processes), share * processes)
    nearest = max(1, round(share / new_micro))
    return Rebalanced(Split(new_micro, nearest, processes), share * processes)


def smaller_micro_batches(micro: int, accumulation: int) -> tuple[int, ...]:
    """Micro batches below `micro` that hold the effective batch exactly, largest first."""
    return tuple(d for d in reversed(divisors(micro * accumulation)) if d < micro)


def linear(learning_rate: float, ratio: float) -> float:
    """Linear scaling, for SGD: the learning rate times the ratio of effective batches."""
    return learning_rate * ratio


def square_root(learning_rate: float, ratio: float) -> float:
    """Square-root scaling, for Adam and its relatives."""
    return learning_rate * math.sqrt(ratio)


def scaled(learning_rate: float, ratio: float, optimizer: str) -> tuple[float, str]:
    """The learning rate for an effective batch `ratio` times as large, and the name of the rule used."""
    if optimizer.lower().startswith("sgd"):
        return linear(learning_rate, ratio), "linear scaling (SGD)"
    return square_root(learning_rate, ratio), "square-root scaling (Adam)"
