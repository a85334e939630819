"""The characters pictures are made of: blocks and braille, or plain ASCII for terminals that have nothing else."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Glyphs:
    """One set of characters. `levels` go from empty to full; `ascii` says that nothing else may be used."""

    levels: str
    bar_full: str
    bar_parts: str
    bar_empty: str
    good: str
    warn: str
    bad: str
    point: str
    separator: str
    ascii: bool = False


UNICODE = Glyphs(
    levels=" ▁▂▃▄▅▆▇█",
    bar_full="━",
    bar_parts="╸",
    bar_empty=" ",
    good="✓",
    warn="!",
    bad="✗",
    point="▸",
    separator="·",
)
ASCII = Glyphs(
    levels=" .:-=+*%#", bar_full="=", bar_parts="-", bar_empty=" ", good="+", warn="!", bad="x", point=">", separator="-",
    ascii=True,
)  # fmt: skip

_TO_ASCII = str.maketrans(
    {"–": "-", "—": "-", "…": "~", "·": "-", "°": " ", "×": "x", "▸": ">", "→": ">", "✓": "+", "✗": "x", "±": "~", "│": "|",
     "─": "-", "└": "+", "├": "+", "┤": "+", "▏": "|", "▕": "|", "↑": "^", "↓": "v", "≥": ">", "≤": "<", "’": "'", "●": "*",
     "━": "=", "╸": "-", "“": '"', "”": '"', "‘": "'", "≈": "~", "µ": "u"}
)  # fmt: skip


def plain(text: str) -> str:
    """`text` in ASCII, cell for cell; a character without a likeness becomes `?`."""
    if text.isascii():
        return text
    translated = text.translate(_TO_ASCII)
    return translated if translated.isascii() else "".join(_likeness(character) for character in translated)


def _likeness(character: str) -> str:
    from rich.cells import cell_len

    return character if character.isascii() else "?" * cell_len(character)
