"""Batch size and learning rate arithmetic: micro batch × accumulation × processes, and the rate that goes with it."""

from __future__ import annotations

import math
from dataclasses import dataclass

from tuner_tui.settings.model import Settings


@dataclass(frozen=True, slots=True)
class BatchSplit:
    """One way to make an effective batch: samples a device at once, micro batches added up, processes."""

    micro: int
    accumulation: int
    processes: int = 1

    @property
    def effective(self) -> int:
        """Samples behind one optimizer step."""
        return self.micro * self.accumulation * self.processes


@dataclass(frozen=True, slots=True)
class RebalancedBatch:
    """A new split, the effective batch it was to hold, and whether it does so exactly."""

    split: BatchSplit
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


def rebalance(micro: int, accumulation: int, processes: int, new_micro: int) -> RebalancedBatch:
    """The split with the largest micro batch up to `new_micro` that holds the effective batch exactly.

    A divisor below half of `new_micro` would cost more speed than an inexact batch costs accuracy: then `new_micro`
    itself is taken, with the accumulation that comes nearest, and the caller shows the difference.
    """
    share = micro * accumulation
    best = max(d for d in divisors(share) if d <= new_micro)
    if 2 * best >= new_micro:
        return RebalancedBatch(BatchSplit(best, share // best, processes), share * processes)
    nearest = max(1, round(share / new_micro))
    return RebalancedBatch(BatchSplit(new_micro, nearest, processes), share * processes)


def smaller_micro_batches(micro: int, accumulation: int) -> tuple[int, ...]:
    """Micro batches below `micro` that hold the effective batch exactly, largest first."""
    return tuple(d for d in reversed(divisors(micro * accumulation)) if d < micro)


def scale_linear(learning_rate: float, ratio: float) -> float:
    """Linear scaling, for SGD: the learning rate times the ratio of effective batches."""
    return learning_rate * ratio


def scale_square_root(learning_rate: float, ratio: float) -> float:
    """Square-root scaling, for Adam and its relatives."""
    return learning_rate * math.sqrt(ratio)


def scale_learning_rate(learning_rate: float, ratio: float, optimizer: str) -> tuple[float, str]:
    """The learning rate for an effective batch `ratio` times as large, and the name of the rule used."""
    if optimizer.lower().startswith("sgd"):
        return scale_linear(learning_rate, ratio), "linear scaling (SGD)"
    return scale_square_root(learning_rate, ratio), "square-root scaling (Adam)"


@dataclass(frozen=True, slots=True)
class BatchChange:
    """An effective batch that is no longer what it was.

    `held` is the nearest split that holds the old one exactly; None where none comes near the new micro batch.
    `learning_rate` is the rate for the new effective batch, by the rule named `rule`.
    """

    before: int
    after: int
    held: BatchSplit | None
    learning_rate: float
    rule: str

    @property
    def sentence(self) -> str:
        """The arithmetic and both ways out."""
        way = f"or keep it and set learning_rate={self.learning_rate:.1e} ({self.rule})"
        if self.held is None:
            return (
                f"Effective batch {self.after}, where it was {self.before}; no split near it holds that exactly: {way}."
            )
        micro = f"per_device_train_batch_size={self.held.micro}"
        split = f"{micro} gradient_accumulation_steps={self.held.accumulation}"
        return f"Effective batch {self.after}, where it was {self.before}: {split} holds it exactly, {way}."


def batch_change(before: Settings, after: Settings, replicas: int = 1) -> BatchChange | None:
    """What becomes of the effective batch from `before` to `after`; None where it is held."""
    old, new = before.effective_batch(replicas), after.effective_batch(replicas)
    if old == new:
        return None
    found = rebalance(
        before.per_device_train_batch_size,
        before.gradient_accumulation_steps,
        replicas,
        after.per_device_train_batch_size,
    )
    rate, rule = scale_learning_rate(before.learning_rate, new / old, after.optim)
    return BatchChange(old, new, found.split if found.exact else None, float(f"{rate:.3g}"), rule)
