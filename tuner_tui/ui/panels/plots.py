"""The plots panel: loss, evaluation loss, throughput and memory over the whole run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from textual.reactive import reactive

from tuner_tui.ui.terminal.base_widgets import Canvas
from tuner_tui.view.live_rows import plots_rows

if TYPE_CHECKING:
    from tuner_tui.runs.events.history import History
    from tuner_tui.runs.events.run_state import RunState
    from tuner_tui.view.cells import Row


class PlotsPanel(Canvas):
    """Shows `state.last_step` steps of `history`, the downsampled series of the followed run."""

    REDRAW_ON = ("history",)

    history: reactive[History | None] = reactive(None, repaint=False)
    state: reactive[RunState | None] = reactive(None, repaint=False)

    def rows(self, width: int, height: int) -> Sequence[Row]:
        from tuner_tui.runs.events.history import History  # not needed for the first frame

        history = self.history or History()
        return plots_rows(history, None if self.state is None else self.state.last_step, width, height)
