"""Opens files that others may have replaced: a named pipe, a device or a link there is an error, not a wait."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

MAX_BYTES = 8 << 20


def open_regular(path: str | os.PathLike[str], *, follow_links: bool = False) -> int:
    """Return a descriptor for reading a regular file. Never blocks. Raises `OSError`, also for anything else.

    With `follow_links` the file may be a link, which is usual in folders of the user, not in those of this program.
    """
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY
    try:
        descriptor = os.open(path, flags if follow_links else flags | os.O_NOFOLLOW)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENXIO):  # a link, or a socket
            raise OSError(errno.EINVAL, "Not a regular file", os.fspath(path)) from None
        raise
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "Not a regular file", os.fspath(path))
    return descriptor


def read_regular(path: str | os.PathLike[str], max_bytes: int = MAX_BYTES, *, follow_links: bool = False) -> bytes:
    """Read a whole regular file. Raises `OSError`, also if it is larger than `max_bytes`."""
    descriptor = open_regular(path, follow_links=follow_links)
    with os.fdopen(descriptor, "rb") as file:
        content = file.read(max_bytes + 1)
    if len(content) > max_bytes:
        raise OSError(errno.EFBIG, os.strerror(errno.EFBIG), os.fspath(path))
    return content


def is_irregular(path: Path) -> bool:
    """Whether something other than a regular file has this name."""
    try:
        return not stat.S_ISREG(path.lstat().st_mode)
    except OSError:
        return False
