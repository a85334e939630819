"""Trend of memory over a run: the minimum of each window of steps, in constant memory, and its growth.

Memory rises and falls within a step; what a training retains from step to step shows in the minima.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

MAX_WINDOWS = 16
MIN_KNOWN_WINDOWS = 3


@dataclass(frozen=True, slots=True)
class WindowMinima:
    """The minimum of each window of `stride` steps, from step 0; None where nothing was measured."""

    stride: int = 1
    values: tuple[int | None, ...] = ()


NO_MINIMA = WindowMinima()


@dataclass(frozen=True, slots=True)
class MemoryGrowth:
    """Recent growth in bytes a step; total growth over `steps` steps, and the value it started from."""

    bytes_a_step: float
    total_bytes: int
    steps: int
    from_bytes: int


def with_value(lows: WindowMinima, step: int, value: int | None) -> WindowMinima:
    """`minima` with a value measured at `step`. When there are too many windows, their width doubles."""
    if value is None or step < 0:
        return lows
    stride, values = lows.stride, lows.values
    while step // stride >= MAX_WINDOWS:
        stride, values = stride * 2, tuple(_known_min(*values[at : at + 2]) for at in range(0, len(values), 2))
    kept = [*values, *[None] * (step // stride + 1 - len(values))]
    kept[step // stride] = _known_min(kept[step // stride], value)
    return WindowMinima(stride, tuple(kept))


def find_growth(lows: WindowMinima, least: int) -> MemoryGrowth | None:
    """The growth if each minimum is above the one before and the growth does not slow down; otherwise None.

    The first window, in which caches and optimizer states are allocated, is left out; at least `least` others must be
    known. A cache that fills up grows ever more slowly, whereas memory retained at each step grows evenly.
    """
    known = [(n * lows.stride, value) for n, value in enumerate(lows.values) if value is not None][1:]
    if len(known) < max(MIN_KNOWN_WINDOWS, least) or any(b <= a for (_, a), (_, b) in pairwise(known)):
        return None
    (first_step, first), (middle_step, middle), (last_step, last) = known[0], known[len(known) // 2], known[-1]
    early, late = (middle - first) / (middle_step - first_step), (last - middle) / (last_step - middle_step)
    return MemoryGrowth(late, last - first, last_step - first_step, first) if 2 * late >= early else None


def _known_min(*values: int | None) -> int | None:
    return min((value for value in values if value is not None), default=None)
