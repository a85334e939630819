"""The panels of the tune screen: status, trials, plots and skipped changes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

from textual.reactive import reactive

from tuner_tui.ui.drawing.cells import Row
from tuner_tui.ui.drawing.tuning_rows import skipped_rows, trial_rows, tuning_plots, tuning_rows
from tuner_tui.ui.widgets.canvas import Canvas

if TYPE_CHECKING:
    from tuner_tui.tuning.process.tuning_reader import TuningView


class TuningPanel(Canvas):
    """A panel that shows part of `view`; None while it is being read."""

    REDRAW_ON: ClassVar[tuple[str, ...]] = ("view",)

    view: reactive[TuningView | None] = reactive(None, repaint=False)


class TuningHead(TuningPanel):
    """The running trial with its reason, or the conclusion. `now_s` is in seconds since the epoch."""

    REDRAW_ON = ("view", "now_s")

    now_s: reactive[float | None] = reactive(None, repaint=False)

    def rows(self, width: int, height: int) -> Sequence[Row]:
        return self.picture(width)

    def picture(self, width: int) -> Sequence[Row]:
        """Return all rows for `width` cells."""
        return tuning_rows(self.view, self.now_s, width)


class TrialsPanel(TuningPanel, can_focus=True):
    """The table of trials, which follows the newest one until it is scrolled."""

    def __init__(self, *, id: str | None = None, classes: str | None = None) -> None:
        super().__init__(id=id, classes=classes)
        self._at_end = True

    def rows(self, width: int, height: int) -> Sequence[Row]:
        rows = trial_rows(self.view, width)
        if self._at_end:
            self.set_reactive(Canvas.top, max(0, len(rows) - height))
        return rows

    def action_scroll_rows(self, by: int) -> None:
        """Scroll by rows; at the end new trials are followed."""
        rows = len(trial_rows(self.view, self.size.width))
        super().action_scroll_rows(by)
        self._at_end = self.top >= rows - self.size.height


class TuningPlots(TuningPanel):
    """Throughput and memory against the micro batch."""

    def rows(self, width: int, height: int) -> Sequence[Row]:
        return tuning_plots(self.view, width, height)


class SkippedPanel(TuningPanel, can_focus=True):
    """Changes that were not tried, with reasons."""

    def rows(self, width: int, height: int) -> Sequence[Row]:
        return skipped_rows(self.view, width)
