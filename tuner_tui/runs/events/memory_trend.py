"""Trend of memory over a run: the minimum of each window of steps, in constant memory, and its growth."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

MAX_WINDOWS = 16
MIN_KNOWN_WINDOWS = 3


@dataclass(frozen=True, slots=True)
class WindowMinima:
    """The lowest value in each stretch of `stride` steps, the first from step 0; None where nothing was measured."""

    stride: int = 1
    values: tuple[int | None, ...] = ()


NO_MINIMA = WindowMinima()


@dataclass(frozen=True, slots=True)
class MemoryGrowth:
    """What is kept with each step, in bytes, lately; what was kept in all, over how many steps, and from what on."""

    bytes_a_step: float
    total_bytes: int
    steps: int
    from_bytes: int


def with_value(lows: WindowMinima, step: int, value: int | None) -> WindowMinima:
    """`lows` with what was measured at `step`. Stretches become twice as long where they are too many."""
    if value is None or step < 0:
        return lows
    stride, values = lows.stride, lows.values
    while step // stride >= MAX_WINDOWS:
        stride, values = stride * 2, tuple(_known_min(*values[at : at + 2]) for at in range(0, len(values), 2))
    kept = [*values, *[None] * (step // stride + 1 - len(values))]
    kept[step // stride] = _known_min(kept[step // stride], value)
    return WindowMinima(stride, tuple(kept))


def find_growth(lows: WindowMinima, least: int) -> MemoryGrowth | None:
    """How the lows rise, where each of them is above the one before and the rise does not wear off; None elsewhere.

    The first stretch, in which caches and the optimizer's state are made, does not count; `least` others have to be
    known. What fills up, as an allocator's cache does, rises less and less; what is kept for good rises evenly.
    """
    known = [(n * lows.stride, value) for n, value in enumerate(lows.values) if value is not None][1:]
    if len(known) < max(MIN_KNOWN_WINDOWS, least) or any(b <= a for (_, a), (_, b) in pairwise(known)):
        return None
    (first_step, first), (middle_step, middle), (last_step, last) = known[0], known[len(known) // 2], known[-1]
    early, late = (middle - first) / (middle_step - first_step), (last - middle) / (last_step - middle_step)
    return MemoryGrowth(late, last - first, last_step - first_step, first) if 2 * late >= early else None


def _known_min(*values: int | None) -> int | None:
    return min((value for value in values if value is not None), default=None)
