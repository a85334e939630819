"""Base classes of the full screens: their help, and one panel with the footer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding
from textual.widget import Widget

from tuner_tui.ui.panels.bars import KeyFooter
from tuner_tui.ui.terminal.base_widgets import LeavableScreen, blank_lines, set_border_text


class FullScreen(LeavableScreen[None]):
    """A screen of panels, which draw cells: there is no text to select. The help shows its keys and its glossary."""

    ALLOW_SELECT = False
    HELP_KEYS: ClassVar[Sequence[Binding]] = ()
    GLOSSARY: ClassVar[Sequence[tuple[str, str]]] = ()
    render_lines = blank_lines

    def action_help(self) -> None:
        from tuner_tui.ui.screens.help import HelpScreen  # opened rarely

        self.app.push_screen(HelpScreen(self.HELP_KEYS, self.GLOSSARY, self.query_one(KeyFooter).idle))


class PanelScreen(FullScreen):
    """A screen of one panel and the footer."""

    panel: Widget

    def __init__(self, panel: Widget, title: str) -> None:
        super().__init__()
        self.panel = panel
        panel.add_class("panel")
        set_border_text(panel, title)

    def compose(self) -> ComposeResult:
        yield self.panel
        yield KeyFooter()

    def on_mount(self) -> None:
        self.panel.focus()
