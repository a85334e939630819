"""Lines of a log as rows, hits of a search marked."""

from __future__ import annotations

import re
from collections.abc import Sequence

from tuner_tui.ui.drawing.cells import Line, Row, Run, crop, line, width_of


def log_rows(lines: Sequence[str], needle: str, width: int, skipped: int = 0) -> list[Row]:
    """A row a line, from cell `skipped` on; a sign at either end says that the line goes on there."""
    return [Row(_cut(highlighted(text, needle), width, skipped)) for text in lines]


def _cut(cells: Line, width: int, skipped: int) -> Line:
    if not skipped:
        return cells
    if width_of(cells) <= skipped:
        return ()
    return line(Run("…", "dim"), crop(cells, skipped + 1, width_of(cells)))


def highlighted(text: str, needle: str) -> Line:
    """`text` with every place that holds `needle` marked, upper and lower case alike."""
    if not needle:
        return line(text)
    parts: list[Run] = []
    end = 0
    for match in re.finditer(re.escape(needle), text, re.IGNORECASE):
        parts += [Run(text[end : match.start()]), Run(match.group(), "hit")]
        end = match.end()
    return line(*parts, text[end:])
