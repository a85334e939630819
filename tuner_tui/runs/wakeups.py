"""Waiting until something happens to the supervisor: a child ends, an order is given, the second is up."""

from __future__ import annotations

import os
import select
import signal
from types import FrameType
from typing import Self


class Wakeups:
    """Signals that end a wait. Use as a context manager, in the main thread.

    SIGCHLD: a child ended. SIGUSR1: somebody wrote an order. SIGHUP: a terminal went away, which means nothing here.
    SIGTERM and SIGINT set `terminated`. All are handled rather than ignored, because a started process would inherit
    being deaf to them.
    """

    def __init__(self) -> None:
        self.terminated = False
        self._reading, self._writing = os.pipe()
        os.set_blocking(self._reading, False)
        os.set_blocking(self._writing, False)

    def __enter__(self) -> Self:
        """Handle the signals from here on."""
        signal.set_wakeup_fd(self._writing, warn_on_full_buffer=False)
        for number in (signal.SIGCHLD, signal.SIGUSR1, signal.SIGHUP):
            signal.signal(number, self._nothing)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._terminate)
        return self

    def __exit__(self, *error: object) -> None:
        """Close the pipe; the signals keep their handlers, since the process ends now."""
        signal.set_wakeup_fd(-1)
        os.close(self._reading)
        os.close(self._writing)

    def wait(self, seconds: float) -> None:
        """Until a signal arrives or the time is up."""
        if select.select([self._reading], [], [], seconds)[0]:
            os.read(self._reading, 4096)

    def _nothing(self, number: int, frame: FrameType | None) -> None:
        """Waking up is all."""

    def _terminate(self, number: int, frame: FrameType | None) -> None:
        self.terminated = True
