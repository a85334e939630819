"""Encodes events and hardware samples as JSON lines and decodes them. Decoding never raises: bad lines give None."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

from msgspec import MsgspecError
from msgspec.json import Decoder

from tuner_tui.core.json_struct import from_json, to_json
from tuner_tui.hardware.sample import Sample
from tuner_tui.runs.events.types import EVENT_TYPES, EVENT_VERSION, Event

T = TypeVar("T")
MAX_LINE_BYTES = 1 << 20
"""Longer lines are skipped without parsing."""


def encode_event(event: Event) -> bytes:
    """The event as a line with newline. Fields at their defaults are left out; NaN is the string "nan"."""
    head: dict[str, Any] = {"story": 1} if event.story else {}
    return _encode(head | {"kind": event.kind, "v": EVENT_VERSION} | to_json(event))


def decode_event(line: bytes) -> Event | None:
    """The event of a line, or None for a torn line, an unknown kind, a newer version or wrong types."""
    return _decode(line, EVENT_VERSION, lambda data: from_json(EVENT_TYPES[str(data.get("kind"))], data))


def decode_events(lines: Iterable[bytes]) -> Iterator[Event]:
    """The events of those lines that are events."""
    return (event for line in lines if line and (event := decode_event(line)) is not None)


SAMPLE_VERSION, SAMPLE_START = 1, b'{"v":1,'
_SAMPLES = Decoder(Sample)


def encode_sample(sample: Sample) -> bytes:
    """The sample as a line with newline. Unknown figures are left out; numbers have three decimals."""
    return _encode({"v": SAMPLE_VERSION} | _rounded(to_json(sample)))


def decode_sample(line: bytes) -> Sample | None:
    """The sample of a line, or None for a torn line, a newer version or wrong types."""
    with suppress(MsgspecError, UnicodeDecodeError):
        # Quicker by far, for lines as they are written. It lets lone surrogates through, which need an escape.
        if line.startswith(SAMPLE_START) and len(line) <= MAX_LINE_BYTES and b"\\" not in line:
            return _SAMPLES.decode(line)
    return _decode(line, SAMPLE_VERSION, partial(from_json, Sample))


def _encode(body: dict[str, Any]) -> bytes:
    return json.dumps(body, separators=(",", ":"), allow_nan=False).encode("ascii") + b"\n"


def _decode(line: bytes, version: int, build: Callable[[dict[str, Any]], T | None]) -> T | None:
    try:
        data = json.loads(line) if len(line) <= MAX_LINE_BYTES else None
        if not isinstance(data, dict) or type(data.get("v")) is not int or not 1 <= data["v"] <= version:
            return None
        return build(data)
    except (ValueError, KeyError, RecursionError):
        return None


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return round(value, 3)
    if isinstance(value, dict):
        return {key: _rounded(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_rounded(item) for item in value]
    return value
