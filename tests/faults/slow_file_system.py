"""Mounts a folder again, slowly: `python -m tests.faults.slow_file_system FOLDER PLACE SECONDS`.

Every operation takes SECONDS, as on a file server far away. Needs fusepy and libfuse.
"""

from __future__ import annotations

import importlib
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

STAT = ("st_atime", "st_ctime", "st_gid", "st_mode", "st_mtime", "st_nlink", "st_size", "st_uid")
SPACE = ("f_bavail", "f_bfree", "f_blocks", "f_bsize", "f_namemax")
OPERATIONS: dict[str, Callable[..., object]] = {
    "getattr": lambda path, file: {name: getattr(os.lstat(path), name) for name in STAT},
    "readdir": lambda path, file: [".", "..", *(entry.name for entry in Path(path).iterdir())],
    "open": lambda path, flags: os.open(path, flags & ~os.O_NOFOLLOW),
    "create": lambda path, mode: os.open(path, os.O_RDWR | os.O_CREAT, mode),
    "read": lambda path, count, offset, file: os.pread(file, count, offset),
    "write": lambda path, content, offset, file: os.pwrite(file, content, offset),
    "truncate": lambda path, length, file=None: os.truncate(path, length),
    "release": lambda path, file: os.close(file),
    "mkdir": os.mkdir,
    "unlink": os.unlink,
    "chmod": os.chmod,
    "statfs": lambda path: {name: getattr(os.statvfs(path), name) for name in SPACE},
}


class SlowFolder:
    """The operations on `folder`, which fusepy asks for by name; it only checks that the attribute exists."""

    def __init__(self, folder: str, delay_s: float) -> None:
        self._folder, self._delay_s = folder, delay_s

    def __call__(self, operation: str, path: str, *rest: Any) -> object:
        time.sleep(self._delay_s)
        if operation == "rename":
            Path(self._folder + path).rename(self._folder + rest[0])
            return None
        return OPERATIONS[operation](self._folder + path, *rest) if operation in OPERATIONS else None

    def __getattr__(self, name: str) -> bool:
        if name in OPERATIONS or name in ("rename", "init", "destroy"):
            return True
        raise AttributeError(name)


if __name__ == "__main__":
    fuse = importlib.import_module("fuse")
    fuse.FUSE(SlowFolder(sys.argv[1], float(sys.argv[3])), sys.argv[2], foreground=True, nothreads=True)
