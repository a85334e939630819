"""Plots of series over a run, in braille (2 × 4 dots a cell), with axes in real units."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from tuner_tui.runs.events.history import Series
from tuner_tui.ui.drawing.cells import Row, Run, line, right
from tuner_tui.ui.drawing.curve import scale

AXIS = 9
DOTS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))
"""Unicode braille: the bit of each dot, by row and column within its cell."""


@dataclass(frozen=True, slots=True)
class Plot:
    """A series, what it is called and how its figures are written; amounts stand on zero."""

    title: str
    series: Series
    number: Callable[[float | None], str]
    from_zero: bool = False


def plot_rows(plot: Plot, width: int, height: int) -> list[Row]:
    """A heading, the curve with the ends of both axes, `height` rows in all."""
    xs, ys, number = plot.series.xs, plot.series.ys, plot.number
    points = [(x, y) for x, y in zip(xs, ys, strict=True) if y is not None and math.isfinite(y)]
    newest = number(points[-1][1]) if points else number(None)
    heading = Row(line(Run(plot.title, "strong"), f"  {newest}"))
    if height < 4 or width < AXIS + 8:
        return [heading][:height]
    body = height - 2
    if len(points) < 2:
        return [heading, Row(line(Run("no points yet", "dim"))), *[Row(())] * body]
    low, high = scale([y for _, y in points] + ([0.0] if plot.from_zero else []))
    end = nice_end(points[-1][0])
    curve = draw(points, (0.0, end), (low, high), width - AXIS - 1, body)
    labels = {0: number(high), body - 1: number(low)}
    rows = [Row(line(Run(right(labels.get(y, ""), AXIS) + "│", "dim"), text)) for y, text in enumerate(curve)]
    return [heading, *rows, _foot(end, width)]


def nice_end(last: float) -> float:
    """The end of the axis: rounded up to two digits, so that the curve grows into it and what is drawn stays."""
    if last <= 0:
        return 1.0
    step = 10.0 ** math.floor(math.log10(last)) / 2
    return math.ceil(last / step) * step


def _foot(end: float, width: int) -> Row:
    return Row(line(Run(" " * (AXIS + 1) + "0" + right(f"step {end:,.0f}", max(0, width - AXIS - 2)), "dim")))


def draw(
    points: Sequence[tuple[float, float]],
    x_span: tuple[float, float],
    y_span: tuple[float, float],
    width: int,
    height: int,
) -> list[str]:
    """The curve through `points` as `height` lines of `width` cells, top line first."""
    columns, lines = width * 2, height * 4
    dots = set(_trace(points, x_span, y_span, columns, lines))
    return ["".join(_braille(dots, x, y) for x in range(width)) for y in range(height)]


def _trace(
    points: Sequence[tuple[float, float]],
    x_span: tuple[float, float],
    y_span: tuple[float, float],
    columns: int,
    lines: int,
) -> list[tuple[int, int]]:
    placed = [(_place(x, x_span, columns), lines - 1 - _place(y, y_span, lines)) for x, y in points]
    dots = placed[:1]
    for (x0, y0), (x1, y1) in pairwise(placed):
        steps = max(abs(x1 - x0), abs(y1 - y0), 1)
        dots += [(x0 + round((x1 - x0) * i / steps), y0 + round((y1 - y0) * i / steps)) for i in range(1, steps + 1)]
    return dots


def _place(value: float, span: tuple[float, float], places: int) -> int:
    whole = span[1] - span[0]
    return max(0, min(places - 1, int((value - span[0]) / whole * places))) if whole else 0


def _braille(dots: set[tuple[int, int]], x: int, y: int) -> str:
    bits = sum(DOTS[row][column] for row in range(4) for column in range(2) if (x * 2 + column, y * 4 + row) in dots)
    return chr(0x2800 + bits) if bits else " "
