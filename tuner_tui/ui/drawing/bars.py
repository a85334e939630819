"""Bars and blocks, quantised so that they change seldom."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tuner_tui.ui.drawing.glyphs import Glyphs


def level(value: float | None, full: float, steps: int) -> int:
    """The height of `value` on a scale of `steps` up to `full`; anything above 0 is at least 1, unknown is 0."""
    if value is None or full <= 0 or value <= 0:
        return 0
    return max(1, min(steps, round(value / full * steps)))


def blocks(values: Iterable[float | None], full: float, glyphs: Glyphs) -> str:
    """One character a value. A known 0 is the lowest block, so that it differs from unknown, which is blank."""
    top = len(glyphs.levels) - 1
    return "".join(
        " " if value is None else glyphs.levels[max(1, level(value, full, top))] for value in values
    )


def tall_blocks(values: Sequence[float | None], full: float, height: int, glyphs: Glyphs) -> list[str]:
    """The same over `height` lines, top line first: a chart of columns."""
    top = len(glyphs.levels) - 1
    heights = [0 if value is None else max(1, level(value, full, top * height)) for value in values]
    return [
        "".join(glyphs.levels[max(0, min(top, tall - top * line))] for tall in heights)
        for line in reversed(range(height))
    ]


def bar(part: float | None, width: int, glyphs: Glyphs) -> str:
    """A horizontal bar filled by `part` (0 to 1), to half a cell; ASCII bars stand in brackets."""
    if glyphs.ascii:
        return "[" + _fill(part, width - 2, glyphs) + "]" if width > 2 else " " * width
    return _fill(part, width, glyphs)


def _fill(part: float | None, width: int, glyphs: Glyphs) -> str:
    parts = len(glyphs.bar_parts) + 1
    filled = level(part, 1.0, width * parts)
    whole, rest = divmod(filled, parts)
    return (glyphs.bar_full * whole + (glyphs.bar_parts[rest - 1] if rest else "")).ljust(
        width, glyphs.bar_empty
    )
