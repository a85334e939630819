"""Locks on files, which end with their process."""

from __future__ import annotations

import errno
import fcntl
import os
import time
from contextlib import AbstractContextManager
from pathlib import Path

from tuner_tui.core.files import closing_descriptor, opened_regular

ACQUIRE_TIMEOUT_S = 0.5
"""`is_locked` holds the lock itself for microseconds; `acquire_lock` waits that out."""
NO_LOCKS = (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS)
"""Errors of a file system without locks, or whose server for locks is gone."""
WITHOUT_LOCKS = "its file system has no locks; set TUNER_STATE_DIR to a folder on another, or mount it with locks"


class LockedError(Exception):
    """Another process holds the lock."""


def acquire_lock(path: Path, timeout_s: float = ACQUIRE_TIMEOUT_S, *, needed: bool = True) -> int:
    """Return the descriptor that holds the lock as long as it is open. Raises `LockedError` and `OSError`.

    On a file system without locks, or with locks that exclude nobody, it raises `OSError`, unless the lock is not
    `needed`: then nothing is locked.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK, 0o600)
    try:
        # flock belongs to the open file: the kernel releases it when the holder ends, however it ends, and it says
        # nothing about file contents. A file with a pid would need a check whether that pid was reused.
        lock_descriptor(descriptor, path, timeout_s)
        if needed and not _excludes(descriptor):
            raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))
    except OSError as error:
        if error.errno in NO_LOCKS and not needed:
            return descriptor
        os.close(descriptor)
        raise OSError(error.errno, WITHOUT_LOCKS if error.errno in NO_LOCKS else error.strerror, str(path)) from error
    except LockedError:
        os.close(descriptor)
        raise
    return descriptor


def lock_descriptor(descriptor: int, path: str | Path, timeout_s: float) -> None:
    """Lock the open file at `path`. Raises `LockedError`, and `OSError` where there are no locks."""
    deadline = time.monotonic() + timeout_s
    while not _try_lock(descriptor, fcntl.LOCK_EX):
        if time.monotonic() > deadline:
            raise LockedError(str(path))
        time.sleep(0.01)


def held_lock(path: Path, timeout_s: float = ACQUIRE_TIMEOUT_S, *, needed: bool = True) -> AbstractContextManager[int]:
    """A lock that is held inside the block. Raises as `acquire_lock`."""
    return closing_descriptor(acquire_lock(path, timeout_s, needed=needed))


def lacks_locks(folder: Path) -> bool:
    """Whether the file system has no locks, or locks that exclude nobody; tried in the folder or the parent that
    exists."""
    import tempfile  # of no use to the supervisor, which stays small

    try:
        with tempfile.TemporaryFile(dir=next(path for path in (folder, *folder.parents) if path.is_dir())) as file:
            return _try_lock(file.fileno(), fcntl.LOCK_EX) and not _excludes(file.fileno())
    except OSError as error:
        return error.errno in NO_LOCKS


def is_locked(path: Path) -> bool:
    """Whether a process holds the lock; False if the file system has none. Raises `OSError` if it cannot be read."""
    try:
        with opened_regular(path) as descriptor:
            # Shared locks do not exclude each other, so that two readers that ask at once do not see each other's.
            return not _try_lock(descriptor, fcntl.LOCK_SH)
    except FileNotFoundError:
        return False
    except OSError as error:
        if error.errno in NO_LOCKS:
            return False
        raise


def wait_unlocked(path: Path) -> None:
    """Block until no process holds the lock; not at all on a file system without locks."""
    try:
        with opened_regular(path) as descriptor:
            fcntl.flock(descriptor, fcntl.LOCK_SH)
    except OSError as error:
        if error.errno not in NO_LOCKS:
            raise


def _excludes(descriptor: int) -> bool:
    """Whether the exclusive lock of `descriptor` keeps a second one out.

    Some network file systems and containers answer every request for a lock with success. A lock belongs to the open
    file, not to the process, so that one process can try: its own second opening of the file must be refused.
    """
    with closing_descriptor(os.open(f"/proc/self/fd/{descriptor}", os.O_RDWR | os.O_CLOEXEC)) as second:
        return not _try_lock(second, fcntl.LOCK_EX)


def _try_lock(descriptor: int, how: int) -> bool:
    try:
        fcntl.flock(descriptor, how | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
