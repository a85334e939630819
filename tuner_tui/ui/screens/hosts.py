"""The page of several hosts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from textual.binding import BindingType
from textual.reactive import reactive

from tuner_tui.hosts import HostView
from tuner_tui.ui.keys import APP_KEYS, WATCH_KEYS, WATCH_ROW_KEYS
from tuner_tui.ui.screens.sub_screen import PanelScreen
from tuner_tui.ui.screens.watch import WATCH_GLOSSARY
from tuner_tui.ui.terminal.base_widgets import Canvas
from tuner_tui.view.cells import Row
from tuner_tui.view.hosts_rows import host_rows
from tuner_tui.view.watch_rows import visible_rows


class HostsPanel(Canvas, can_focus=True):
    """Shows the hosts of `view` from row `top` on."""

    BINDINGS: ClassVar[list[BindingType]] = [*WATCH_ROW_KEYS]
    REDRAW_ON = ("view", "top")

    view: reactive[tuple[HostView, ...]] = reactive((), repaint=False)
    top: reactive[int] = reactive(0, repaint=False)

    def rows(self, width: int, height: int) -> Sequence[Row]:
        return visible_rows(self._all_rows(width), self.top + height // 2, height)

    def _all_rows(self, width: int) -> list[Row]:
        return [row for view in self.view for row in host_rows(view, width)]

    def action_move(self, by: int) -> None:
        last = len(self._all_rows(self.size.width)) - self.size.height
        self.top = max(0, min(last, self.top + by))


class HostsScreen(PanelScreen):
    """Shows `view`, which the app sets."""

    BINDINGS: ClassVar[list[BindingType]] = [*WATCH_KEYS]
    HELP_KEYS = (*WATCH_ROW_KEYS, *WATCH_KEYS, *APP_KEYS)
    GLOSSARY = WATCH_GLOSSARY

    panel: HostsPanel
    view: reactive[tuple[HostView, ...]] = reactive((), init=False, repaint=False)

    def __init__(self) -> None:
        super().__init__(HostsPanel(), "Hosts")

    def watch_view(self, view: tuple[HostView, ...]) -> None:
        self.panel.view = view
        answering = sum(host.machine is not None for host in view)
        self.set_panel_title(self.panel, f"Hosts · {answering} of {len(view)} answer")
