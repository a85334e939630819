"""The queue: a row for each entry and the reason why it waits; keys remove, hold, release and move it."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

from textual.binding import BindingType
from textual.reactive import reactive

from tuner_tui.core.text import wrap_text
from tuner_tui.core.units import format_short_duration
from tuner_tui.ui.keys import QUEUE_ENTRY_KEYS, QUEUE_KEYS
from tuner_tui.ui.messages import QueueAddWanted, QueueOrderWanted
from tuner_tui.ui.screens.sub_screen import PanelScreen
from tuner_tui.ui.terminal.base_widgets import Canvas
from tuner_tui.view.cells import BAD, Row, Style, TextSpan, align_left, line, shorten
from tuner_tui.view.watch_rows import visible_rows

if TYPE_CHECKING:
    from tuner_tui.scheduling.queueing import QueuedRun


STYLES: dict[str, Style] = {"running": "good", "starting": "good", "held": "warn", "damaged": "bad"}
EMPTY = "The queue is empty. a adds the training shown; it starts when a GPU has room for it."
ENTRY, STATE, AGE = 7, 10, 9
LEAST_IN_MINUTES_S = 90
"""From here on `format_short_duration` counts minutes."""
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
    """Minutes at the finest: seconds would repaint every row each second, and not fit into the column."""
    return "<1 min" if seconds < 60 else format_short_duration(max(seconds, LEAST_IN_MINUTES_S))


class QueuePanel(Canvas, can_focus=True):
    """Shows `lines`; `cursor` is the name of an entry."""

    BINDINGS: ClassVar[list[BindingType]] = [*QUEUE_ENTRY_KEYS]
    REDRAW_ON = ("lines", "cursor", "now_s")

    lines: reactive[tuple[QueuedRun, ...]] = reactive((), repaint=False)
    cursor: reactive[str | None] = reactive(None, repaint=False)
    now_s: reactive[float] = reactive(time.time, repaint=False)

    @property
    def chosen(self) -> QueuedRun | None:
        """The entry under the cursor: the first one where the cursor is at none."""
        return next((one for one in self.lines if one.entry == self.cursor), next(iter(self.lines), None))

    def rows(self, width: int, height: int) -> Sequence[Row]:
        chosen = self.chosen
        rows, at = queue_rows(self.lines, None if chosen is None else chosen.entry, self.now_s, width)
        return visible_rows(rows, at, height)

    def action_move(self, by: int) -> None:
        names = [one.entry for one in self.lines]
        chosen = self.chosen
        if chosen is not None:
            self.cursor = names[max(0, min(len(names) - 1, names.index(chosen.entry) + by))]

    def action_order(self, what: str) -> None:
        """Ask for an order about the entry under the cursor; `hold` releases one that is held."""
        chosen = self.chosen
        if chosen is not None:
            what = "release" if what == "hold" and chosen.state == "held" else what
            self.post_message(QueueOrderWanted(what, chosen.entry))


QUEUE_GLOSSARY = (
    ("waiting", "it starts when its peak memory fits into what is free; the reason is on the line below"),
    ("order", "first in, first out; a later one passes only where that delays no earlier one"),
    ("held", "by you, or because it could not be started; h releases it"),
    ("whole GPU", "what a run needs is not known before one of its kind was measured: it has a GPU of its own"),
    ("queued q003", "an entry that starts at this moment"),
)


class QueueScreen(PanelScreen):
    """Shows `lines`, which the app sets."""

    BINDINGS: ClassVar[list[BindingType]] = [*QUEUE_KEYS]
    HELP_KEYS = (*QUEUE_ENTRY_KEYS, *QUEUE_KEYS)
    GLOSSARY = QUEUE_GLOSSARY

    panel: QueuePanel
    lines: reactive[tuple[QueuedRun, ...]] = reactive((), init=False, repaint=False)

    def __init__(self) -> None:
        super().__init__(QueuePanel(), "Queue")

    def watch_lines(self, lines: tuple[QueuedRun, ...]) -> None:
        self.panel.now_s = time.time()
        self.panel.lines = lines
        counts = [(state, sum(one.state == state for one in lines)) for state in ("running", "waiting", "held")]
        self.set_panel_title(self.panel, " · ".join(["Queue", *(f"{n} {state}" for state, n in counts if n)]))

    def action_add(self) -> None:
        """Queue the training that the main screen shows."""
        self.post_message(QueueAddWanted())
