"""The app of `tuner-tui hosts`: one page, fed by one thread; a run is opened by ssh, in the same terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from functools import partial
from typing import TYPE_CHECKING, Protocol

from tuner_tui.ui.backend.feeds import poll
from tuner_tui.ui.screens.hosts import HostsScreen
from tuner_tui.ui.terminal.base_app import BaseApp

if TYPE_CHECKING:
    from tuner_tui.hosts.host_state import HostView
    from tuner_tui.ui.messages import HostOpenWanted


class HostsSource(Protocol):
    """Watches the hosts; `hosts.watcher` implements it."""

    def start(self) -> None: ...

    def look(self) -> tuple[HostView, ...]:
        """Return all hosts as they are now."""
        ...

    def retry(self) -> None:
        """Try the hosts that cannot be reached now."""
        ...


OpenOnHost = Callable[[str, str | None], None]
"""Runs the screen of a host in this terminal, on a run if one is given, until it is left."""


class HostsApp(BaseApp):
    """Shows several machines, and opens the screen of one."""

    CSS_PATH = "app.tcss"
    TITLE = "tuner-tui hosts"
    ENABLE_COMMAND_PALETTE = False

    def __init__(
        self,
        source: HostsSource,
        open_on_host: OpenOnHost,
        *,
        theme: str = "dark",
        colour: bool = True,
        ascii_only: bool = False,
    ) -> None:
        super().__init__(theme, colour, ascii_only)
        self._source = source
        self._open_on_host = open_on_host
        self.page = HostsScreen()

    def get_default_screen(self) -> HostsScreen:
        return self.page

    def on_mount(self) -> None:
        """Draw the first frame before anything is asked."""
        self.call_after_refresh(self._start)

    def _start(self) -> None:
        self.freeze_startup_objects()
        self._source.start()
        self.run_task(poll, _looks(self._source), partial(setattr, self.page, "views"))

    def on_host_open_wanted(self, request: HostOpenWanted) -> None:
        """Leave the terminal to the host's own screen, and draw everything again after it."""
        with nullcontext() if self.is_headless else self.suspend():
            self._open_on_host(request.host, request.run)
        self.action_redraw()
        self._source.retry()

    def on_hosts_retry_wanted(self) -> None:
        self._source.retry()


def _looks(source: HostsSource) -> Iterator[tuple[HostView, ...]]:
    while True:
        yield source.look()
