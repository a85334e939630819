"""What is written to the terminal: safe characters, ASCII where asked for, and only the cells that changed.

Textual repaints a changed span from the left edge of its widget, with a colour sequence before every piece: over SSH
three times the bytes. Here changed cells are grouped by style. Full repaints are written in full, so that whatever else
was on the terminal is overwritten.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple, cast

from rich.color import ColorSystem
from rich.segment import Segment
from rich.style import Style
from textual._compositor import ChopsUpdate, CompositorUpdate, LayoutUpdate
from textual.filter import LineFilter
from textual.strip import Strip

from tuner_tui.core.text import drop_control
from tuner_tui.view.cells import is_narrow

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from textual.color import Color

UNKNOWN = "\0"
MIN_ERASED = 8
"""From so many spaces on, erasing takes fewer bytes."""
MAX_GAP = 4
"""Up to this many unchanged cells between two changed ones are written again: moving the cursor takes as many bytes."""


class TerminalCells:
    """The cells the terminal is known to show: for each row a string of characters and a string of style codes.

    A style code is one character that stands for a colour sequence, so rows are compared as strings. Cells of
    characters that are not one cell wide stay unknown: they are written whenever Textual repaints them.

    `erases`: the terminal erases cells in the current background colour.
    """

    def __init__(self, erases: bool = False) -> None:
        self._erases = erases
        self._rows: dict[int, tuple[str, str]] = {}
        self._codes: dict[Style | None, str | None] = {}
        self._looks: list[_Look] = []

    def wrap(self, update: RenderableType | None) -> RenderableType | None:
        """Return `update` as one that writes only the difference when it is rendered."""
        if not isinstance(update, ChopsUpdate | LayoutUpdate):
            return update
        return cast("RenderableType", _DiffUpdate(self, update))

    def set_layout(self, update: LayoutUpdate, colours: ColorSystem) -> None:
        """Record a full repaint, which is written as it is."""
        # A full repaint is written by Textual, so the terminal shows what it contains, whatever was there before.
        self._rows.clear()
        for y, strips in enumerate(update.strips, update.region.y):
            x = update.region.x
            for strip in strips:
                self._put(y, x, *self._encode(strip, colours))
                x += strip.cell_length

    def diff(self, update: ChopsUpdate, console: Console, colours: ColorSystem) -> str:
        """Return what to write so that the terminal shows `update`, and record it."""
        output: list[str] = []
        runs_by_code: dict[str, list[_Run]] = {}
        for y, x, strip in _changed_strips(update):
            text, codes = self._encode(strip, colours)
            if UNKNOWN in codes:
                output.append(_move_cursor(x, y) + strip.render(console))
            for start, stop in self._changed_runs(y, x, text, codes):
                runs_by_code.setdefault(codes[start], []).append(_Run(y, x + start, text[start:stop]))
            self._put(y, x, text, codes)
        return "".join(output) + self._write_runs(runs_by_code)

    def _write_runs(self, runs_by_code: dict[str, list[_Run]]) -> str:
        """Return what writes the runs, those of one style together."""
        if not runs_by_code:
            return ""
        output: list[str] = []
        shown: _Look | None = None
        y, x = -1, 0
        # Sorted by style, not by position: a colour sequence takes 10 to 40 bytes, moving the cursor 4 to 8. Within a
        # style the rows are in order, so the cursor often only moves to the right.
        for look, runs in sorted((self._looks[ord(code) - 1], runs) for code, runs in runs_by_code.items()):
            output.append(_change_look(shown, look))
            shown = look
            for run in runs:
                # Within a row it takes three bytes less to go on to the right.
                output.append(f"\x1b[{run.x - x}C" if run.y == y and run.x > x else _move_cursor(run.x, run.y))
                text, blanks = self._split_blanks(run.text, look)
                output.append(text + (f"\x1b[{blanks}X" if blanks else ""))
                y, x = run.y, run.x + len(text)
        return "".join(output) + "\x1b[m"

    def _split_blanks(self, text: str, look: _Look) -> tuple[str, int]:
        """Return the text without the spaces at its end that are better erased, and their number."""
        shown = text.rstrip(" ")
        blanks = len(text) - len(shown)
        return (shown, blanks) if self._erases and blanks >= MIN_ERASED and not look.attributes else (text, 0)

    def _encode(self, strip: Strip, colours: ColorSystem) -> tuple[str, str]:
        """Return the characters of `strip` and their style codes."""
        codes = [self._code(style, colours) for _, style, _ in strip]
        if None in codes or not is_narrow(strip.text):
            return UNKNOWN * strip.cell_length, UNKNOWN * strip.cell_length
        return strip.text, "".join(code * len(text) for code, (text, _, _) in zip(codes, strip, strict=True) if code)

    def _code(self, style: Style | None, colours: ColorSystem) -> str | None:
        """Return the code of a style; None for a link, which is more than a colour sequence."""
        if style not in self._codes:
            self._codes[style] = None if style and style.link else self._new_code(style, colours)
        return self._codes[style]

    def _new_code(self, style: Style | None, colours: ColorSystem) -> str:
        # Rich gives one sequence per style. It is taken apart into attributes, colour and background, so that a change
        # of style writes only the parts that differ. Styles that look alike get the same code.
        look = _Look()
        if style:
            parts = (style.without_color, Style(color=style.color), Style(bgcolor=style.bgcolor))
            look = _Look(*(Strip.render_ansi(part, colours) for part in parts))
        if look not in self._looks:
            self._looks.append(look)
        return chr(self._looks.index(look) + 1)

    def _changed_runs(self, y: int, x: int, text: str, codes: str) -> Iterator[tuple[int, int]]:
        """Yield spans of one style that together hold every cell of `text` that differs from row `y` at `x`."""
        old_text, old_codes = (row[x : x + len(text)].ljust(len(text), UNKNOWN) for row in self._row(y))
        if (old_text, old_codes) == (text, codes):
            return
        start = end = 0
        for at, cell in enumerate(zip(text, codes, old_text, old_codes, strict=True)):
            if cell[:2] == cell[2:] or cell[1] == UNKNOWN:
                continue
            # Extend the current span over a short gap if all cells up to here have one style.
            if start < end and at - end <= MAX_GAP and codes[start : at + 1] == cell[1] * (at + 1 - start):
                end = at + 1
                continue
            if start < end:
                yield start, end
            start, end = at, at + 1
        if start < end:
            yield start, end

    def _row(self, y: int) -> tuple[str, str]:
        return self._rows.get(y, ("", ""))

    def _put(self, y: int, x: int, text: str, codes: str) -> None:
        old_text, old_codes = self._row(y)
        # Terminals disagree about the columns after a character that is not one cell wide: forget the rest of the row.
        rest = x + len(text) if UNKNOWN not in codes else len(old_text)
        self._rows[y] = (
            old_text[:x].ljust(x, UNKNOWN) + text + old_text[rest:],
            old_codes[:x].ljust(x, UNKNOWN) + codes + old_codes[rest:],
        )


class _Look(NamedTuple):
    """A style as parameters of a colour sequence; the attributes are bold, dim and the like."""

    attributes: str = ""
    colour: str = ""
    background: str = ""


class _Run(NamedTuple):
    """Adjacent cells of one style, the first at row `y` and column `x`."""

    y: int
    x: int
    text: str


def _change_look(old: _Look | None, new: _Look) -> str:
    """Return the sequence for what differs. What `new` lacks is removed by a reset, as is a look that is not known."""
    if (
        old is None
        or old.attributes not in ("", new.attributes)
        or any(before and not after for before, after in zip(old, new, strict=True))
    ):
        return f"\x1b[{';'.join(['0', *filter(None, new)])}m"
    return f"\x1b[{';'.join(after for before, after in zip(old, new, strict=True) if before != after)}m"


class _DiffUpdate(CompositorUpdate):
    """Computes the difference when it is rendered: Textual drops some updates without writing them."""

    def __init__(self, cells: TerminalCells, update: ChopsUpdate | LayoutUpdate) -> None:
        self._cells = cells
        self._update = update

    def render_segments(self, console: Console) -> str:
        colours = console._color_system or ColorSystem.TRUECOLOR
        if isinstance(self._update, ChopsUpdate):
            return self._cells.diff(self._update, console, colours)
        self._cells.set_layout(self._update, colours)
        return self._update.render_segments(console)


# A `ChopsUpdate` has, for each row, the pieces of widgets that cover it (`chops`, by first column; `chop_ends`, their
# last columns), and the spans of columns that changed. Pieces outside a span were not rendered and are None.
def _changed_strips(update: ChopsUpdate) -> Iterator[tuple[int, int, Strip]]:
    """Yield row, first column and strip of each piece of the changed spans."""
    for y, start, end in update.spans:
        for piece_end, (x, strip) in zip(update.chop_ends[y], update.chops[y].items(), strict=False):
            if strip is not None and x < end and piece_end > start:
                yield y, x, strip.crop(0, min(piece_end, end) - x)


def _move_cursor(x: int, y: int) -> str:
    return f"\x1b[{y + 1};{x + 1}H"


_SAME = {
    "-": "─╌┄╴╶═⎯–—‐‑−",
    "|": "│┃▏▎▍▕║┆",
    "+": "✓✔┌┐└┘├┤┬┴┼╭╮╰╯╔╗╚╝╠╣╦╩╬╋┏┓┗┛┣┫┳┻┠┨┯┷",
    "#": "█▉▊▋▌▇▆▐▓■◼",
    "=": "▅▄▒━╸╺",
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
    "~": "≈∼…⋯±╍",
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
