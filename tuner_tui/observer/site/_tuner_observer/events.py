"""Append events to the run folder: one line, one `write`, to a file opened O_APPEND, so that writers never interleave."""

import json
import math
import os
import time

EVENT_VERSION = 1


def finite(value):
    """JSON knows no NaN: a number that is not finite becomes its name, `nan`, `inf` or `-inf`."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, dict):
        return {str(name): finite(each) for name, each in value.items()}
    return value


class EventFile:
    """The file of one rank. Opened at the first line; every error is swallowed: a full disk must not hurt a training."""

    def __init__(self, run_dir, rank, separate):
        """`separate`: one of several ranks, with a file of its own."""
        name = "events-rank%d.jsonl" % rank if separate else "events.jsonl"
        self.rank = rank
        self._path = os.path.join(run_dir, name)
        self._fd = None
        self._broken_line = False

    def story(self, kind, **fields):
        """A rare event, kept for ever."""
        self._write('{"story":1,"kind":"%s","v":%d,' % (kind, EVENT_VERSION), fields)

    def frequent(self, kind, fields):
        """Cumulative counters."""
        self._write('{"kind":"%s","v":%d,' % (kind, EVENT_VERSION), fields)

    def _write(self, head, fields):
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

    def forget(self):
        """After a fork: the descriptor belongs to the parent's story."""
        if self._fd is not None:
            try:
                os.close(self._fd)
            except OSError:
                pass
        self._fd = None
