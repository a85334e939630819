"""A feed for a screen that is open for a while: looks at something once a second until it is told to stop."""

from __future__ import annotations

import time
from collections.abc import Callable
from threading import Event, Thread
from typing import Generic, TypeVar

from tuner_tui.ui.feeds import PERIOD_S, Post, until_tick
from tuner_tui.ui.messages import TroubleArrived
from tuner_tui.ui.services import ServiceError

T = TypeVar("T")


class LookFeed(Generic[T]):
    """Posts what `look` finds, through `told`, whenever it differs from the last look.

    `opened` gives the look and is called on the thread; `over` says of a look that nothing can come after it. A plain
    daemon thread, as the other feeds are: where a file system hangs it stands still, and nothing else does.
    """

    def __init__(
        self,
        opened: Callable[[], Callable[[], T]],
        told: Callable[[T], object],
        post: Post,
        over: Callable[[T], bool] = lambda found: False,
        period_s: float = PERIOD_S,
    ) -> None:
        self._opened = opened
        self._told = told
        self._post = post
        self._over = over
        self._period_s = period_s
        self._end = Event()

    def start(self) -> None:
        """Begin."""
        Thread(target=self._work, name="tuner-look", daemon=True).start()

    def stop(self) -> None:
        """Ask the thread to end; does not wait for it."""
        self._end.set()

    def _work(self) -> None:
        try:
            self._follow(self._opened())
        except ServiceError as error:
            self._post(TroubleArrived(str(error)))
        except OSError as error:
            self._post(TroubleArrived(f"It cannot be read any more: {error.strerror or error}."))

    def _follow(self, look: Callable[[], T]) -> None:
        last: T | None = None
        while not self._end.is_set():
            found = look()
            if found != last and not self._end.is_set():
                last = found
                self._told(found)
            if self._over(found):
                return
            self._end.wait(until_tick(self._period_s, time.monotonic()))
