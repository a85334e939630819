"""Opens the screen of `watch`. Imports what its first frame needs, and no Typer."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NoReturn

from tuner_tui.cli.console import exit_on_interrupt
from tuner_tui.core.procfs import started_with
from tuner_tui.ui.palette import theme_for, wants_ascii, wants_colour
from tuner_tui.ui.screens.watch import WatchScreen
from tuner_tui.ui.watch_app import WatchApp, machine_views

if TYPE_CHECKING:
    from tuner_tui.runs.read.machine_monitor import MachineMonitor


def open_machine_screen(
    pid: int | None = None, target: str | None = None, theme: str = "dark", ascii_only: bool = False
) -> NoReturn:
    """Watch this machine, or with a `pid` only the job of that process, which the user named `target`."""

    def open_machine() -> MachineMonitor:
        # After the first frame, on a thread: this takes longer than the frame.
        from tuner_tui.runs.read.machine_monitor import open_machine_monitor
        from tuner_tui.runs.store.folder import runs_dir

        return open_machine_monitor(runs_dir())

    heading = " · ".join(filter(None, (f"Host {socket.gethostname()}", target)))
    views = machine_views(open_machine, pid)
    raise SystemExit(run_watch_app(views, lambda: WatchScreen(pid is not None, heading), theme, ascii_only))


def run_watch_app(views: Iterator[Any], screen: Callable[[], Any], theme: str, ascii_only: bool) -> int:
    """Show `views` on the screen until it is closed, and return its exit code."""
    exit_on_interrupt()
    app = WatchApp(
        views,
        screen,
        theme=theme_for(theme, os.environ),
        colour=wants_colour(os.environ),
        ascii_only=ascii_only or wants_ascii(started_with("self")),
    )
    app.run()
    return app.return_code or 0
