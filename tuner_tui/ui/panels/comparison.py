"""The comparison panel: two runs side by side."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from textual.reactive import reactive

from tuner_tui.ui.drawing.cells import Row
from tuner_tui.ui.drawing.compare_rows import compare_rows
from tuner_tui.ui.widgets.canvas import Canvas

if TYPE_CHECKING:
    from tuner_tui.ui.backend.runs import ComparedRuns


class ComparisonPanel(Canvas, can_focus=True):
    """Shows `compared`; None while the runs are being read."""

    compared: reactive[ComparedRuns | None] = reactive(None, repaint=False)

    def watch_compared(self) -> None:
        self.redraw()

    def rows(self, width: int, height: int) -> Sequence[Row]:
        return compare_rows(self.compared, width, height)
