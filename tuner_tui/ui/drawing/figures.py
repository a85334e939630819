"""A grid of labels and right-aligned values: the values are slices, so a new figure repaints only itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tuner_tui.ui.drawing.cells import Line, Row, Run, Style, left, line, right

CELL_WIDTH = 18
LABEL_WIDTH = 10


@dataclass(frozen=True, slots=True)
class Figure:
    """One labelled value; `style` marks a state."""

    label: str
    value: str
    style: Style = ""


def figure_rows(figures: Sequence[Figure], width: int, rank: int) -> list[Row]:
    """The figures in as many columns as fit, filled row by row."""
    columns = max(1, min(len(figures), width // CELL_WIDTH))
    cell = max(1, width // columns)
    return [_row(figures[start : start + columns], cell, rank) for start in range(0, len(figures), columns)]


def _row(figures: Sequence[Figure], cell: int, rank: int) -> Row:
    label = min(LABEL_WIDTH, max(0, cell - 8))
    value = min(9, max(1, cell - label - 1))
    gap = cell - label - value
    parts: list[Line] = [
        line(Run(left(f.label, label), "dim"), Run(right(f.value, value), f.style), " " * gap)
        for f in figures
    ]
    slices = tuple((index * cell + label, index * cell + label + value) for index in range(len(figures)))
    return Row(line(*parts), rank, slices)


def marked(style: Style, text: str, mark: str) -> Line:
    """A sentence behind its mark, so that its state can be read without colour."""
    return line(Run(f"{mark} ", style), Run(text, style))
