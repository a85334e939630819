"""The panel of the queue: its entries, one of which is under the cursor."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

from textual.binding import BindingType
from textual.reactive import reactive

from tuner_tui.ui.drawing.cells import Row
from tuner_tui.ui.drawing.queue_rows import queue_rows
from tuner_tui.ui.drawing.watch_rows import visible_rows
from tuner_tui.ui.keys import QUEUE_ENTRY_KEYS
from tuner_tui.ui.messages import QueueOrderWanted
from tuner_tui.ui.widgets.canvas import Canvas

if TYPE_CHECKING:
    from tuner_tui.scheduling.queueing import QueuedRun


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
        """Move the cursor by entries."""
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
