"""The in-effect panel: what was asked for beside what the training process really does."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from textual.reactive import reactive

from tuner_tui.ui.drawing.cells import Row
from tuner_tui.ui.drawing.in_effect_rows import in_effect_rows
from tuner_tui.ui.widgets.canvas import Canvas

if TYPE_CHECKING:
    from tuner_tui.runs.events.run_state import RunState
    from tuner_tui.runs.store.record import RunRecord


class InEffectPanel(Canvas, can_focus=True):
    """Compares what the run was started with, its `record`, with `state.in_effect`."""

    state: reactive[RunState | None] = reactive(None, repaint=False)
    record: reactive[RunRecord | None] = reactive(None, repaint=False)

    def watch_state(self) -> None:
        self.redraw()

    def watch_record(self) -> None:
        self.redraw()

    def rows(self, width: int, height: int) -> Sequence[Row]:
        return in_effect_rows(self.state, self.record, width)
