"""The head and the tail of an output of any size: what a diagnosis reads of it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import BinaryIO

HEAD_BYTES = 64 << 10
TAIL_BYTES = 512 << 10
CHUNK_BYTES = 1 << 20


def of_file(path: Path) -> tuple[str, ...]:
    """Head and tail of the file's lines; raises `OSError` where it cannot be read."""
    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        if not path.is_file() or size <= HEAD_BYTES + TAIL_BYTES:
            return of_stream(file)
        head = file.read(HEAD_BYTES)
        file.seek(size - TAIL_BYTES)
        return (*_lines(head), *_lines(file.read(TAIL_BYTES)))


def of_stream(stream: BinaryIO) -> tuple[str, ...]:
    """Head and tail of what the stream gives until its end; never more than a chunk beyond that in memory."""
    head, tail = b"", b""
    while chunk := stream.read(CHUNK_BYTES):
        room = HEAD_BYTES - len(head)
        head, tail = head + chunk[:room], (tail + chunk[room:])[-TAIL_BYTES:]
    return _lines(head + tail)


def _lines(text: bytes) -> tuple[str, ...]:
    return tuple(text.decode("utf-8", "replace").split("\n"))
