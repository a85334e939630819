"""What is written to the terminal: safe characters, ASCII where asked for, and only the cells that changed.

Textual repaints whole spans of a widget, with a colour sequence before every piece: over SSH many times the bytes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import cache
from itertools import pairwise, zip_longest
from pathlib import Path
from typing import Any, Protocol, cast

from rich.cells import cell_len, get_character_cell_size
from rich.color import ColorSystem
from rich.console import Console, RenderableType
from rich.segment import Segment
from rich.style import Style
from textual._compositor import ChopsUpdate, Compositor, CompositorUpdate, LayoutUpdate
from textual.color import Color
from textual.filter import LineFilter
from textual.geometry import Region
from textual.strip import Strip

from tuner_tui.core.files import read_data_file
from tuner_tui.core.text import drop_control
from tuner_tui.view.cells import is_narrow

MAX_GAP = 4
"""Up to this many unchanged cells between two changed ones are written again: moving the cursor takes as many bytes."""


class Frames(Protocol):
    """What an app writes of the frames of its screens: `is_settling`: nothing now; `is_blank`: only a whole one."""

    @property
    def is_settling(self) -> bool: ...

    @property
    def is_blank(self) -> bool: ...


class PartialCompositor(Compositor):
    """Renders of each widget only the rows around what changed; Textual renders all widgets between all changes.

    It renders nothing that `frames` would not write: at a start Textual draws ten frames until all have their place.
    """

    _changed: tuple[Region, ...] = ()

    def __init__(self, frames: Callable[[], Frames]) -> None:
        super().__init__()
        self._frames = frames

    def render_update(self, full: bool = False, *args: Any, **options: Any) -> RenderableType | None:
        frames = self._frames()
        if frames.is_settling and not full:
            self._dirty_regions.clear()
            return None
        return super().render_update(full or frames.is_blank, *args, **options)

    def render_partial_update(self) -> ChopsUpdate | None:
        self._changed = tuple(self._dirty_regions)
        return super().render_partial_update()

    def _get_renders(self, crop: Region | None = None) -> Iterator[tuple[Region, Region, list[Strip]]]:
        changed, self._changed = self._changed or (crop or self.size.region,), ()
        for widget, (region, clip) in self.visible_widgets.items():  # from the front to the back
            shown = region.intersection(clip)
            if touched := [each for each in changed if shown.overlaps(each)]:
                top, bottom = min(each.y for each in touched), max(each.bottom for each in touched)
                part = shown.intersection(Region(shown.x, top, shown.width, bottom - top))
                yield part, part, widget.render_lines(part.translate(-region.offset))
                changed = tuple(each for each in changed if not shown.contains_region(each))


class TerminalCells:
    """The cells that the terminal is known to show: of each row its text, and a code for the look of each character."""

    # Strings, because most of them are equal to what is shown, which is then found without looking at each cell.

    def __init__(self) -> None:
        self._rows: dict[int, tuple[str, str]] = {}
        self._codes: dict[str, str] = {}  # by the parameters of a colour sequence; a character each
        self._looks: dict[Style | None, tuple[str, str]] = {}  # of each style these parameters and their code

    def forget(self) -> None:
        self._rows.clear()

    @property
    def are_forgotten(self) -> bool:
        return not self._rows

    def wrap(self, update: RenderableType | None) -> RenderableType | None:
        """Return `update` as one that writes only the difference when it is rendered."""
        if not isinstance(update, ChopsUpdate | LayoutUpdate):
            return update
        return cast("RenderableType", _DiffUpdate(self, update))

    def diff(self, update: ChopsUpdate | LayoutUpdate, console: Console) -> str:
        """Return what to write so that the terminal shows `update`, and record it."""
        colours = console._color_system or ColorSystem.TRUECOLOR
        output: list[str] = []
        # Written by look, not by position: a colour sequence takes 10 to 40 bytes, moving the cursor 4 to 8.
        texts_by_look: dict[str, list[tuple[int, int, str]]] = {}
        for y, x, strip in _strips(update):
            shown, codes = (part.ljust(x, UNWRITTEN) for part in self._rows.get(y, ("", "")))
            pieces = [(text, *(self._looks.get(style) or self._look(style, colours))) for text, style, _ in strip]
            if not is_narrow(strip.text) or not all(code for _, _, code in pieces):
                # Terminals disagree about the columns after a character that is not one cell wide.
                output.append(_move_cursor(x, y) + strip.render(console))
                self._rows[y] = shown[:x], codes[:x]
                continue
            looks = ""
            for text, look, code in pieces:
                start = x + len(looks)
                looks += code * len(text)
                end = x + len(looks)
                if text != shown[start:end] or codes[start:end] != code * len(text):
                    texts_by_look.setdefault(look, []).extend(
                        (y, start + first, text[first:last])
                        for first, last in _changed_spans(text, code, shown[start:end], codes[start:end])
                    )
            end = x + len(looks)
            self._rows[y] = shown[:x] + strip.text + shown[end:], codes[:x] + looks + codes[end:]
        output += (f"\x1b[0;{look}m" + _write_texts(texts) for look, texts in texts_by_look.items())
        return "".join(output) + "\x1b[m" * bool(output)

    def _look(self, style: Style | None, colours: ColorSystem) -> tuple[str, str]:
        """Return the colour sequence of a style and its code; no code for a link, which is written as a whole."""
        look = Strip.render_ansi(style, colours) if style else ""
        code = "" if style and style.link else self._codes.setdefault(look, chr(len(self._codes) + 1))
        return self._looks.setdefault(style, (look, code))


UNWRITTEN = "\0"
"""A cell of which is not known what the terminal shows."""


def _changed_spans(text: str, code: str, shown: str, codes: str) -> Iterator[tuple[int, int]]:
    """Yield start and end of the spans that hold every changed cell."""
    cells = zip_longest(text, shown, codes, fillvalue=UNWRITTEN)
    changed = [at for at, (new, old, look) in enumerate(cells) if new != old or look != code]
    start = changed[0]
    for at, following in pairwise([*changed, len(text) + MAX_GAP + 1]):
        if following - at > MAX_GAP:
            yield start, at + 1
            start = following


def _write_texts(texts: list[tuple[int, int, str]]) -> str:
    """Return what writes each text at its row and column."""
    output, row, column = "", -1, 0
    for y, x, text in texts:
        # Within a row it takes three bytes less to go on to the right.
        output += (f"\x1b[{x - column}C" if y == row and x > column else _move_cursor(x, y)) + text
        row, column = y, x + len(text)
    return output


class _DiffUpdate(CompositorUpdate):
    """Computes the difference when it is rendered: Textual drops some updates without writing them."""

    def __init__(self, cells: TerminalCells, update: ChopsUpdate | LayoutUpdate) -> None:
        self._cells = cells
        self._update = update

    def render_segments(self, console: Console) -> str:
        return self._cells.diff(self._update, console)


def _strips(update: ChopsUpdate | LayoutUpdate) -> Iterator[tuple[int, int, Strip]]:
    """Yield row, first column and strip of each piece."""
    if isinstance(update, LayoutUpdate):
        for y, strips in enumerate(update.strips, update.region.y):
            x = update.region.x
            for piece in strips:
                yield y, x, piece
                x += piece.cell_length
        return
    # For each row the pieces of widgets that cover it (`chops`, by first column; `chop_ends`, their last columns), and
    # the spans of columns that changed. Pieces outside a span were not rendered and are None.
    for y, start, end in update.spans:
        for piece_end, (x, strip) in zip(update.chop_ends[y], update.chops[y].items(), strict=False):
            if strip is not None and x < end and piece_end > start:
                yield y, x, strip.crop(0, min(piece_end, end) - x)


def _move_cursor(x: int, y: int) -> str:
    return f"\x1b[{y + 1};{x + 1}H"


_ELLIPSIS = re.compile("(?: |[!-~]{2})…")
"""With the cells before it that its dots need, unless a wide character could be among them."""
_WORDS = {"✓": "ok", " →": " ->"}
_LONGER = re.compile(r"(✓| →) ((?:\S| (?! ))*)  ")
"""Signs whose words take a cell more, up to the next blanks that are two."""
RIGHT_DOTS = 0xB8
"""The right column of dots of a braille character; a dotted curve uses none of them."""


@cache
def _ascii() -> dict[int, str]:
    """ASCII characters by the code of the sign that each replaces."""
    table = read_data_file(Path(__file__).with_name("ascii.yaml"))
    return {ord(sign): plain for plain, signs in table.items() for sign in signs}


def to_ascii(text: str) -> str:
    """Return `text` in ASCII, cell by cell: frames, bars and marks are replaced, anything else becomes `?`."""
    if text.isascii():
        return text
    while (longer := _LONGER.sub(lambda match: f"{_WORDS[match[1]]} {match[2]} ", text)) != text:
        text = longer
    text = text.replace(" → ", "-> ").replace(" ± ", " +-").replace(" … ", "...").replace(" °C", " C ")
    text = _ELLIPSIS.sub(lambda match: "." * len(match[0]), text).translate(_ascii())
    return "".join(map(_likeness, text))


def _likeness(character: str) -> str:
    if character.isascii():
        return character
    if "\u2801" <= character <= "\u28ff":
        return "*" if ord(character) & RIGHT_DOTS else "."
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
        text, shown = to_ascii("".join(text for text, _, _ in segments)), []
        for part, style, control in segments:
            shown.append(Segment(text[: cell_len(part)], style, control))
            text = text[cell_len(part) :]
        return shown
