"""The app of `tuner-tui watch`: one screen, fed by one thread."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING

from tuner_tui.ui.backend.feeds import poll
from tuner_tui.ui.screens.watch import WatchScreen
from tuner_tui.ui.terminal.base_app import BaseApp

if TYPE_CHECKING:
    from tuner_tui.runs.read.machine_monitor import MachineMonitor, MachineView


class WatchApp(BaseApp):
    """Shows everything that trains on the machine, or only the job that `pid` belongs to, named `what`."""

    CSS_PATH = "app.tcss"
    TITLE = "tuner-tui watch"
    ENABLE_COMMAND_PALETTE = False

    def __init__(
        self,
        open_machine: Callable[[], MachineMonitor],
        pid: int | None = None,
        what: str | None = None,
        *,
        heading: str | None = None,
        theme: str = "dark",
        colour: bool = True,
        ascii_only: bool = False,
    ) -> None:
        super().__init__(theme, colour, ascii_only)
        self._views = _views(open_machine, pid)
        host = socket.gethostname() if heading is None else heading
        self.watch_screen = WatchScreen(pid is not None, host if what is None else f"{host} · {what}")

    def get_default_screen(self) -> WatchScreen:
        return self.watch_screen

    def on_mount(self) -> None:
        """Draw the first frame before anything is read."""
        self.call_after_refresh(self._start)

    def _start(self) -> None:
        show = partial(setattr, self.watch_screen, "view")
        self.run_task(poll, self._views, show, "The machine cannot be watched")


def _views(open_machine: Callable[[], MachineMonitor], pid: int | None) -> Iterator[MachineView]:
    machine = open_machine()
    while True:
        yield machine.look(pid)
