"""Tables of text: columns as wide as what stands in them, the last one taking what is left."""

from __future__ import annotations

from collections.abc import Sequence

from tuner_tui.ui.drawing.cells import Line, Row, Run, Style, left, line, right, text_width

GAP = 2


def widths(rows: Sequence[Sequence[str]], most: Sequence[int], width: int) -> list[int]:
    """The cells of each column: its widest text, at most `most` of it; all together at most `width`."""
    found = [min(most[at], max((text_width(row[at]) for row in rows), default=0)) for at in range(len(most))]
    over = sum(found) + GAP * (len(found) - 1) - width
    while over > 0 and max(found) > 1:
        widest = found.index(max(found))
        found[widest] -= 1
        over -= 1
    return found


def cells(texts: Sequence[str], columns: Sequence[int], styles: Sequence[Style], aligned: str) -> Line:
    """One row: `aligned` has `l` or `r` for each column."""
    parts: list[Run] = []
    for text, width, style, side in zip(texts, columns, styles, aligned, strict=True):
        gap = " " * GAP if parts else ""
        parts.append(Run(gap + (right if side == "r" else left)(text, width), style))
    return line(*parts)


def beside(one: Sequence[Row], other: Sequence[Row], at: int) -> list[Row]:
    """Two pictures side by side, the second from cell `at` on."""
    from tuner_tui.ui.drawing.cells import fit

    count = max(len(one), len(other))
    pairs = ((one[y].line if y < len(one) else (), other[y].line if y < len(other) else ()) for y in range(count))
    return [Row(line(*fit(first, at), *second)) for first, second in pairs]
