"""Tables of text and grids of labelled values."""

from __future__ import annotations

from collections.abc import Sequence

from tuner_tui.core.units import format_short_duration
from tuner_tui.ui.drawing.cells import Line, Row, Style, TextSpan, align_left, align_right, line, text_width
from tuner_tui.ui.drawing.sample_history import BUCKET_S

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
SCALE = 13
"""Cells to the right of a chart, for the value of its full height and its span."""
MOST_COLUMNS = 120
CHART_BUCKETS = 2
"""Buckets per column of a chart of several rows: all its columns move every ten seconds, which costs bytes."""


def labelled_row(label: str, *parts: str | TextSpan | Line, rank: int = 1) -> Row:
    """Return a row with a dim label and its contents."""
    return Row(line(TextSpan(align_left(label, LABEL), "dim"), *parts), rank)


def chart_columns(width: int) -> int:
    """Return the number of columns of a chart in `width` cells, after its label and before its scale."""
    return max(0, min(MOST_COLUMNS, width - LABEL - SCALE))


def chart_span(width: int) -> str:
    """Return the time that a chart in `width` cells spans, such as `last 10 min`."""
    return f"last {format_short_duration(chart_columns(width) * CHART_BUCKETS * BUCKET_S)}"


def chart_rows(label: str, chart: Sequence[str], maximum: str, width: int, rank: int) -> list[Row]:
    """Return the lines of a chart between its label and its scale; a second line has its span."""
    scale = [f"max {maximum}", chart_span(width)]
    return [
        labelled_row(
            "" if number else label,
            TextSpan(text, "gauge"),
            TextSpan(align_right("".join(scale[number : number + 1]), SCALE), "dim"),
            rank=rank,
        )
        for number, text in enumerate(chart)
    ]
