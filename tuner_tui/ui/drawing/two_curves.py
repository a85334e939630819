"""Two curves in one plot, told apart without colour too: the first is dotted, the second drawn through."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

from tuner_tui.ui.drawing.cells import Row, Run, fit, line, right, shorten, text_width
from tuner_tui.ui.drawing.curve import scale
from tuner_tui.ui.drawing.plot import AXIS, draw, nice_end
from tuner_tui.ui.format import figure

Points = Sequence[tuple[float, float]]
BRAILLE = 0x2800
SPARSE = 0x47
"""The left dots of a cell: a curve of only these is dotted."""
LEAST_WIDTH = AXIS + 12


def two_curves(title: str, names: tuple[str, str], curves: tuple[Points, Points], width: int, height: int) -> list[Row]:
    """Heading, both curves on common axes, the end of the x axis: `height` rows; none where neither has two points."""
    if width < LEAST_WIDTH or height < 4 or not any(len(curve) > 1 for curve in curves):
        return []
    points = list(chain(*curves))
    low, high = scale([y for _, y in points])
    end = nice_end(max(x for x, _ in points))
    body, room = height - 2, width - AXIS - 1
    dotted, through = (
        draw(curve, (0.0, end), (low, high), room, body) if curve else [" " * room] * body for curve in curves
    )
    labels = {0: figure(high), body - 1: figure(low)}
    rows = [
        Row(line(Run(right(labels.get(y, ""), AXIS) + "│", "dim"), *_together(dotted[y], through[y])))
        for y in range(body)
    ]
    foot = " " * (AXIS + 1) + "0" + right(f"{end:,.0f} samples", room - 1)
    return [_heading(title, names, width), *rows, Row(line(Run(foot, "dim")))]


def _heading(title: str, names: tuple[str, str], width: int) -> Row:
    first, second = (shorten(name, (width - text_width(title)) // 2 - 8) for name in names)
    return Row(fit(line(Run(title, "strong"), Run(f"   ⠁⠁ {first}", "dim"), f"   ⠒⠒ {second}"), width))


def _together(dotted: str, through: str) -> list[Run]:
    return [_cell(one, other) for one, other in zip(dotted, through, strict=True)]


def _cell(dotted: str, through: str) -> Run:
    """The bits of both; where only the first passes, every other dot of it, dim."""
    if through != " ":
        return Run(chr(BRAILLE | (_bits(dotted) & SPARSE) | _bits(through)))
    sparse = _bits(dotted) & SPARSE
    return Run(chr(BRAILLE | sparse) if sparse else " ", "dim")


def _bits(cell: str) -> int:
    return 0 if cell == " " else ord(cell) - BRAILLE
