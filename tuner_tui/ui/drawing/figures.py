"""A grid of labels and right-aligned values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tuner_tui.ui.drawing.cells import Line, Row, Run, Style, left, line, right

NARROWEST = 18
LABEL = 10
LONGEST_VALUE = 9
SCALE = 9
"""Cells at the right end of a history, for what its full height stands for."""


@dataclass(frozen=True, slots=True)
class Figure:
    """One labelled value. `style` marks a state, `rank` says how soon its row may go."""

    label: str
    value: str
    style: Style = ""
    rank: int = 1


def columns_for(width: int) -> int:
    """Columns of the grid: numbers that divide twelve, so that the rows are full."""
    return next((columns for columns in (6, 4, 3, 2) if width // columns >= NARROWEST), 1)


def value_span(width: int) -> tuple[int, int]:
    """The cells of the first column's value, for rows that align with the grid."""
    cell = width // columns_for(width)
    value = max(1, min(LONGEST_VALUE, cell - LABEL - 1))
    return LABEL, LABEL + value


def figure_rows(figures: Sequence[Figure], width: int) -> list[Row]:
    """The figures, filled row by row into as many columns as fit."""
    columns = columns_for(width)
    return [_row(figures[start : start + columns], width) for start in range(0, len(figures), columns)]


def _row(figures: Sequence[Figure], width: int) -> Row:
    cell = width // columns_for(width)
    start, end = value_span(width)
    parts = [_cell(figure, cell, start, end) for figure in figures]
    return Row(line(*parts), min(figure.rank for figure in figures))


def _cell(figure: Figure, cell: int, start: int, end: int) -> Line:
    value = Run(right(figure.value, end - start), figure.style)
    return line(Run(left(figure.label, start), "dim"), value, " " * max(0, cell - end))


def labelled(label: str, *parts: str | Run | Line, rank: int = 1) -> Row:
    """A row of a quiet label and what stands beside it."""
    return Row(line(Run(left(label, LABEL), "dim"), *parts), rank)
