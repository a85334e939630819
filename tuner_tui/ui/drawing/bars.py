"""Bars and blocks, quantised so that they change seldom."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

LEVELS = " ▁▂▃▄▅▆▇█"
FULLEST = len(LEVELS) - 1


def level(value: float | None, full: float, steps: int) -> int:
    """The height of `value` on a scale of `steps` up to `full`: at least 1 above nothing, 0 where unknown."""
    if value is None or full <= 0 or value <= 0:
        return 0
    return max(1, min(steps, round(value / full * steps)))


def blocks(values: Iterable[float | None], full: float) -> str:
    """One character a value. A known 0 is the lowest block, unknown is blank."""
    return "".join(" " if value is None else LEVELS[max(1, level(value, full, FULLEST))] for value in values)


def tall_blocks(values: Sequence[float | None], full: float, height: int) -> list[str]:
    """The same over `height` lines, top line first: a chart of columns."""
    heights = [0 if value is None else max(1, level(value, full, FULLEST * height)) for value in values]
    return [
        "".join(LEVELS[max(0, min(FULLEST, tall - FULLEST * line))] for tall in heights)
        for line in reversed(range(height))
    ]


def bar(part: float | None, width: int) -> str:
    """A horizontal bar filled by `part` (0 to 1) to half a cell, its full length marked at the right end."""
    if width < 2:
        return " " * width
    room = width - 1
    whole, half = divmod(level(part, 1.0, room * 2), 2)
    return ("━" * whole + "╸" * half).ljust(room) + "│"
