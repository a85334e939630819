"""Appends whole lines to a file, and follows a file of lines that grows."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path


class LineAppender:
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


CHUNK_BYTES = 1 << 20
LONGEST_LINE_BYTES = 1 << 20
"""A line that grows beyond this without an end is dropped: nothing that belongs here is so long."""


class LineTail:
    """Whole lines of a growing file. A file that is not there yet is empty; one that shrank is read anew."""

    def __init__(self, path: Path, offset: int = 0) -> None:
        """`offset` is where to begin, in bytes: the beginning of a line."""
        self.path = path
        self.offset = offset
        self._torn = b""

    def size(self) -> int:
        """Bytes in the file now."""
        try:
            return self.path.stat().st_size
        except OSError:
            return 0

    def skip_to(self, offset: int) -> None:
        """Go on at `offset`, the beginning of a line."""
        self.offset, self._torn = offset, b""

    def lines(self) -> Iterator[bytes]:
        """The lines completed since the last call, without their newlines. Never more than a chunk in memory.

        What is written after the call began waits for the next one, so that a fast writer cannot hold a reader.
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
            descriptor = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return b""
        try:
            return os.pread(descriptor, min(CHUNK_BYTES, most), self.offset)
        finally:
            os.close(descriptor)
