"""The compare screen: two runs side by side, their settings, figures and losses."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from textual.binding import BindingType
from textual.reactive import reactive

from tuner_tui.ui.keys import COMPARE_KEYS, GLOSSARIES
from tuner_tui.ui.screens.sub_screen import PanelScreen
from tuner_tui.ui.terminal.base_widgets import Canvas
from tuner_tui.view.cells import Row, TextSpan, line
from tuner_tui.view.comparison_rows import ComparisonScene, comparison_rows


class ComparisonPanel(Canvas, can_focus=True):
    """Shows `compared`; None while the runs are being read."""

    REDRAW_ON = ("compared",)

    compared: reactive[ComparisonScene | None] = reactive(None, repaint=False)

    def rows(self, width: int, height: int) -> Sequence[Row]:
        runs = self.compared
        if runs is None:
            return [Row(line(TextSpan("Reading both runs.", "dim")))]
        return comparison_rows(runs, width, height)


class CompareScreen(PanelScreen):
    """Shows `compared`, which the app sets."""

    BINDINGS: ClassVar[list[BindingType]] = [*COMPARE_KEYS]
    HELP_KEYS = COMPARE_KEYS
    GLOSSARY = GLOSSARIES["compare"]

    panel: ComparisonPanel
    compared: reactive[ComparisonScene | None] = reactive(None, init=False, repaint=False)

    def __init__(self, names: tuple[str, str]) -> None:
        super().__init__(ComparisonPanel(), _title(names))

    def watch_compared(self, compared: ComparisonScene | None) -> None:
        self.panel.compared = compared
        if compared is not None:
            self.set_panel_title(self.panel, _title(compared.names))


def _title(names: tuple[str, str]) -> str:
    return f"Compare · {names[0]} and {names[1]}"
