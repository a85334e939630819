"""What another micro batch does to the effective batch: how to hold it, or the learning rate that goes with it."""

from __future__ import annotations

from dataclasses import dataclass

from tuner_tui.advice.scaling import Split, rebalance, scaled
from tuner_tui.settings.model import Settings


@dataclass(frozen=True, slots=True)
class BatchChange:
    """An effective batch that is no longer what it was.

    `held` is the nearest split that holds the old one exactly; None where none comes near the new micro batch.
    `learning_rate` is the rate for the new effective batch, by the rule named `rule`.
    """

    before: int
    after: int
    held: Split | None
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
    rate, rule = scaled(before.learning_rate, new / old, after.optim)
    return BatchChange(old, new, found.split if found.exact else None, float(f"{rate:.3g}"), rule)
