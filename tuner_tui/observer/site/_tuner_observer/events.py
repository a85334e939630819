"""Append events to the run folder: a line is one `write` to a file opened O_APPEND, so writers never interleave."""

from __future__ import annotations

import json
import math
import os
import time
from typing import Any

EVENT_VERSION = 1


def finite(value: Any) -> Any:
    """JSON knows no NaN: a number that is not finite becomes its name, `nan`, `inf` or `-inf`."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, dict):
        return {str(name): finite(each) for name, each in value.items()}
    return value


class EventFile:
    """The file of one rank, opened at the first line. Errors are swallowed: a full disk must not hurt a training."""

    def __init__(self, run_dir: str, rank: int, separate: bool) -> None:
        """`separate`: one of several ranks, with a file of its own."""
        name = f"events-rank{rank}.jsonl" if separate else "events.jsonl"
        self.rank = rank
        self._path = os.path.join(run_dir, name)
        self._fd: int | None = None
        self._broken_line = False

    def story(self, kind: str, **fields: Any) -> None:
        """A rare event, kept for ever."""
        self._write(f'{{"story":1,"kind":"{kind}","v":{EVENT_VERSION},', fields)

    def frequent(self, kind: str, fields: dict[str, Any]) -> None:
        """Cumulative counters."""
        self._write(f'{{"kind":"{kind}","v":{EVENT_VERSION},', fields)

    def _write(self, head: str, fields: dict[str, Any]) -> None:
        known = {name: finite(value) for name, value in fields.items() if value is not None}
        body = json.dumps(dict(known, t=round(time.time(), 3), rank=self.rank), separators=(",", ":"), default=str)
        line = (head + body[1:] + "\n").encode("utf-8", "replace")
        if self._broken_line:
            line = b"\n" + line
        try:
            if self._fd is None:
                self._fd = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
            written = os.write(self._fd, line)
        except OSError:
            return
        self._broken_line = written < len(line)

    def forget(self) -> None:
        """After a fork: the descriptor belongs to the parent's story."""
        if self._fd is not None:
            try:  # noqa: SIM105 - contextlib would be imported for this
                os.close(self._fd)
            except OSError:
                pass
        self._fd = None
