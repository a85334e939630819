"""Themes: dark, light, and one for terminals without colour; and a filter that writes ASCII only.

Colour means state: primary marks the focus, changed values and curves, success what runs well, warning what needs
attention, error what is wrong. Everything else is foreground, plain or dim.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.segment import Segment
from textual.filter import LineFilter
from textual.theme import Theme

from tuner_tui.core.text import drop_control

if TYPE_CHECKING:
    from textual.color import Color

DARK = Theme(
    name="tuner-dark",
    primary="#6cb6ff",
    secondary="#6cb6ff",
    accent="#6cb6ff",
    success="#7ccf8a",
    warning="#e6b450",
    error="#ff7b72",
    foreground="#d3d9e0",
    background="#0f1317",
    surface="#0f1317",
    panel="#1d242c",
    dark=True,
    variables={"frame": "#39424d", "quiet": "#8b96a3", "gauge": "#5f89b8", "cursor": "#1f3044"},
)
LIGHT = Theme(
    name="tuner-light",
    primary="#0a5cc2",
    secondary="#0a5cc2",
    accent="#0a5cc2",
    success="#1a7f37",
    warning="#8a5a00",
    error="#c4232f",
    foreground="#1f2328",
    background="#fcfcfa",
    surface="#fcfcfa",
    panel="#eceef0",
    dark=False,
    variables={"frame": "#b4bcc5", "quiet": "#59636e", "gauge": "#5b84b1", "cursor": "#d9e8fb"},
)
PLAIN = Theme(
    name="tuner-plain",
    ansi=True,
    primary="ansi_default",
    secondary="ansi_default",
    accent="ansi_default",
    success="ansi_default",
    warning="ansi_default",
    error="ansi_default",
    foreground="ansi_default",
    background="ansi_default",
    surface="ansi_default",
    panel="ansi_default",
    boost="ansi_default",
    variables={
        **dict.fromkeys(
            (
                "frame", "gauge", "quiet", "cursor", "ansi-background", "ansi-foreground", "border", "border-blurred",
                "block-cursor-foreground", "block-cursor-background", "input-cursor-background",
                "input-cursor-foreground", "input-selection-background", "input-selection-foreground",
                "screen-selection-background", "screen-selection-foreground",
            ),
            "ansi_default",
        ),
        "block-cursor-text-style": "reverse",
        "input-cursor-text-style": "reverse",
    },
)  # fmt: skip
THEMES = (DARK, LIGHT, PLAIN)

_SAME = {
    "-": "─━╌┄╴╶╸╺═⎯–—‐‑−",
    "|": "│┃▏▎▍▕║┆",
    "+": "✓✔┌┐└┘├┤┬┴┼╭╮╰╯╔╗╚╝╠╣╦╩╬╋┏┓┗┛┣┫┳┻┠┨┯┷",
    "#": "█▉▊▋▌▇▆▐▓■◼",
    "=": "▅▄▒",
    ":": "▃░",
    "_": "▂▁",
    "^": "▔▀▲△↑▴",
    "*": "●◉•⬤✱★◆",
    "o": "○◌◯□◇°",
    ".": "·∙",
    ">": "▸▶→›❯⏵▷»↗",
    "<": "◂◀←‹❮⏴◁«",
    "v": "▼▽↓▾↘",
    "x": "×✗✘✖",
    "!": "⚠▪",
    "~": "≈∼…⋯±",
    "/": "∕⁄",
    '"': "“”",
    "'": "‘’",
    "u": "µμ",
    " ": "\u00a0\u2009\u202f⠀",
}
RIGHT_DOTS = 0xB8
"""The right column of dots of a braille character; a dotted curve uses none of them."""
_ASCII = {ord(fancy): plain for plain, fancies in _SAME.items() for fancy in fancies}


def to_ascii(text: str) -> str:
    """Return `text` in ASCII, cell by cell: frames, bars and marks are replaced, anything else becomes `?`."""
    if text.isascii():
        return text
    return "".join(_likeness(character) for character in text.translate(_ASCII))


def _likeness(character: str) -> str:
    if character.isascii():
        return character
    if "\u2801" <= character <= "\u28ff":
        return "*" if ord(character) & RIGHT_DOTS else "."
    from rich.cells import get_character_cell_size

    return "?" * get_character_cell_size(character)


class SafeCells(LineFilter):
    """Removes characters that control the terminal: every cell of the screen passes through here."""

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:
        if all(text.isprintable() for text, _, _ in segments):
            return segments
        return [Segment(drop_control(text), style, control) for text, style, control in segments]


class Ascii(LineFilter):
    """Replaces all characters that are not ASCII."""

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:
        return [Segment(to_ascii(text), style, control) for text, style, control in segments]
