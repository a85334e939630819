"""The host of the watch screen: processor, memory, disk, every core."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING

from textual.reactive import reactive

from tuner_tui.hardware.sample import Sample
from tuner_tui.ui.drawing.cells import Row
from tuner_tui.ui.drawing.host_rows import host_rows
from tuner_tui.ui.widgets.canvas import Canvas

if TYPE_CHECKING:
    from tuner_tui.runs.read.box_monitor import BoxView

RECENT_SAMPLES = 12
"""What the cores' mean needs."""


class WatchedHostPanel(Canvas):
    """Shows the host of `view`."""

    view: reactive[BoxView | None] = reactive(None, repaint=False)

    def __init__(self, *, id: str | None = None, classes: str | None = None) -> None:
        super().__init__(id=id, classes=classes)
        self._seen: deque[Sample] = deque(maxlen=RECENT_SAMPLES)
        self._drawn: tuple[BoxView | None, int] | None = None
        self._rows: list[Row] = []

    def watch_view(self, view: BoxView | None) -> None:
        if view is not None and view.sample.host.per_core_pct:
            self._seen.append(view.sample)
        self.redraw()

    def rows(self, width: int, height: int) -> Sequence[Row]:
        return self.picture(width)[:height]

    def picture(self, width: int) -> list[Row]:
        """All rows, drawn once a view; of a low screen the first ones are shown."""
        view = self.view
        if view is not None and (self._drawn is None or self._drawn[0] is not view or self._drawn[1] != width):
            self._drawn = (view, width)
            self._rows = host_rows(view.sample, tuple(self._seen), width, 0, all_cores=False)
        return self._rows
