"""The bar under the settings: the memory that they would take."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from textual.reactive import reactive

from tuner_tui.ui.drawing.cells import Row
from tuner_tui.ui.drawing.estimate_rows import estimate_rows
from tuner_tui.ui.widgets.canvas import Canvas

if TYPE_CHECKING:
    from tuner_tui.ui.backend.estimates import MemoryOutlook


class EstimateBar(Canvas):
    """Shows `outlook`; None while nothing is known of it. One row where there is little room, else two."""

    outlook: reactive[MemoryOutlook | None] = reactive(None, repaint=False)

    def watch_outlook(self) -> None:
        self.redraw()

    def rows(self, width: int, height: int) -> Sequence[Row]:
        return estimate_rows(self.outlook, width)[:height]
