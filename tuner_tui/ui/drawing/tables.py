"""Tables of text and grids of labelled values."""

from __future__ import annotations

from collections.abc import Sequence

from tuner_tui.ui.drawing.cells import Line, Row, Style, TextSpan, align_left, align_right, line, text_width

GAP = 2


def column_widths(rows: Sequence[Sequence[str]], most: Sequence[int], width: int) -> list[int]:
    """Return column widths: the widest text, at most `most` each, shrunk to `width` cells in all."""
    found = [min(most[at], max((text_width(row[at]) for row in rows), default=0)) for at in range(len(most))]
    over = sum(found) + GAP * (len(found) - 1) - width
    while over > 0 and max(found) > 1:
        widest = found.index(max(found))
        found[widest] -= 1
        over -= 1
    return found


def table_line(texts: Sequence[str], columns: Sequence[int], styles: Sequence[Style], aligned: str) -> Line:
    """Return one row of a table; `aligned` has `l` or `r` for each column."""
    parts: list[TextSpan] = []
    for text, width, style, side in zip(texts, columns, styles, aligned, strict=True):
        gap = " " * GAP if parts else ""
        parts.append(TextSpan(gap + (align_right if side == "r" else align_left)(text, width), style))
    return line(*parts)


def side_by_side(one: Sequence[Row], other: Sequence[Row], at: int) -> list[Row]:
    """Return two pictures side by side, the second starting at cell `at`."""
    from tuner_tui.ui.drawing.cells import fit

    count = max(len(one), len(other))
    pairs = ((one[y].line if y < len(one) else (), other[y].line if y < len(other) else ()) for y in range(count))
    return [Row(line(*fit(first, at), *second)) for first, second in pairs]


LABEL = 10
SCALE = 12
"""Cells to the right of a chart, for the value of its full height."""


def labelled_row(label: str, *parts: str | TextSpan | Line, rank: int = 1) -> Row:
    """Return a row with a dim label and its contents."""
    return Row(line(TextSpan(align_left(label, LABEL), "dim"), *parts), rank)
