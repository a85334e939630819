"""File locks (flock): the kernel releases them however their holder dies."""

from __future__ import annotations

import errno
import fcntl
import os
import time
from pathlib import Path

from tuner_tui.core.files import open_regular

ACQUIRE_TIMEOUT_S = 0.5
"""`is_locked` holds the lock itself for microseconds; `acquire_lock` waits that out."""
NO_LOCKS = (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS)
"""Errors of a file system without locks, or whose server for locks is gone."""


class LockedError(Exception):
    """Another process holds the lock."""


def acquire_lock(path: Path, timeout_s: float = ACQUIRE_TIMEOUT_S) -> int:
    """Return the descriptor that holds the lock as long as it is open. Raises `LockedError` and `OSError`."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK, 0o600)
    deadline = time.monotonic() + timeout_s
    while not _try_lock(descriptor, fcntl.LOCK_EX):
        if time.monotonic() > deadline:
            os.close(descriptor)
            raise LockedError(str(path))
        time.sleep(0.01)
    return descriptor


def is_locked(path: Path) -> bool:
    """Whether a process holds the lock; False if the file system has none. Raises `OSError` if it cannot be read."""
    try:
        descriptor = open_regular(path)
    except FileNotFoundError:
        return False
    try:
        return not _try_lock(descriptor, fcntl.LOCK_SH)
    except OSError as error:
        if error.errno in NO_LOCKS:
            return False
        raise
    finally:
        os.close(descriptor)


def wait_unlocked(path: Path) -> None:
    """Block until no process holds the lock."""
    descriptor = open_regular(path)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH)
    finally:
        os.close(descriptor)


def _try_lock(descriptor: int, how: int) -> bool:
    try:
        fcntl.flock(descriptor, how | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
