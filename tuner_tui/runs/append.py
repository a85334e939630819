"""Appending lines to a file that others append to as well, and that may be on a full disk."""

from __future__ import annotations

import os
from pathlib import Path


class Appender:
    """Appends whole lines, each by one write. A torn line that somebody left behind is closed first."""

    def __init__(self, path: Path) -> None:
        """Opens or creates the file, for the user alone. Raises `OSError`."""
        self._descriptor = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def append(self, line: bytes) -> None:
        """Write `line` (with its newline). Raises `OSError` where the disk takes it not or only in part."""
        if not self._at_line_start():
            line = b"\n" + line
        written = os.write(self._descriptor, line)
        if written < len(line):
            os.write(self._descriptor, line[written:])  # raises with the reason, such as a full disk

    def close(self) -> None:
        """Close the file."""
        os.close(self._descriptor)

    def _at_line_start(self) -> bool:
        size = os.fstat(self._descriptor).st_size
        return size == 0 or os.pread(self._descriptor, 1, size - 1) in (b"\n", b"")
