"""Reads a log of any size in windows, as text that is safe on a terminal, in constant memory.

Lines are addressed by the byte at which they begin, because counting the lines of a gigabyte takes a second. A line may
have any length: a progress bar that only writes `\\r` is one line.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from msgspec import Struct

from tuner_tui.core.files import closing_descriptor, open_regular
from tuner_tui.core.text import escape_control

MAX_LINE_CHARACTERS = 2000
"""Longer lines are cut."""

_ESCAPE = re.compile(
    r"\x1b(?:\[[0-?]*[ -/]*(?:[@-~]|$)|\][^\x07\x1b]*(?:\x07|\x1b\\|$)|[PX^_][^\x1b]*(?:\x1b\\|$)|[ -/]*[0-~]|$)"
)
_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f-\x9f]")


def clean_line(raw: bytes) -> str:
    """One line as text: the last state of a progress bar, without escape sequences and control characters.

    Characters that are not seen or change the direction of writing are escaped. Invalid UTF-8 becomes `�`, tabs become
    spaces up to the next multiple of eight columns, long lines end with `…`.
    """
    # What a carriage return leaves visible is the last part of the line that is not empty.
    visible = next((part for part in reversed(raw.split(b"\r")) if part.strip()), b"")
    text = visible[: MAX_LINE_CHARACTERS * 4].decode("utf-8", "replace")
    if not (text.isascii() and text.isprintable()):  # most lines are, and cost a tenth
        text = escape_control(_CONTROL.sub("", _ESCAPE.sub("", text))).expandtabs(8)
    text = text.rstrip()
    return text if len(text) <= MAX_LINE_CHARACTERS else text[: MAX_LINE_CHARACTERS - 1] + "…"


CHUNK_BYTES = 1 << 20
LINE_BYTES = 32 << 10
"""Only the end of a longer line is read: it holds the last state of a progress bar."""
BLOCK_BYTES = 256 << 10
"""What is read is a multiple of it."""
SEARCH_BYTES = 256 << 20
"""Bytes read by one search, a third of a second from the page cache."""


class LogWindow(Struct, frozen=True):
    """Consecutive lines of the log. `anchors` are the bytes at which they begin; the next line begins at `end`.

    `unfinished`: the last line has no newline yet.
    """

    lines: tuple[str, ...] = ()
    anchors: tuple[int, ...] = ()
    start: int = 0
    end: int = 0
    total_bytes: int = 0
    at_start: bool = True
    at_end: bool = True
    unfinished: bool = False


class LogMatch(Struct, frozen=True):
    """The anchor of the line that contains the searched text, or None.

    `complete` is False if the search stopped after `SEARCH_BYTES`.
    """

    anchor: int | None
    complete: bool


class LogReader:
    """Reads windows of one log. Keeps no file open; a missing log is empty."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def tail(self, count: int) -> LogWindow:
        return self.before(sys.maxsize, count)

    def window(self, anchor: int, count: int) -> LogWindow:
        """`count` lines from the line that contains byte `anchor`."""
        with self._open() as file:
            starts = [file.line_start(min(max(0, anchor), file.size))]
            while len(starts) <= count and starts[-1] < file.size:
                starts.append(file.next_line(starts[-1]))
            return file.window(starts)

    def before(self, anchor: int, count: int) -> LogWindow:
        """`count` lines that end before byte `anchor`, which begins a line or is the end of the file."""
        with self._open() as file:
            starts = [min(max(0, anchor), file.size)]
            while len(starts) <= count and starts[-1] > 0:
                starts.append(file.line_start(starts[-1] - 1))
            return file.window(starts[::-1])

    def search(self, text: str, start: int, *, backwards: bool = False) -> LogMatch:
        """The first line at or after byte `start` (backwards: before it) that contains `text`, ignoring ASCII case."""
        wanted = text.encode("utf-8", "replace").lower()
        with self._open() as file:
            if not wanted or not file.size:
                return LogMatch(None, True)
            return file.find(wanted, min(max(0, start), file.size), backwards=backwards)

    @contextmanager
    def _open(self) -> Iterator[_File]:
        try:
            descriptor = open_regular(self.path)
        except OSError:
            descriptor = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        with closing_descriptor(descriptor):
            yield _File(descriptor)


class _File:
    """An open log, with its size when it was opened. Neighbouring lines are read at once."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self.size = os.fstat(descriptor).st_size
        self._block_start, self._block = 0, b""

    def line_start(self, offset: int) -> int:
        """Where the line that contains byte `offset` begins."""
        end = offset
        while end > 0:
            start = max(0, end - CHUNK_BYTES)
            position = self._read(start, end).rfind(b"\n")
            if position >= 0:
                return start + position + 1
            end = start
        return 0

    def next_line(self, offset: int) -> int:
        """Where the line after the one that contains byte `offset` begins, or the end of the file."""
        start, length = offset, LINE_BYTES
        while start < self.size:
            position = self._read(start, start + length).find(b"\n")
            if position >= 0:
                return start + position + 1
            start, length = start + length, CHUNK_BYTES
        return self.size

    def window(self, starts: list[int]) -> LogWindow:
        """The lines between consecutive `starts`; the last start is the end of the window."""
        anchors, end = starts[:-1], starts[-1]
        lines = tuple(self._line(a, b) for a, b in zip(anchors, starts[1:], strict=True))
        start = starts[0]
        at_end = end >= self.size
        unfinished = at_end and bool(lines) and self._read(end - 1, end) != b"\n"
        return LogWindow(lines, tuple(anchors), start, end, self.size, start == 0, at_end, unfinished)

    def find(self, wanted: bytes, start: int, *, backwards: bool) -> LogMatch:
        """The first match from `start`, or the last one that begins before it; `wanted` is lower case."""
        limit = max(0, start - SEARCH_BYTES) if backwards else min(self.size, start + SEARCH_BYTES)
        for edge in range(start, limit, -CHUNK_BYTES if backwards else CHUNK_BYTES):
            offset, end = (max(limit, edge - CHUNK_BYTES), edge) if backwards else (edge, edge + CHUNK_BYTES)
            block = self._read(offset, end + len(wanted) - 1).lower()
            position = block.rfind(wanted) if backwards else block.find(wanted)
            if position >= 0:
                return LogMatch(self.line_start(offset + position), True)
        return LogMatch(None, limit == (0 if backwards else self.size))

    def _line(self, start: int, end: int) -> str:
        raw = self._read(max(start, end - LINE_BYTES), end)
        return clean_line(raw.rstrip(b"\r\n"))

    def _read(self, start: int, end: int) -> bytes:
        end = min(end, self.size)
        # Looking for the beginnings of lines reads backwards in small steps, and showing them reads the same bytes
        # again: what is read is rounded up to whole blocks and kept until something outside of it is wanted.
        if not self._block_start <= start < end <= self._block_start + len(self._block):
            self._block_start = start - start % BLOCK_BYTES
            length = max(0, end - self._block_start)
            self._block = os.pread(self._descriptor, length + -length % BLOCK_BYTES, self._block_start)
        return self._block[start - self._block_start : max(start, end) - self._block_start]
