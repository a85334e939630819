"""The control file of the run folder: a request for a checkpoint, or for a checkpoint and a stop."""

from __future__ import annotations

import os
import time
from collections.abc import Callable

from .. import process_role

POLL_INTERVAL_S = 1.0
MAX_CONTROL_BYTES = 256


class ControlFile:
    """Looked at once a second at most; an order is obeyed once, when the file changes."""

    def __init__(
        self,
        run_dir: str,
        clock: Callable[[], float] = time.perf_counter,
        rank_and_world: Callable[[], tuple[int, int]] = process_role.rank_and_world,
    ) -> None:
        self._path = os.path.join(run_dir, "control")
        self._agreed_path = os.path.join(run_dir, "agreed")
        self._clock = clock
        self._rank_and_world = rank_and_world
        self._rank, self._world = 0, 1
        self._seen: tuple[int, int, int] | None = None
        self._agreed_seen: tuple[int, int, int] | None = None
        self._agreed: tuple[str, int] | None = None
        self._next_look_s = 0.0

    def training_begins(self) -> None:
        """An order given to an earlier process of this run is not for this one."""
        self._rank, self._world = self._rank_and_world()
        self._seen, self._agreed_seen = _file_stamp(self._path), _file_stamp(self._agreed_path)
        self._agreed = None

    def order(self, step: int) -> str | None:
        """The word to obey now that `step` is done, or None."""
        if self._world == 1:
            return self._read()
        if self._rank == 0 and self._agreed is None:
            self._announce(self._read(), step + 1)
        elif self._agreed is None:
            self._listen()
        if self._agreed is None or step < self._agreed[1]:
            return None
        word, self._agreed = self._agreed[0], None
        return word

    def _read(self) -> str | None:
        """The newly written first word, or None."""
        now = self._clock()
        if now < self._next_look_s:
            return None
        self._next_look_s = now + POLL_INTERVAL_S
        stamp = _file_stamp(self._path)
        if stamp is None or stamp == self._seen:
            return None
        self._seen = stamp
        words = _read_words(self._path)
        return words[0] if words else None

    def _announce(self, word: str | None, step: int) -> None:
        """Rank 0: without its word on the disk nobody obeys, it neither."""
        if word is None:
            return
        fresh = self._agreed_path + ".new"
        with open(fresh, "w", encoding="utf-8") as file:
            file.write(f"{word} {step}\n")
        os.replace(fresh, self._agreed_path)
        self._agreed = (word, step)

    def _listen(self) -> None:
        """The others look at every step: a second later may be too late."""
        stamp = _file_stamp(self._agreed_path)
        if stamp is None or stamp == self._agreed_seen:
            return
        self._agreed_seen = stamp
        words = _read_words(self._agreed_path)
        if len(words) == 2 and words[1].isdigit():
            self._agreed = (words[0], int(words[1]))


def _file_stamp(path: str) -> tuple[int, int, int] | None:
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino


def _read_words(path: str) -> list[str]:
    try:
        with open(path, encoding="utf-8") as file:
            return file.read(MAX_CONTROL_BYTES).split()
    except (OSError, ValueError):
        return []
