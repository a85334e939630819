"""Lines of a log as rows: control characters taken out, hits of a search marked."""

from __future__ import annotations

import re
from collections.abc import Sequence

from tuner_tui.ui.drawing.cells import Line, Row, Run, line

ESCAPES = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b.")
CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def clean(text: str) -> str:
    """`text` as one harmless line: colours and cursor moves gone, tabs as spaces, what `\\r` overwrote dropped."""
    text = text.rstrip("\r\n").rpartition("\r")[2]
    return CONTROLS.sub("", ESCAPES.sub("", text)).expandtabs(8)


def log_rows(lines: Sequence[str], needle: str, width: int, height: int) -> list[Row]:
    """The last `height` of `lines`."""
    return [Row(highlighted(clean(text), needle)) for text in lines[-height:]]


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
