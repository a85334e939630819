"""The compare screen: two runs side by side, their settings, figures and losses."""

from __future__ import annotations

from typing import ClassVar

from textual.binding import BindingType

from tuner_tui.ui.keys import GLOSSARIES, KEYS
from tuner_tui.ui.screens.full_screen import PanelScreen
from tuner_tui.ui.terminal.base_widgets import RowsPanel
from tuner_tui.view.comparison_rows import ComparisonScene, comparison_rows


class CompareScreen(PanelScreen):
    """Shows a comparison, which the app sets."""

    BINDINGS: ClassVar[list[BindingType]] = [*KEYS["compare"]]
    HELP_KEYS = KEYS["compare"]
    GLOSSARY = GLOSSARIES["compare"]

    panel: RowsPanel

    def __init__(self, names: tuple[str, str]) -> None:
        title = f"Compare · {names[0]} and {names[1]}"
        super().__init__(RowsPanel(comparison_rows, None, can_focus=True, fills=True), title)

    def show(self, compared: ComparisonScene) -> None:
        self.panel.values = (compared,)
