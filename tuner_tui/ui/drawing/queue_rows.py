"""The queue as rows: a line for each entry, and below it the reason why it waits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tuner_tui.core.text import wrap_text
from tuner_tui.core.units import format_rough_duration
from tuner_tui.ui.drawing.cells import BAD, Row, Style, TextSpan, align_left, line, shorten

if TYPE_CHECKING:
    from tuner_tui.scheduling.queueing import QueuedRun

STYLES: dict[str, Style] = {"running": "good", "starting": "good", "held": "warn", "damaged": "bad"}
EMPTY = "The queue is empty. a adds the training shown; it starts when a card has room for it."
ENTRY, STATE, AGE = 7, 10, 9
INDENT = 4


def queue_rows(lines: Sequence[QueuedRun], cursor: str | None, now_s: float, width: int) -> tuple[list[Row], int]:
    """Return all rows, and the index of the first row of the entry under the cursor."""
    if not lines:
        return [Row(line(TextSpan(part, "dim"))) for part in wrap_text(EMPTY, max(20, width))], 0
    rows = [Row(line(TextSpan(f"  {'entry':<{ENTRY}}{'state':<{STATE}}{'waiting':<{AGE}}what", "dim")))]
    at = 0
    for one in lines:
        if one.entry == cursor:
            at = len(rows)
        rows.append(_entry_row(one, one.entry == cursor, now_s, width))
        style: Style = "bad" if one.state == "damaged" else "warn" if one.state == "held" else "dim"
        rows += [
            Row(line(" " * INDENT, TextSpan(part, style)))
            for part in (wrap_text(one.reason, max(20, width - INDENT)) if one.reason else ())
        ]
    return rows, at


def _entry_row(one: QueuedRun, chosen: bool, now_s: float, width: int) -> Row:
    emphasis: Style = "strong" if chosen else ""
    waited = "" if one.queued_t is None or one.state == "running" else _age(now_s - one.queued_t)
    what = one.title or (f"{BAD} damaged" if one.state == "damaged" else "")
    run = f"{one.run}  " if one.run and one.state == "running" else ""
    head = TextSpan(align_left(one.entry, ENTRY), emphasis)
    state = TextSpan(align_left(one.state, STATE), STYLES.get(one.state, emphasis))
    room = max(0, width - 2 - ENTRY - STATE - AGE)
    rest = TextSpan(align_left(waited, AGE) + shorten(run + " ".join(what.split()), room), emphasis)
    return Row(line(TextSpan("▸ " if chosen else "  ", "strong"), head, state, rest))


def _age(seconds: float) -> str:
    """Minutes at the finest: seconds would repaint every row each second."""
    return "<1 min" if seconds < 60 else format_rough_duration(seconds // 60 * 60)
