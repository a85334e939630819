"""The plots panel: loss, evaluation loss, throughput and memory over the whole run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from textual.reactive import reactive

from tuner_tui.core.units import format_size
from tuner_tui.ui.terminal.base_widgets import Canvas
from tuner_tui.view import number_format as f
from tuner_tui.view.cells import Row, fit, line
from tuner_tui.view.charts import Plot, plot_rows

if TYPE_CHECKING:
    from tuner_tui.runs.events.history import History
    from tuner_tui.runs.events.run_state import RunState

NARROWEST = 36
SHORTEST = 6


def plots_rows(history: History, last_step: int | None, width: int, height: int) -> list[Row]:
    """Return as many plots as fit, most important first."""
    shown = [
        Plot("loss, smoothed", history.loss, f.significant, shows_newest=False),
        Plot("eval loss", history.eval_loss, f.significant),
        Plot(f"throughput, {history.samples_s.unit}", history.samples_s, f.significant, from_zero=True),
        Plot("peak memory", history.memory_bytes, format_size, from_zero=True),
    ]
    columns = next((columns for columns in (4, 2) if width // columns >= NARROWEST), 1)
    plots = [plot._replace(last_step=last_step) for plot in shown]
    lines = max(1, min(-(-len(plots) // columns), height // SHORTEST))
    cell_width, cell_height = width // columns, height // lines
    drawn = [plot_rows(plot, cell_width - 1, cell_height) for plot in plots[: columns * lines]]
    rows: list[Row] = []
    for start in range(0, len(drawn), columns):
        for together in zip(*drawn[start : start + columns], strict=False):
            cells = [fit(row.line, cell_width) for row in together]
            rows.append(Row(line(*cells)))
    return rows


class PlotsPanel(Canvas):
    """Shows `state.last_step` steps of `history`, the downsampled series of the followed run."""

    REDRAW_ON = ("history",)

    history: reactive[History | None] = reactive(None, repaint=False)
    state: reactive[RunState | None] = reactive(None, repaint=False)

    def rows(self, width: int, height: int) -> Sequence[Row]:
        from tuner_tui.runs.events.history import History  # not needed for the first frame

        history = self.history or History()
        return plots_rows(history, None if self.state is None else self.state.last_step, width, height)
