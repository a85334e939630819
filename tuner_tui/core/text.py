"""Text helpers: line wrapping that keeps paths and options whole."""

from __future__ import annotations

import textwrap


def wrap_text(
    text: str, width: int, *, initial_indent: str = "", subsequent_indent: str = "", break_long_words: bool = True
) -> list[str]:
    """`text` in lines of `width` cells at most; a word longer than a line is broken unless told otherwise."""
    return textwrap.wrap(
        text,
        width,
        initial_indent=initial_indent,
        subsequent_indent=subsequent_indent,
        break_long_words=break_long_words,
        break_on_hyphens=False,
    )
