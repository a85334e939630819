"""Batch size and learning rate arithmetic: micro batch × accumulation × processes, and the rate that goes with it."""

from __future__ import annotations

import math

from msgspec import Struct

from tuner_tui.settings.model import Settings


class BatchSplit(Struct, frozen=True):
    """An effective batch as micro batch × accumulation × processes."""

    micro: int
    accumulation: int
    processes: int = 1

    @property
    def change(self) -> dict[str, int]:
        """The split as values of settings."""
        return {"per_device_train_batch_size": self.micro, "gradient_accumulation_steps": self.accumulation}

    @property
    def effective(self) -> int:
        """Samples per optimizer step."""
        return self.micro * self.accumulation * self.processes


def divisors(number: int) -> tuple[int, ...]:
    """All divisors of `number`, ascending."""
    small = [d for d in range(1, math.isqrt(number) + 1) if number % d == 0]
    return tuple(small + [number // d for d in reversed(small) if d * d != number])


def rebalance(micro: int, accumulation: int, processes: int, new_micro: int) -> BatchSplit:
    """The split with the largest micro batch up to `new_micro` that keeps the effective batch exactly.

    If only divisors below half of `new_micro` keep it, the lost speed would cost more than the exact batch is worth:
    the split is then `new_micro` with the nearest accumulation, of another effective batch.
    """
    # The effective batch is micro × accumulation × processes: a new micro batch keeps it if it divides the product of
    # the first two. With 13 × 1 and a limit of 9 that leaves 1, so 9 × 1 with another effective batch is better.
    share = micro * accumulation
    best = max(d for d in divisors(share) if d <= new_micro)
    if 2 * best >= new_micro:
        return BatchSplit(best, share // best, processes)
    return BatchSplit(new_micro, max(1, round(share / new_micro)), processes)


def smaller_micro_batches(micro: int, accumulation: int) -> tuple[int, ...]:
    """Micro batches below `micro` that keep the effective batch exactly, largest first."""
    return tuple(d for d in reversed(divisors(micro * accumulation)) if d < micro)


def scale_linear(learning_rate: float, ratio: float) -> float:
    """Linear scaling, for SGD (Goyal et al. 2017): the learning rate times the ratio of the effective batches."""
    return learning_rate * ratio


def scale_square_root(learning_rate: float, ratio: float) -> float:
    """Square-root scaling, for Adam and similar optimizers (Malladi et al. 2022)."""
    return learning_rate * math.sqrt(ratio)


def scale_learning_rate(learning_rate: float, ratio: float, optimizer: str) -> tuple[float, str]:
    """The learning rate for an effective batch `ratio` times as large, and the name of the scaling rule."""
    if optimizer.lower().startswith("sgd"):
        return scale_linear(learning_rate, ratio), "linear scaling (SGD)"
    return scale_square_root(learning_rate, ratio), "square-root scaling (Adam)"


class BatchChange(Struct, frozen=True):
    """A changed effective batch.

    `held` is the split nearest to the new micro batch that keeps the old effective batch, or None. `learning_rate` is
    the rate for the new effective batch by the scaling rule `rule`.
    """

    before: int
    after: int
    held: BatchSplit | None
    learning_rate: float
    rule: str

    @property
    def sentence(self) -> str:
        """The change and the two ways to handle it, in one sentence."""
        way = f"or keep it and set learning_rate={self.learning_rate:.1e} ({self.rule})"
        now = f"The effective batch is now {self.after} (was {self.before})"
        if self.held is None:
            return f"{now}; no micro batch near it divides {self.before}: {way}."
        micro = f"per_device_train_batch_size={self.held.micro}"
        split = f"{micro} gradient_accumulation_steps={self.held.accumulation}"
        return f"{now}: {split} keeps it, {way}."


def effective_batch_note(before: Settings, after: Settings, replicas: int = 1) -> str:
    """`effective batch 64 → 128`, for rows and dialogs; empty where it stays the same."""
    old, new = before.effective_batch(replicas), after.effective_batch(replicas)
    return "" if old == new else f"effective batch {old:,} → {new:,}"


def batch_change(before: Settings, after: Settings, replicas: int = 1) -> BatchChange | None:
    """The change of the effective batch from `before` to `after`; None if it stays the same."""
    old, new = before.effective_batch(replicas), after.effective_batch(replicas)
    if old == new:
        return None
    micro, accumulation = before.per_device_train_batch_size, before.gradient_accumulation_steps
    split = rebalance(micro, accumulation, replicas, after.per_device_train_batch_size)
    rate, rule = scale_learning_rate(before.learning_rate, new / old, after.optim)
    return BatchChange(old, new, split if split.effective == old else None, float(f"{rate:.3g}"), rule)
