"""What a line of output, or of a file that a tool writes, tells of a training."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Told:
    """One piece of news; None where it says nothing of it. `source` says where it was read.

    `elapsed_s` is how long the training had taken at `step`, as the source says. A `bar` counts from where it began,
    which may be an epoch; `epochs` is how many such bars there will be. `evaluation` are metrics by the names they have
    there.
    """

    source: str
    step: int | None = None
    total_steps: int | None = None
    elapsed_s: float | None = None
    loss: float | None = None
    learning_rate: float | None = None
    grad_norm: float | None = None
    epoch: float | None = None
    bar: bool = False
    epochs: int | None = None
    evaluating: bool = False
    evaluation: Mapping[str, float] = field(default_factory=dict)


def number(value: Any) -> float | None:
    """A number, or text that is one (`nan` too); else None."""
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return None
    try:
        return float(value)
    except ValueError:
        return None


def whole(value: Any) -> int | None:
    """A whole number that is not below 0; else None."""
    found = number(value)
    return int(found) if found is not None and math.isfinite(found) and found >= 0 and found == int(found) else None


def seconds(text: Any) -> float | None:
    """Seconds from `1:02:03`, `02:03`, `1 day, 2:00:00` or ms-swift's `1h 2m 3s`; else None."""
    if not isinstance(text, str):
        return number(text)
    days, comma, clock = text.rpartition(", ")
    if ":" in clock and clock.replace(":", "").isdigit():
        parts = [int(part) for part in clock.split(":")]
        total = sum(part * 60**power for power, part in enumerate(reversed(parts)))
        return float(total + (86400 * int(days.split()[0]) if comma and days.split()[0].isdigit() else 0))
    units = {"d": 86400.0, "h": 3600.0, "m": 60.0, "s": 1.0}
    words = text.split()
    if words and all(word[-1] in units and number(word[:-1]) is not None for word in words):
        return sum(float(word[:-1]) * units[word[-1]] for word in words)
    return None
