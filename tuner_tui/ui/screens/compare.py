"""The compare screen: two runs side by side, read again while one of them lives."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from textual.content import Content
from textual.reactive import reactive

from tuner_tui.ui.keys import COMPARE_KEYS
from tuner_tui.ui.messages import ThemeWanted
from tuner_tui.ui.panels.comparison import ComparisonPanel
from tuner_tui.ui.screens.help import HelpScreen
from tuner_tui.ui.terminal.full_screen import FullScreen
from tuner_tui.ui.widgets.key_footer import KeyLine

if TYPE_CHECKING:
    from textual.app import ComposeResult
    from textual.binding import BindingType

    from tuner_tui.ui.backend.records import ComparedRuns

COMPARE_GLOSSARY = (
    ("×", "the later run's figure divided by the earlier run's"),
    ("after as many samples", "losses at the same number of samples seen: with another batch a step is something else"),
    ("throughput, tokens", "over the whole training of a run, evaluation and saving left out"),
)


class CompareScreen(FullScreen):
    """Shows `compared`, which comes down from the app."""

    BINDINGS: ClassVar[list[BindingType]] = [*COMPARE_KEYS]
    DEFAULT_CSS = """
    CompareScreen { overflow: hidden; }
    CompareScreen > ComparisonPanel { height: 1fr; }
    """

    compared: reactive[ComparedRuns | None] = reactive(None, init=False, repaint=False)

    def __init__(self, names: tuple[str, str]) -> None:
        super().__init__()
        self._panel = ComparisonPanel(classes="panel")
        self._names: tuple[str, str] | None = None
        self._entitle(names)

    def compose(self) -> ComposeResult:
        yield self._panel
        yield KeyLine()

    def on_mount(self) -> None:
        self._panel.focus()

    def watch_compared(self, compared: ComparedRuns | None) -> None:
        self._panel.compared = compared
        if compared is not None:
            self._entitle(compared.names)

    def _entitle(self, names: tuple[str, str]) -> None:
        """A title that is set is painted, changed or not, and the panel with it."""
        if names != self._names:
            self._names = names
            self._panel.border_title = Content(f"Compare · {names[0]} and {names[1]}")

    def action_help(self) -> None:
        """All keys, and the words of the screen."""
        self.app.push_screen(HelpScreen(COMPARE_KEYS, COMPARE_GLOSSARY))

    def action_theme(self) -> None:
        """Dark or light."""
        self.post_message(ThemeWanted())

    def action_leave(self) -> None:
        """Back to the main screen."""
        self.dismiss(None)
