"""The page of several hosts, of which one is opened with its jobs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from msgspec.structs import replace
from textual.binding import BindingType
from textual.reactive import reactive

from tuner_tui.hardware.sample import HostSample
from tuner_tui.hosts import HostView
from tuner_tui.ui.keys import GLOSSARIES, KEYS
from tuner_tui.ui.screens.full_screen import PanelScreen
from tuner_tui.ui.screens.watch import WatchScreen
from tuner_tui.ui.terminal.base_widgets import Canvas, set_border_text
from tuner_tui.view.cells import Line
from tuner_tui.view.hosts_rows import CURSOR, hosts_rows
from tuner_tui.view.sample_history import WINDOWS, SampleHistory, Window

REMEMBERED_SAMPLES = 600
"""Of each host: what ten minutes of histories need, and no more, as there may be many hosts."""


class HostsPanel(Canvas, can_focus=True):
    """Shows all hosts, with histories of their `recent` samples; a move of the cursor scrolls to its host."""

    BINDINGS: ClassVar[list[BindingType]] = [*KEYS["hosts"]]

    view: reactive[tuple[HostView, ...]] = reactive((), repaint=False)
    window: reactive[Window] = reactive(WINDOWS[0], repaint=False)
    cursor: reactive[int] = reactive(0, init=False, repaint=False)

    def __init__(self) -> None:
        super().__init__()
        self.recent: dict[str, SampleHistory] = {}

    def rows(self, width: int, height: int) -> Sequence[Line]:
        return hosts_rows(self.view, self.recent, self.window, self.cursor, width, height)

    def watch_cursor(self) -> None:
        rows = self.rows(*self.size)
        start = next((n for n, row in enumerate(rows) if row and row[0].text.startswith(CURSOR)), 0)
        self.top = max(0, start - 1)  # above it a sign stands for the rows hidden
        self.redraw()

    def action_move(self, by: int) -> None:
        self.cursor = max(0, min(len(self.view) - 1, self.cursor + by))


class HostScreen(WatchScreen):
    """One of several hosts."""

    BINDINGS: ClassVar[list[BindingType]] = [*KEYS["host"]]
    HELP_KEYS = (*KEYS["host"], *WatchScreen.HELP_KEYS)


class HostsScreen(PanelScreen):
    """Shows `view`, which the app sets."""

    BINDINGS: ClassVar[list[BindingType]] = [*KEYS["watch"]]
    HELP_KEYS = (*KEYS["hosts"], *KEYS["watch"], *KEYS["app"])
    GLOSSARY = GLOSSARIES["watch"]

    panel: HostsPanel
    view: reactive[tuple[HostView, ...]] = reactive((), init=False, repaint=False)

    def __init__(self) -> None:
        super().__init__(HostsPanel(), "Hosts")
        self._opened: HostScreen | None = None

    def action_window(self) -> None:
        """Show ten minutes in histories, or two."""
        self.panel.window = WINDOWS[self.panel.window is WINDOWS[0]]

    def action_open(self) -> None:
        """Show the host at the cursor alone, as on that machine itself."""
        host = next(iter(self.view[self.panel.cursor :]), None)
        if host is None or host.machine is None:
            self.notify("The jobs of this host are unknown: it has not answered.", severity="warning")
            return
        self._opened = HostScreen(False, host.name, [*self.panel.recent[host.name]][:-1])
        self.app.push_screen(self._opened, lambda _: setattr(self, "_opened", None))
        self._opened.view = host.machine

    def watch_view(self, view: tuple[HostView, ...]) -> None:
        samples = {host.name: host.machine.sample for host in view if host.machine is not None}
        for name, sample in samples.items():
            history = self.panel.recent.setdefault(name, SampleHistory(REMEMBERED_SAMPLES))
            if not history or history[-1].time_s != sample.time_s:
                history.append(replace(sample, host=HostSample(), processes=()))
        self.panel.view = view
        set_border_text(self.panel, f"Hosts · {len(samples)} of {len(view)} answer")
        if self._opened is not None:
            self._opened.view = view[self.panel.cursor].machine or self._opened.view
