"""Appends whole lines to a file, and follows a file of lines that grows."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from tuner_tui.core.regular_files import open_regular


class LineAppender:
    """Appends whole lines to a file that other processes append to as well. A torn last line is ended first."""

    def __init__(self, path: Path) -> None:
        """Open or create the file with mode 0600. Raises `OSError`."""
        self._descriptor = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def append(self, line: bytes) -> None:
        """Write `line`, which ends with a newline. Raises `OSError` if the disk does not take all of it."""
        if not self._at_line_start():
            line = b"\n" + line
        written = os.write(self._descriptor, line)
        if written < len(line):
            os.write(self._descriptor, line[written:])  # raises with the reason, such as a full disk

    def close(self) -> None:
        os.close(self._descriptor)

    def _at_line_start(self) -> bool:
        size = os.fstat(self._descriptor).st_size
        return size == 0 or os.pread(self._descriptor, 1, size - 1) in (b"\n", b"")


CHUNK_BYTES = 1 << 20
LONGEST_LINE_BYTES = 1 << 20
"""A longer unfinished line is dropped."""


class LineTail:
    """Iterates over the complete lines of a growing file. A missing file is empty; a file that shrank is read again."""

    def __init__(self, path: Path, offset: int = 0) -> None:
        """Start at byte `offset`, which must be the beginning of a line."""
        self.path = path
        self.offset = offset
        self._torn = b""

    def size(self) -> int:
        """The size of the file in bytes; 0 if it does not exist."""
        try:
            return self.path.stat().st_size
        except OSError:
            return 0

    def skip_to(self, offset: int) -> None:
        """Continue at byte `offset`, the beginning of a line."""
        self.offset, self._torn = offset, b""

    def lines(self) -> Iterator[bytes]:
        """The lines completed since the last call, without newlines. At most a chunk is in memory.

        Lines written after the call started are left for the next call, so that a fast writer cannot block a reader.
        """
        end = self.size()
        if end < self.offset:
            self.skip_to(0)
        while self.offset < end and (chunk := self._read(end - self.offset)):
            *whole, self._torn = (self._torn + chunk).split(b"\n")
            self.offset += len(chunk)
            if len(self._torn) > LONGEST_LINE_BYTES:
                self._torn = b""
            yield from whole

    def _read(self, most: int) -> bytes:
        try:
            descriptor = open_regular(self.path)
        except OSError:
            return b""
        try:
            return os.pread(descriptor, min(CHUNK_BYTES, most), self.offset)
        finally:
            os.close(descriptor)
