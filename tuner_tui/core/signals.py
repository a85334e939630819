"""Waiting that a signal ends."""

from __future__ import annotations

import os
import select
import signal
from types import FrameType
from typing import Any, Self


class Signals:
    """A context manager for the main thread: `wait` returns early when SIGINT, SIGTERM or another arrives."""

    # Python writes a byte for each signal to the wakeup descriptor, at once and from C. Waiting for that pipe with
    # `select` has no gap in which a signal could arrive unnoticed before the wait begins, as a flag and `sleep` would
    # have. Nothing is raised: a KeyboardInterrupt in the middle of a launch would leave a training behind that nobody
    # follows. A handler that does nothing is none in child processes, while an ignored signal stays ignored there.

    def __init__(self, *others: signal.Signals) -> None:
        self._before: dict[int, Any] = dict.fromkeys((signal.SIGINT, signal.SIGTERM, *others))
        self.interrupts, self.terminated = 0, False
        self._reading, self._writing = os.pipe()
        os.set_blocking(self._reading, False)
        os.set_blocking(self._writing, False)

    def __enter__(self) -> Self:
        signal.set_wakeup_fd(self._writing, warn_on_full_buffer=False)
        for number in self._before:
            self._before[number] = signal.signal(number, self._count)
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
        self.interrupts += number == signal.SIGINT
        self.terminated |= number == signal.SIGTERM
