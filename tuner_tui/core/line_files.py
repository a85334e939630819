"""Files of lines: appended to by several processes, and read as they grow."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from tuner_tui.core.files import open_to_append, opened_regular


class LineAppender:
    """Appends whole lines to a file that other processes append to as well. A torn last line is ended first."""

    def __init__(self, path: Path) -> None:
        """Open or create the file with mode 0600. Raises `OSError`."""
        self._descriptor = open_to_append(path)

    def append(self, line: bytes) -> None:
        """Write `line`, which ends with a newline. Raises `OSError` if the disk does not take all of it."""
        # A writer that was killed, or a full disk, may have left half a line. A newline in front keeps it from
        # swallowing this one; readers skip the torn line. One write call per line, so that lines of two processes do
        # not mix.
        size = os.fstat(self._descriptor).st_size
        if size and os.pread(self._descriptor, 1, size - 1) not in (b"\n", b""):
            line = b"\n" + line
        written = os.write(self._descriptor, line)
        if written < len(line):
            os.write(self._descriptor, line[written:])  # raises with the reason, such as a full disk

    def close(self) -> None:
        os.close(self._descriptor)


def append_line(path: Path, line: bytes) -> None:
    """Append one line, as `LineAppender` does. Raises `OSError`."""
    with closing(LineAppender(path)) as appender:
        appender.append(line)


CHUNK_BYTES = 1 << 20
LONGEST_LINE_BYTES = 1 << 20
"""A longer unfinished line is dropped."""


class LineTail:
    """Iterates over the complete lines of a growing file. A missing file is empty; a file that shrank is read again."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.offset = 0
        self._torn = b""

    def size(self) -> int:
        """The size of the file in bytes; 0 if it does not exist."""
        try:
            return self.path.stat().st_size
        except OSError:
            return 0

    def skip_to(self, offset: int) -> None:
        self.offset, self._torn = offset, b""

    def lines(self) -> Iterator[bytes]:
        """The lines completed since the last call, without newlines. At most a chunk is in memory.

        Lines written after the call started are left for the next call, so that a fast writer cannot block a reader.
        """
        # What follows the last newline is kept in `_torn` and put in front of the next chunk. `offset` counts what was
        # read, torn or not, so that a file that is smaller than it was replaced or cut: it is then read from its
        # beginning.
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
            with opened_regular(self.path) as descriptor:
                return os.pread(descriptor, min(CHUNK_BYTES, most), self.offset)
        except OSError:
            return b""
