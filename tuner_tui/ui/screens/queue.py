"""The queue: a row for each waiting run and the reason why it waits; keys remove and add one."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from textual.binding import BindingType
from textual.reactive import reactive

from tuner_tui.core.text import wrap_text
from tuner_tui.core.units import format_short_duration
from tuner_tui.ui.drawing.cells import Row, Style, TextSpan, align_left, line, shorten
from tuner_tui.ui.drawing.watch_rows import visible_rows
from tuner_tui.ui.keys import QUEUE_KEYS, QUEUE_RUN_KEYS
from tuner_tui.ui.messages import QueueAddWanted, QueuedRunWanted, QueueRemovalWanted
from tuner_tui.ui.screens.sub_screen import PanelScreen
from tuner_tui.ui.terminal.base_widgets import Canvas

if TYPE_CHECKING:
    from tuner_tui.runs.queue.listing import QueueLine


EMPTY = "The queue is empty. a adds the training shown; it starts when its GPUs are free."
RUN, STATE, AGE = 6, 13, 9
LEAST_IN_MINUTES_S = 90
"""From here on `format_short_duration` counts minutes."""
INDENT = 4


def queue_rows(lines: Sequence[QueueLine], cursor: str | None, now_s: float, width: int) -> tuple[list[Row], int]:
    """Return all rows, and the index of the first row of the run under the cursor."""
    if not lines:
        return [Row(line(TextSpan(part, "dim"))) for part in wrap_text(EMPTY, max(20, width))], 0
    rows = [Row(line(TextSpan(f"  {'run':<{RUN}}{'state':<{STATE}}{'waiting':<{AGE}}command", "dim")))]
    at = 0
    for waiting in lines:
        if waiting.run == cursor:
            at = len(rows)
        rows.append(_run_row(waiting, waiting.run == cursor, now_s, width))
        style: Style = "bad" if waiting.state == "damaged" else "dim"
        parts = wrap_text(waiting.reason, max(20, width - INDENT)) if waiting.reason else ()
        rows += [Row(line(" " * INDENT, TextSpan(part, style))) for part in parts]
    return rows, at


def _run_row(waiting: QueueLine, chosen: bool, now_s: float, width: int) -> Row:
    emphasis: Style = "strong" if chosen else ""
    age = "" if waiting.submitted_t is None else _age(now_s - waiting.submitted_t)
    state = TextSpan(align_left(waiting.state, STATE), emphasis if waiting.state == "waiting" else "warn")
    title = shorten(" ".join(waiting.title.split()), max(0, width - 2 - RUN - STATE - AGE))
    return Row(
        line(
            TextSpan("▸ " if chosen else "  ", "strong"),
            TextSpan(align_left(waiting.run, RUN), emphasis),
            state,
            TextSpan(align_left(age, AGE) + title, emphasis),
        )
    )


def _age(seconds: float) -> str:
    """Minutes at the finest: seconds would repaint every row each second, and not fit into the column."""
    return "<1 min" if seconds < 60 else format_short_duration(max(seconds, LEAST_IN_MINUTES_S))


class QueuePanel(Canvas, can_focus=True):
    """Shows `lines`; `cursor` is the id of a run."""

    BINDINGS: ClassVar[list[BindingType]] = [*QUEUE_RUN_KEYS]
    REDRAW_ON = ("lines", "cursor", "now_s")

    lines: reactive[tuple[QueueLine, ...]] = reactive((), repaint=False)
    cursor: reactive[str | None] = reactive(None, repaint=False)
    now_s: reactive[float] = reactive(time.time, repaint=False)

    @property
    def chosen(self) -> QueueLine | None:
        """The run under the cursor: the first one where the cursor is at none."""
        return next((line for line in self.lines if line.run == self.cursor), next(iter(self.lines), None))

    def rows(self, width: int, height: int) -> Sequence[Row]:
        chosen = self.chosen
        rows, at = queue_rows(self.lines, None if chosen is None else chosen.run, self.now_s, width)
        return visible_rows(rows, at, height)

    def action_move(self, by: int) -> None:
        runs = [line.run for line in self.lines]
        chosen = self.chosen
        if chosen is not None:
            self.cursor = runs[max(0, min(len(runs) - 1, runs.index(chosen.run) + by))]

    def action_show(self) -> None:
        if self.chosen is not None:
            self.post_message(QueuedRunWanted(Path(self.chosen.path)))

    def action_remove(self) -> None:
        if self.chosen is not None:
            self.post_message(QueueRemovalWanted(self.chosen.run, Path(self.chosen.path)))


QUEUE_GLOSSARY = (
    ("waiting", "it starts when its GPUs are free; the reason is on the line below"),
    ("order", "first come, first served"),
    ("was-waiting", "when the machine was restarted; `tuner-tui queue --restart` queues it again"),
)


class QueueScreen(PanelScreen):
    """Shows `lines`, which the app sets."""

    BINDINGS: ClassVar[list[BindingType]] = [*QUEUE_KEYS]
    HELP_KEYS = (*QUEUE_RUN_KEYS, *QUEUE_KEYS)
    GLOSSARY = QUEUE_GLOSSARY

    panel: QueuePanel
    lines: reactive[tuple[QueueLine, ...]] = reactive((), init=False, repaint=False)

    def __init__(self) -> None:
        super().__init__(QueuePanel(), "Queue")

    def watch_lines(self, lines: tuple[QueueLine, ...]) -> None:
        self.panel.now_s = time.time()
        self.panel.lines = lines
        self.set_panel_title(self.panel, f"Queue · {len(lines)} waiting" if lines else "Queue")

    def action_add(self) -> None:
        """Queue the training that the main screen shows."""
        self.post_message(QueueAddWanted())
