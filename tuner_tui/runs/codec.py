"""Events to lines and back. Decoding never raises: what cannot be read is not there."""

from __future__ import annotations

import json
import math
from typing import Any

from tuner_tui.runs.events import EVENT_TYPES, EVENT_VERSION, STORY_PREFIX, Event
from tuner_tui.runs.typed import build, plain

LONGEST_LINE = 1 << 20
"""A longer line, in bytes, is no event: it is skipped unparsed."""


def encode(event: Event) -> bytes:
    """The event as one line, newline included. Fields at their defaults are left out; NaN is the string "nan"."""
    head: dict[str, Any] = {"story": 1} if event.story else {}
    body = head | {"kind": event.kind, "v": EVENT_VERSION} | plain(event)
    return json.dumps(body, separators=(",", ":"), allow_nan=False).encode("ascii") + b"\n"


def decode(line: bytes) -> Event | None:
    """The event of one line, or None for a torn line, an unknown kind, a newer version or wrong types."""
    if len(line) > LONGEST_LINE:
        return None
    try:
        data = json.loads(line)
        return _event(data) if isinstance(data, dict) else None
    except (ValueError, RecursionError):
        return None


def is_story(line: bytes) -> bool:
    """Whether the line is a story event, told by its first bytes alone."""
    return line.startswith(STORY_PREFIX)


def _event(data: dict[str, Any]) -> Event | None:
    version, kind = data.get("v"), data.get("kind")
    if type(version) is not int or not 1 <= version <= EVENT_VERSION or not isinstance(kind, str):
        return None
    cls = EVENT_TYPES.get(kind)
    event = None if cls is None else build(cls, data)
    return event if event is not None and math.isfinite(event.t) else None
