"""Bytes of a log to text that is safe and useful on a terminal."""

from __future__ import annotations

import re

WIDEST_LINE = 2000
"""Characters kept of one line."""

_ESCAPE = re.compile(
    r"\x1b(?:\[[0-?]*[ -/]*(?:[@-~]|$)|\][^\x07\x1b]*(?:\x07|\x1b\\|$)|[PX^_][^\x1b]*(?:\x1b\\|$)|[ -/]*[0-~]|$)"
)
_UNSAFE = re.compile(r"[\x00-\x08\x0a-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ufff9-\ufffb]")


def clean_line(raw: bytes) -> str:
    """One line as text: the last state of a progress bar, no escape sequences, no control characters.

    What is no UTF-8 becomes `�`; a tab becomes blanks up to the next eighth column; what is too long is cut with `…`.
    """
    text = collapse(raw)[: WIDEST_LINE * 4].decode("utf-8", "replace")
    text = _UNSAFE.sub("", _ESCAPE.sub("", text)).expandtabs(8).rstrip()
    return text if len(text) <= WIDEST_LINE else text[: WIDEST_LINE - 1] + "…"


def collapse(raw: bytes) -> bytes:
    """What a carriage return leaves to see: the last piece of the line that holds anything."""
    if b"\r" not in raw:
        return raw
    end = len(raw)
    while end > 0:
        start = raw.rfind(b"\r", 0, end)
        piece = raw[start + 1 : end]
        if piece.strip():
            return piece
        end = start if start > 0 else 0
    return b""
