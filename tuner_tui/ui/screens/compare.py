"""The compare screen: two runs side by side, updated while one of them is live."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from textual.reactive import reactive

from tuner_tui.ui.keys import COMPARE_KEYS
from tuner_tui.ui.panels.comparison import ComparisonPanel
from tuner_tui.ui.screens.sub_screen import SubScreen
from tuner_tui.ui.widgets.key_footer import KeyFooter

if TYPE_CHECKING:
    from textual.app import ComposeResult
    from textual.binding import BindingType

    from tuner_tui.ui.backend.records import ComparedRuns

COMPARE_GLOSSARY = (
    ("×", "the later run's figure divided by the earlier run's"),
    ("same number of samples", "losses after the same number of samples, as steps of different batch sizes differ"),
    ("throughput, tokens", "average over the training, without evaluation and saving"),
)


class CompareScreen(SubScreen):
    """Shows `compared`, which the app sets."""

    BINDINGS: ClassVar[list[BindingType]] = [*COMPARE_KEYS]
    HELP_KEYS = COMPARE_KEYS
    GLOSSARY = COMPARE_GLOSSARY
    DEFAULT_CSS = """
    CompareScreen { overflow: hidden; }
    CompareScreen > ComparisonPanel { height: 1fr; }
    """

    compared: reactive[ComparedRuns | None] = reactive(None, init=False, repaint=False)

    def __init__(self, names: tuple[str, str]) -> None:
        super().__init__()
        self._panel = ComparisonPanel(classes="panel")
        self._show_names(names)

    def compose(self) -> ComposeResult:
        yield self._panel
        yield KeyFooter()

    def on_mount(self) -> None:
        self._panel.focus()

    def watch_compared(self, compared: ComparedRuns | None) -> None:
        self._panel.compared = compared
        if compared is not None:
            self._show_names(compared.names)

    def _show_names(self, names: tuple[str, str]) -> None:
        self.set_panel_title(self._panel, f"Compare · {names[0]} and {names[1]}")

    def action_leave(self) -> None:
        """Return to the main screen."""
        self.dismiss(None)
