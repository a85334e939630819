"""The visible lines of a log."""

from __future__ import annotations

from collections.abc import Sequence

from textual import events
from textual.message import Message
from textual.reactive import reactive

from tuner_tui.ui.drawing.cells import Row, Run, line
from tuner_tui.ui.drawing.log_rows import log_rows
from tuner_tui.ui.widgets.canvas import Canvas


class LogLines(Canvas):
    """Shows `lines` from the first on, `skipped` cells of each left out, every `needle` marked."""

    DEFAULT_CSS = "LogLines { height: 1fr; }"

    lines: reactive[tuple[str, ...]] = reactive((), init=False, repaint=False)
    needle: reactive[str] = reactive("", init=False, repaint=False)
    skipped: reactive[int] = reactive(0, init=False, repaint=False)

    class HeightChanged(Message):
        """There is room for another number of lines."""

    def on_resize(self, _event: events.Resize) -> None:
        self.post_message(self.HeightChanged())

    def watch_lines(self) -> None:
        self.redraw()

    def watch_needle(self) -> None:
        self.redraw()

    def watch_skipped(self) -> None:
        self.redraw()

    def rows(self, width: int, height: int) -> Sequence[Row]:
        if not self.lines:
            return [Row(line(Run("No output yet.", "dim")))]
        return log_rows(self.lines[:height], self.needle, width, self.skipped)
