"""The control file of the run folder: its first word asks for a checkpoint, or for a checkpoint and the end."""

from __future__ import annotations

import os
import time
from collections.abc import Callable

LOOK_EVERY_S = 1.0


class ControlFile:
    """Looked at once a second at most; an order is obeyed once, when the file changes."""

    def __init__(self, run_dir: str, clock: Callable[[], float] = time.perf_counter) -> None:
        self._path = os.path.join(run_dir, "control")
        self._clock = clock
        self._seen: tuple[int, int, int] | None = None
        self._next_look_s = 0.0

    def ignore_present(self) -> None:
        """An order given to an earlier process of this run is not for this one."""
        self._seen = self._stamp()

    def read(self) -> str | None:
        """The newly written first word, or None."""
        now = self._clock()
        if now < self._next_look_s:
            return None
        self._next_look_s = now + LOOK_EVERY_S
        stamp = self._stamp()
        if stamp is None or stamp == self._seen:
            return None
        self._seen = stamp
        try:
            with open(self._path, encoding="utf-8") as file:
                words = file.read(256).split()
        except (OSError, ValueError):
            return None
        return words[0] if words else None

    def _stamp(self) -> tuple[int, int, int] | None:
        try:
            status = os.stat(self._path)
        except OSError:
            return None
        return status.st_mtime_ns, status.st_size, status.st_ino
