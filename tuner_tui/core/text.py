"""Text for people: wrapped lines, and text of others that cannot control the terminal."""

from __future__ import annotations

import re
import textwrap
from base64 import b64encode
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from tuner_tui.core.units import UNKNOWN

REPORT_WIDTH = 100
"""Columns of a report."""


def wrap_text(text: str, width: int = REPORT_WIDTH, **options: Any) -> list[str]:
    """`text` in lines of at most `width` cells, which end between words; `options` are those of `textwrap.wrap`."""
    return textwrap.wrap(text, width, break_on_hyphens=False, **options)


def end_at_word(text: str, most: int) -> str:
    """`text` in at most `most` characters, shortened with `…`: after a word, unless that fills less than 60 %."""
    if len(text) <= most:
        return text
    start = text[: max(0, most - 1)]
    words = start.rpartition(" ")[0].rstrip(" ,;:·(")
    return f"{words} …" if len(words) > most * 0.6 else start.rstrip() + "…" * (most > 0)


def first_line(text: str) -> str:
    """The first line of a message, at most 200 characters of it."""
    return end_at_word(text.strip().partition("\n")[0], 200)


def format_table(rows: Sequence[Sequence[str]], right: Collection[int] = (), indent: str = "") -> list[str]:
    """Return rows as lines of aligned columns; the columns whose indices are in `right` are aligned to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for row in rows:
        cells = (
            cell.rjust(width) if column in right else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        lines.append((indent + "  ".join(cells)).rstrip())
    return lines


def format_observed(value: Any) -> str:
    """A value seen in a training in words: `on`, `off`, a list with commas, `flash on, math off`; `–` for None."""
    if value is None:
        return UNKNOWN
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {format_observed(part)}" for name, part in value.items()) or "none"
    if isinstance(value, list | tuple):
        return ", ".join(map(format_observed, value)) or "none"
    return str(value)


_CONTROL = (
    r"\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff"  # C0, C1, halves of surrogate pairs
    r"\u2028-\u202e\u2066-\u2069"  # line ends, direction of writing
    # What Unicode's DerivedCoreProperties calls Default_Ignorable_Code_Point: it takes no cell, and is not seen.
    r"\xad\u034f\u061c\u17b4\u17b5\u180b-\u180f\u200b\u200e\u200f\u2060-\u2065\u206a-\u206f\ufeff\ufff0-\ufffb"
    r"\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff"
)
_JOINED = r"[\u0600-\u0dff\u2190-\u2bff\u3030-\u3299\U0001f000-\U0001faff]"
"""Letters and emoji that are written with joiners and selectors of their form."""
_STRAY_JOINER = rf"(?<!{_JOINED})(?<!{_JOINED}\ufe0f)[\u200c\u200d\ufe00-\ufe0f]"
_BLANK_LETTER = r"[\u115f\u1160\u3164\uffa0]"
_UNSAFE = re.compile(f"[{_CONTROL}]|{_STRAY_JOINER}|{_BLANK_LETTER}")
_NOT_A_CELL = re.compile(rf"[\t\n{_CONTROL}]")


def escape_control(text: str) -> str:
    r"""Return the text with all that controls a terminal or is not seen escaped, as `\x1b` and `\u200b`.

    Line ends and tabs stay, and joiners where a script or an emoji needs them.
    """
    return text if text.isascii() and text.isprintable() else _UNSAFE.sub(lambda match: ascii(match[0])[1:-1], text)


def single_line(text: str) -> str:
    """Return the text on one line, each white space as a blank, escaped as by `escape_control`."""
    return " ".join(escape_control(text).split())


def drop_control(text: str) -> str:
    """Return the text of cells of a screen without control characters, which have no width."""
    return text if text.isascii() and text.isprintable() else _NOT_A_CELL.sub("", text)


SCREEN_PIECE = 700
MOST_BYTES = 74_994
"""What xterm, and most terminals after it, take at once: 100,000 characters of base64."""
BELL = "\a"
MAX_CHARACTERS = 200


def clipboard_sequence(text: str, environ: Mapping[str, str]) -> str | None:
    """The characters to write to the terminal; None for one without a clipboard, or for text that is too long."""
    data = text.encode()
    if _ignores_commands(environ) or len(data) > MOST_BYTES:
        return None
    return _passed_through(f"\x1b]52;c;{b64encode(data).decode()}\a", environ)


def terminal_notification(text: str, environ: Mapping[str, str]) -> str:
    """The characters to write to the terminal for `text`; only the bell on terminals without OSC 9."""
    if _ignores_commands(environ):
        return BELL
    clean = "".join(character for character in text if character.isprintable())[:MAX_CHARACTERS]
    return _passed_through(f"\x1b]9;{clean}\a", environ) + BELL


def _ignores_commands(environ: Mapping[str, str]) -> bool:
    terminal = environ.get("TERM", "")
    return terminal in ("", "dumb", "linux") or terminal.startswith("vt")


def _passed_through(sequence: str, environ: Mapping[str, str]) -> str:
    """The sequence as tmux or screen passes it to the terminal that they run in."""
    if environ.get("TMUX"):
        return "\x1bPtmux;" + sequence.replace("\x1b", "\x1b\x1b") + "\x1b\\"
    if environ.get("STY"):
        pieces = (sequence[start : start + SCREEN_PIECE] for start in range(0, len(sequence), SCREEN_PIECE))
        return "".join(f"\x1bP{piece}\x1b\\" for piece in pieces)
    return sequence


def name_ranks(ranks: Iterable[int]) -> str:
    """`rank 3`, `ranks 0, 1 and 2`, or `ranks 0 to 7`."""
    numbers = sorted(ranks)
    if len(numbers) == 1:
        return f"rank {numbers[0]}"
    if numbers == list(range(numbers[0], numbers[-1] + 1)) and len(numbers) > 2:
        return f"ranks {numbers[0]} to {numbers[-1]}"
    return f"ranks {', '.join(map(str, numbers[:-1]))} and {numbers[-1]}"


def join_paragraphs(sections: Iterable[Sequence[str]]) -> list[str]:
    """Return the lines of all sections that have any, with a blank line between two sections."""
    return "\n\n".join("\n".join(section) for section in sections if section).split("\n")


def titled_section(title: str, lines: Sequence[str]) -> list[str]:
    """Return `lines` below their title; nothing without lines."""
    return [title, *lines] if lines else []


def hanging_lines(first: str, text: str, width: int = REPORT_WIDTH) -> list[str]:
    """Wrap `text` behind `first`; the following lines are indented by the length of `first`."""
    return wrap_text(text, width, initial_indent=first, subsequent_indent=" " * len(first))
