"""The page of several hosts."""

from __future__ import annotations

from typing import ClassVar

from textual.binding import BindingType
from textual.reactive import reactive

from tuner_tui.hosts import HostView
from tuner_tui.ui.keys import APP_KEYS, GLOSSARIES, WATCH_KEYS, WATCH_ROW_KEYS
from tuner_tui.ui.screens.sub_screen import PanelScreen
from tuner_tui.ui.terminal.base_widgets import RowsPanel
from tuner_tui.view.hosts_rows import hosts_rows


class HostsScreen(PanelScreen):
    """Shows `view`, which the app sets."""

    BINDINGS: ClassVar[list[BindingType]] = [*WATCH_KEYS]
    HELP_KEYS = (*WATCH_ROW_KEYS, *WATCH_KEYS, *APP_KEYS)
    GLOSSARY = GLOSSARIES["watch"]

    panel: RowsPanel
    view: reactive[tuple[HostView, ...]] = reactive((), init=False, repaint=False)

    def __init__(self) -> None:
        super().__init__(RowsPanel(hosts_rows, (), can_focus=True), "Hosts")

    def watch_view(self, view: tuple[HostView, ...]) -> None:
        self.panel.values = (view,)
        answering = sum(host.machine is not None for host in view)
        self.set_panel_title(self.panel, f"Hosts · {answering} of {len(view)} answer")
