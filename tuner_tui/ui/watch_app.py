"""The app of `tuner-tui watch`: one screen, fed by one task."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from tuner_tui.ui.feeds import poll
from tuner_tui.ui.terminal.base_app import BaseApp

if TYPE_CHECKING:
    from tuner_tui.hosts import HostView
    from tuner_tui.runs.read.machine_monitor import MachineMonitor, MachineView
    from tuner_tui.ui.screens.hosts import HostsScreen
    from tuner_tui.ui.screens.watch import WatchScreen

ScreenT = TypeVar("ScreenT", bound="WatchScreen | HostsScreen")


class WatchApp(BaseApp, Generic[ScreenT]):
    """Shows `views` on `screen`: this machine, one job on it, or several hosts."""

    CSS_PATH = "app.tcss"
    TITLE = "tuner-tui watch"

    def __init__(
        self,
        views: Iterator[MachineView] | Iterator[tuple[HostView, ...]],
        screen: Callable[[], ScreenT],
        *,
        theme: str = "dark",
        colour: bool = True,
        ascii_only: bool = False,
    ) -> None:
        super().__init__(theme, colour, ascii_only)
        self._views: Iterator[Any] = views
        self.watch_screen: ScreenT = screen()

    def get_default_screen(self) -> ScreenT:
        return self.watch_screen

    def on_mount(self) -> None:
        """Draw the first frame before anything is read."""
        show = partial(setattr, self.watch_screen, "view")
        self.call_after_refresh(self.run_task, poll, self._views, show, "The machine cannot be watched")


def machine_views(open_machine: Callable[[], MachineMonitor], pid: int | None = None) -> Iterator[MachineView]:
    """Yield the machine as it is at each step, with the job that `pid` belongs to only if given."""
    machine = open_machine()
    while True:
        yield machine.look(pid)
