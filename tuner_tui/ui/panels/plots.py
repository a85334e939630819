"""The plots panel: loss, throughput and memory over the whole run."""

from __future__ import annotations

from collections.abc import Sequence

from textual.reactive import reactive

from tuner_tui.runs.events.history import History
from tuner_tui.ui.drawing.cells import Row
from tuner_tui.ui.drawing.plots_rows import plots_rows
from tuner_tui.ui.widgets.canvas import Canvas


class PlotsPanel(Canvas):
    """Shows `history`, the thinned series of the followed run."""

    history: reactive[History] = reactive(History(), repaint=False)

    def watch_history(self) -> None:
        self.redraw()

    def rows(self, width: int, height: int) -> Sequence[Row]:
        return plots_rows(self.history, width, height)
