"""The app behind `tuner-tui watch`: one screen, one thread that looks at the box."""

from __future__ import annotations

import socket
from collections.abc import Callable
from threading import Event, Thread
from typing import TYPE_CHECKING, Protocol

from tuner_tui.ui.messages import BoxViewArrived, TroubleArrived
from tuner_tui.ui.screens.watch import WatchScreen
from tuner_tui.ui.terminal.base_app import BaseApp

if TYPE_CHECKING:
    from textual.message import Message

    from tuner_tui.runs.read.box_monitor import BoxView

PERIOD_S = 1.0


class BoxWatcher(Protocol):
    """What is watched: `runs.box_watch.BoxWatch`, or a fake of it."""

    def look(self, pid: int | None = None) -> BoxView:
        """The box now, or the one job that `pid` belongs to."""
        ...

    def close(self) -> None:
        """Ends the watching."""
        ...


class WatchFeed:
    """Looks at the box once a second, on a daemon thread: a driver that hangs holds up neither a key nor the end."""

    def __init__(
        self,
        open_box: Callable[[], BoxWatcher],
        pid: int | None,
        post: Callable[[Message], object],
        period_s: float = PERIOD_S,
    ) -> None:
        self._open_box = open_box
        self._pid = pid
        self._post = post
        self._period_s = period_s
        self._end = Event()

    def start(self) -> None:
        """Begin."""
        Thread(target=self._work, name="tuner-watch", daemon=True).start()

    def stop(self) -> None:
        """Ask the thread to end; does not wait for it."""
        self._end.set()

    def _work(self) -> None:
        try:
            box = self._open_box()
            while not self._end.is_set():
                self._post(BoxViewArrived(box.look(self._pid)))
                self._end.wait(self._period_s)
        except OSError as error:
            self._post(TroubleArrived(f"The box cannot be watched: {error.strerror or error}."))
            return
        box.close()


class WatchApp(BaseApp):
    """Shows everything that trains on the box; with `pid` the job it belongs to, called `what`."""

    CSS_PATH = "app.tcss"
    TITLE = "tuner-tui watch"
    ENABLE_COMMAND_PALETTE = False

    def __init__(
        self,
        open_box: Callable[[], BoxWatcher],
        pid: int | None = None,
        what: str | None = None,
        *,
        heading: str | None = None,
        theme: str = "dark",
        colour: bool = True,
        ascii_only: bool = False,
    ) -> None:
        super().__init__(theme, colour, ascii_only)
        self._feed = WatchFeed(open_box, pid, self.post_message)
        host = socket.gethostname() if heading is None else heading
        self.watch_screen = WatchScreen(pid is not None, host if what is None else f"{host} · {what}")

    def get_default_screen(self) -> WatchScreen:
        return self.watch_screen

    def on_mount(self) -> None:
        """The first frame is drawn before anything is read."""
        self.leave_on_signals()
        self.call_after_refresh(self._feed.start)

    def on_unmount(self) -> None:
        self._feed.stop()

    def on_box_view_arrived(self, news: BoxViewArrived) -> None:
        self.watch_screen.view = news.view

    def on_trouble_arrived(self, news: TroubleArrived) -> None:
        self.say(news.sentence, "error")

    def on_theme_wanted(self) -> None:
        self.change_theme()

    def on_quit_wanted(self) -> None:
        self.exit()
