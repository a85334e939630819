"""The compare screen: two runs side by side, their settings, figures and losses."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from textual.binding import BindingType
from textual.reactive import reactive

from tuner_tui.ui.keys import COMPARE_KEYS
from tuner_tui.ui.records import ComparedRuns
from tuner_tui.ui.screens.sub_screen import PanelScreen
from tuner_tui.ui.terminal.base_widgets import Canvas
from tuner_tui.view.cells import Row, TextSpan, line
from tuner_tui.view.comparison_rows import ComparisonScene, comparison_rows


class ComparisonPanel(Canvas, can_focus=True):
    """Shows `compared`; None while the runs are being read."""

    REDRAW_ON = ("compared",)

    compared: reactive[ComparedRuns | None] = reactive(None, repaint=False)

    def rows(self, width: int, height: int) -> Sequence[Row]:
        runs = self.compared
        if runs is None:
            return [Row(line(TextSpan("Reading both runs.", "dim")))]
        scene = ComparisonScene(runs.names, runs.statuses, runs.comparison, runs.curves)
        return comparison_rows(scene, width, height)


COMPARE_GLOSSARY = (
    ("×", "the later run's figure divided by the earlier run's"),
    ("same number of samples", "losses after the same number of samples, as steps of different batch sizes differ"),
    ("throughput, tokens", "average over the training, without evaluation and saving"),
)


class CompareScreen(PanelScreen):
    """Shows `compared`, which the app sets."""

    BINDINGS: ClassVar[list[BindingType]] = [*COMPARE_KEYS]
    HELP_KEYS = COMPARE_KEYS
    GLOSSARY = COMPARE_GLOSSARY

    panel: ComparisonPanel
    compared: reactive[ComparedRuns | None] = reactive(None, init=False, repaint=False)

    def __init__(self, names: tuple[str, str]) -> None:
        super().__init__(ComparisonPanel(), _title(names))

    def watch_compared(self, compared: ComparedRuns | None) -> None:
        self.panel.compared = compared
        if compared is not None:
            self.set_panel_title(self.panel, _title(compared.names))


def _title(names: tuple[str, str]) -> str:
    return f"Compare · {names[0]} and {names[1]}"
