"""The output panel: the training's log, one window of it at a time, searchable; memory does not grow with the log."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

from textual.binding import Binding, BindingType
from textual.reactive import reactive

from tuner_tui.ui.drawing.cells import Row
from tuner_tui.ui.drawing.log_rows import log_rows
from tuner_tui.ui.messages import LogSearchWanted
from tuner_tui.ui.widgets.canvas import Canvas

if TYPE_CHECKING:
    from tuner_tui.runs.log import LogWindow


class OutputPanel(Canvas, can_focus=True):
    """Shows `log_window`; asks for others by `LogWindowWanted` and `LogSearchWanted`."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("n", "search(False)", "Next hit", id="output.next"),
        Binding("N", "search(True)", "Previous hit", id="output.previous"),
    ]
    log_window: reactive[LogWindow | None] = reactive(None, repaint=False)
    needle: reactive[str] = reactive("", repaint=False)

    def watch_log_window(self) -> None:
        self.redraw()

    def watch_needle(self) -> None:
        self.redraw()

    def action_search(self, backwards: bool) -> None:
        """Ask for the next or previous window that holds the text searched for."""
        if self.needle:
            self.post_message(LogSearchWanted(self.needle, backwards))

    def rows(self, width: int, height: int) -> Sequence[Row]:
        lines = self.log_window.lines if self.log_window else ()
        return log_rows(lines, self.needle, width, height)
