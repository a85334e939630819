"""The plots of a run: one above the other, or side by side where the place is wide."""

from __future__ import annotations

from collections.abc import Callable

from tuner_tui.runs.history import History, Series
from tuner_tui.ui import format as f
from tuner_tui.ui.drawing.cells import Row, fit, line
from tuner_tui.ui.drawing.plot import plot_rows

Number = Callable[[float | None], str]
NARROWEST = 30
SHORTEST = 6


def plots_rows(history: History, width: int, height: int) -> list[Row]:
    """As many plots as fit, most important first."""
    plots: list[tuple[str, Series, Number]] = [
        ("loss", history.loss, f.metric),
        ("eval loss", history.eval_loss, f.metric),
        ("throughput", history.samples_s, f.figure),
        ("peak memory", history.memory_bytes, f.size),
    ]
    columns = max(1, min(len(plots), width // NARROWEST))
    lines = max(1, min(-(-len(plots) // columns), height // SHORTEST))
    cell_width, cell_height = width // columns, height // lines
    drawn = [
        plot_rows(title, series, number, cell_width - 1, cell_height)
        for title, series, number in plots[: columns * lines]
    ]
    rows: list[Row] = []
    for start in range(0, len(drawn), columns):
        for together in zip(*drawn[start : start + columns], strict=False):
            cells = [fit(row.line, cell_width) for row in together]
            rows.append(Row(line(*cells)))
    return rows
