"""Counts SIGINT and SIGTERM instead of raising, so that a loop can decide what each of them means."""

from __future__ import annotations

import os
import select
import signal
from types import FrameType
from typing import Any, Self


class Interrupts:
    """A context manager that counts SIGINT and SIGTERM; `wait` returns early when one arrives."""

    # Python writes a byte to the wakeup descriptor as soon as a signal arrives. A signal between the test of the
    # counters and the wait is thus noticed at once, while `time.sleep` would sleep through it. Nothing is raised: a
    # KeyboardInterrupt in the middle of a launch would leave a training behind that nobody follows.

    def __init__(self) -> None:
        self.interrupts = 0
        self.terminated = False
        self._before: dict[int, Any] = {}
        self._reading, self._writing = os.pipe()
        os.set_blocking(self._reading, False)
        os.set_blocking(self._writing, False)

    def __enter__(self) -> Self:
        for number in (signal.SIGINT, signal.SIGTERM):
            self._before[number] = signal.signal(number, self._count)
        signal.set_wakeup_fd(self._writing, warn_on_full_buffer=False)
        return self

    def __exit__(self, *error: object) -> None:
        signal.set_wakeup_fd(-1)
        for number, handler in self._before.items():
            signal.signal(number, handler)
        os.close(self._reading)
        os.close(self._writing)

    def wait(self, seconds: float) -> None:
        """Sleep until a signal arrives or the time is up."""
        if select.select([self._reading], [], [], seconds)[0]:
            os.read(self._reading, 4096)

    def _count(self, number: int, frame: FrameType | None) -> None:
        if number == signal.SIGTERM:
            self.terminated = True
        else:
            self.interrupts += 1
