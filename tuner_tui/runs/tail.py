"""Following a file of lines that grows: what came since the last look, in whole lines."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

CHUNK_BYTES = 1 << 20
LONGEST_LINE_BYTES = 1 << 20
"""A line that grows beyond this without an end is dropped: nothing that belongs here is so long."""


class Tail:
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
