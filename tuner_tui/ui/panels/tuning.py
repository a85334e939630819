"""The panels of the tune screen: how it stands, the trials, their plots, and what was left out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from textual.reactive import reactive

from tuner_tui.ui.drawing.cells import Row
from tuner_tui.ui.drawing.tuning_rows import skipped_rows, trial_rows, tuning_plots, tuning_rows
from tuner_tui.ui.widgets.canvas import Canvas

if TYPE_CHECKING:
    from tuner_tui.tuning.process.tuning_reader import TuningView


class TuningPanel(Canvas):
    """Shows something of `view`; None while it is being read."""

    view: reactive[TuningView | None] = reactive(None, repaint=False)

    def watch_view(self) -> None:
        self.redraw()


class TuningHead(TuningPanel):
    """The trial under way with its reason, or the verdict. `now_s` is seconds since the epoch."""

    now_s: reactive[float | None] = reactive(None, repaint=False)

    def watch_now_s(self) -> None:
        self.redraw()

    def rows(self, width: int, height: int) -> Sequence[Row]:
        return self.picture(width)

    def picture(self, width: int) -> Sequence[Row]:
        """All that it says in `width` cells."""
        return tuning_rows(self.view, self.now_s, width)


class TrialsPanel(TuningPanel, can_focus=True):
    """The table of trials; the newest stay in sight unless somebody scrolls."""

    def __init__(self, *, id: str | None = None, classes: str | None = None) -> None:
        super().__init__(id=id, classes=classes)
        self._at_end = True

    def rows(self, width: int, height: int) -> Sequence[Row]:
        rows = trial_rows(self.view, width)
        if self._at_end:
            self.set_reactive(Canvas.top, max(0, len(rows) - height))
        return rows

    def action_scroll_rows(self, by: int) -> None:
        """Some rows on, or back where `by` is negative; at the end it stays there."""
        rows = len(trial_rows(self.view, self.size.width))
        super().action_scroll_rows(by)
        self._at_end = self.top >= rows - self.size.height


class TuningPlots(TuningPanel):
    """Throughput and memory against the micro batch."""

    def rows(self, width: int, height: int) -> Sequence[Row]:
        return tuning_plots(self.view, width, height)


class SkippedPanel(TuningPanel, can_focus=True):
    """Knobs that were not tried, with the reason."""

    def rows(self, width: int, height: int) -> Sequence[Row]:
        return skipped_rows(self.view, width)
