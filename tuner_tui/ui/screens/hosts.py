"""The page of several hosts."""

from __future__ import annotations

from typing import ClassVar

from msgspec.structs import replace
from textual.binding import BindingType
from textual.reactive import reactive

from tuner_tui.hardware.sample import HostSample
from tuner_tui.hosts import HostView
from tuner_tui.ui.keys import GLOSSARIES, KEYS
from tuner_tui.ui.screens.sub_screen import PanelScreen
from tuner_tui.ui.terminal.base_widgets import RowsPanel
from tuner_tui.view.hosts_rows import hosts_rows
from tuner_tui.view.sample_history import WINDOWS, SampleHistory

REMEMBERED_SAMPLES = 600
"""Of each host: what ten minutes of histories need, and no more, as there may be many hosts."""


class HostsScreen(PanelScreen):
    """Shows `view`, which the app sets."""

    BINDINGS: ClassVar[list[BindingType]] = [*KEYS["watch"]]
    HELP_KEYS = (*KEYS["watch rows"], *KEYS["watch"], *KEYS["app"])
    GLOSSARY = GLOSSARIES["watch"]

    panel: RowsPanel
    view: reactive[tuple[HostView, ...]] = reactive((), init=False, repaint=False)

    def __init__(self) -> None:
        self._recent: dict[str, SampleHistory] = {}
        super().__init__(RowsPanel(hosts_rows, (), self._recent, WINDOWS[0], can_focus=True, fills=True), "Hosts")

    def action_window(self) -> None:
        """Show ten minutes in histories, or two."""
        view, recent, window = self.panel.values
        self.panel.values = (view, recent, WINDOWS[window is WINDOWS[0]])

    def watch_view(self, view: tuple[HostView, ...]) -> None:
        samples = {host.name: host.machine.sample for host in view if host.machine is not None}
        for name, sample in samples.items():
            history = self._recent.setdefault(name, SampleHistory(REMEMBERED_SAMPLES))
            if not history or history[-1].time_s != sample.time_s:
                history.append(replace(sample, host=HostSample(), processes=()))
        self.panel.values = (view, self._recent, self.panel.values[2])
        self.set_panel_title(self.panel, f"Hosts · {len(samples)} of {len(view)} answer")
