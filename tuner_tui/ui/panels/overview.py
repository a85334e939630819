"""The status line: one row at the top of the main screen, on every page and at every size."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from textual.reactive import reactive

from tuner_tui.ui.drawing.cells import Row, shorten
from tuner_tui.ui.drawing.status_line import StatusScene, status_line
from tuner_tui.ui.widgets.canvas import Canvas

if TYPE_CHECKING:
    from tuner_tui.runs.read.reader import RunView


TITLE_WIDTH = 32


class StatusLine(Canvas):
    """Shows the followed run `view` by its `run_name`, or `idle_line` without one."""

    DEFAULT_CSS = "StatusLine { height: 1; padding: 0 1; }"
    REDRAW_ON = ("view", "now_s", "run_name", "idle_line")

    view: reactive[RunView | None] = reactive(None, repaint=False)
    now_s: reactive[float] = reactive(0.0, repaint=False)
    run_name: reactive[str] = reactive("", repaint=False)
    idle_line: reactive[str] = reactive("", repaint=False)

    def rows(self, width: int, height: int) -> Sequence[Row]:
        return [Row(status_line(self._scene(), width))]

    def _scene(self) -> StatusScene:
        view = self.view
        if view is None:
            return StatusScene(self.idle_line, self.run_name)
        record = view.record
        return StatusScene(
            name=self.run_name,
            trains="" if record is None else shorten(record.title, TITLE_WIDTH),
            state=view.state,
            now_s=self.now_s,
            limit_bytes=None if record is None else record.memory_limit_bytes,
            lost="" if view.status.live else view.status.sentence,
        )
