"""Base class of all full screens except the main screen."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from textual.app import ComposeResult
from textual.await_complete import AwaitComplete
from textual.binding import Binding
from textual.content import Content
from textual.widget import Widget

from tuner_tui.ui.panels.bars import KeyFooter
from tuner_tui.ui.terminal.base_widgets import FullScreen


class SubScreen(FullScreen):
    """A screen with keys and a glossary of its own."""

    HELP_KEYS: ClassVar[Sequence[Binding]] = ()
    GLOSSARY: ClassVar[Sequence[tuple[str, str]]] = ()

    def __init__(self) -> None:
        super().__init__()
        self._titles: dict[Widget, str] = {}

    def set_panel_title(self, panel: Widget, title: str) -> None:
        """Set the title of a panel if it has changed: setting it repaints the whole panel."""
        if self._titles.get(panel) != title:
            self._titles[panel] = title
            panel.border_title = Content(title)

    def dismiss(self, result: None = None) -> AwaitComplete:
        """Dismiss the screen, but not twice, as a dialog."""
        return super().dismiss(result) if self.is_active else AwaitComplete()

    def action_help(self) -> None:
        from tuner_tui.ui.screens.help import HelpScreen  # opened rarely

        self.app.push_screen(HelpScreen(self.HELP_KEYS, self.GLOSSARY))

    def action_leave(self) -> None:
        self.dismiss(None)


class PanelScreen(SubScreen):
    """A screen of one panel and the footer."""

    panel: Widget

    def __init__(self, panel: Widget, title: str) -> None:
        super().__init__()
        self.panel = panel
        panel.add_class("panel")
        self.set_panel_title(panel, title)

    def compose(self) -> ComposeResult:
        yield self.panel
        yield KeyFooter()

    def on_mount(self) -> None:
        self.panel.focus()
