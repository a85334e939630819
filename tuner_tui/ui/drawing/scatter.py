"""Points in a plot, one mark a cell, with a limit drawn across it."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tuner_tui.ui.drawing.cells import Row, Run, Style, fit, line, right, shorten
from tuner_tui.ui.drawing.plot import AXIS

LEAST_WIDTH, LEAST_HEIGHT = AXIS + 10, 5
LEAST_TOP = 1e-12
"""Less is nothing; an axis for it could not be divided."""


@dataclass(frozen=True, slots=True)
class Point:
    """One mark. Of several in one cell the one with the highest `rank` is seen."""

    x: float
    y: float
    mark: str = "•"
    style: Style = ""
    rank: int = 0


@dataclass(frozen=True, slots=True)
class Scatter:
    """Points over positive xs, which stand by their logarithm: each doubling is as wide. Ys stand on zero.

    `ends` are those of the x axis, `top` that of the y axis where it is known; `limit` is drawn across at its height,
    with `limit_words`.
    """

    title: str
    points: Sequence[Point]
    number: Callable[[float | None], str]
    foot: str
    ends: tuple[float, float]
    top: float | None = None
    limit: float | None = None
    limit_words: str = ""


def scatter_rows(shown: Scatter, width: int, height: int) -> list[Row]:
    """Heading, the points, the ends of both axes: `height` rows in all."""
    heading = Row(fit(line(Run(shown.title, "strong")), width))
    if width < LEAST_WIDTH or height < LEAST_HEIGHT:
        return [heading][:height]
    body, room = height - 2, width - AXIS - 1
    points = [point for point in shown.points if math.isfinite(point.y)]
    if not points:
        return [heading, Row(line(Run("no figure yet", "dim"))), *[Row(())] * body]
    top = shown.top or _top(max([point.y for point in points] + [shown.limit or 0.0]))
    grid = _grid(shown, points, top, room, body)
    labels = {0: shown.number(top), body - 1: shown.number(0.0)}
    rows = [Row(line(Run(right(labels.get(y, ""), AXIS) + "│", "dim"), *cells)) for y, cells in enumerate(grid)]
    return [heading, *rows, _foot(shown, room)]


def _top(largest: float) -> float:
    """The end of the y axis: rounded up to two digits, with room above the largest."""
    if largest < LEAST_TOP:
        return 1.0
    step = 10.0 ** math.floor(math.log10(largest)) / 2
    return math.ceil(largest * 1.02 / step) * step


def _grid(shown: Scatter, points: Sequence[Point], top: float, width: int, height: int) -> list[list[Run]]:
    grid = [[Run(" ")] * width for _ in range(height)]
    if shown.limit is not None:
        words = f" {shown.limit_words} "
        across = "╌" * max(0, width - len(words)) + words
        grid[_row(shown.limit, top, height)] = [Run(cell, "dim") for cell in across[:width]]
    low, high = (math.log(end) for end in shown.ends)
    for point in sorted(points, key=lambda point: point.rank):
        part = 0.5 if high == low else (math.log(point.x) - low) / (high - low)
        grid[_row(point.y, top, height)][min(width - 1, round(part * (width - 1)))] = Run(point.mark, point.style)
    return grid


def _row(y: float, top: float, height: int) -> int:
    return height - 1 - max(0, min(height - 1, round(y / top * (height - 1))))


def _foot(shown: Scatter, room: int) -> Row:
    low, high = shown.ends
    first, last = f"{low:,.0f}", f"{shown.foot} {high:,.0f}"
    if low == high:
        text = f"{shorten(last, room):^{room}}"
    else:
        text = first + right(shorten(last, room - len(first) - 1), room - len(first))
    return Row(line(Run(" " * (AXIS + 1) + text, "dim")))
