"""Writes to the terminal only the cells that differ from what it shows, grouped by style.

Textual repaints a changed span from the left edge of its widget, with a colour sequence before every piece: over SSH
three times the bytes. Full repaints are written in full, so that whatever else was on the terminal is overwritten."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, cast

from rich.color import ColorSystem
from textual._compositor import ChopsUpdate, CompositorUpdate, LayoutUpdate
from textual.strip import Strip

from tuner_tui.ui.drawing.cells import is_narrow

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.style import Style

UNKNOWN = "\0"
MAX_GAP = 4
"""So many unchanged cells between two changed ones are written again: moving over them takes as many bytes."""


class TerminalCells:
    """What the terminal shows, as far as it is known: a string of characters and one of looks for every row.

    A look is one character too, and stands for a colour sequence. Cells of characters that are not one cell wide are
    never known: what lies there is written whenever Textual asks for it.
    """

    def __init__(self) -> None:
        self._rows: dict[int, tuple[str, str]] = {}
        self._look_of: dict[Style | None, str | None] = {}
        self._sequences: list[str] = []

    def update(self, painted: RenderableType | None) -> RenderableType | None:
        """`painted`, made to write what differs when it is written."""
        if not isinstance(painted, ChopsUpdate | LayoutUpdate):
            return painted
        return cast("RenderableType", _DiffUpdate(self, painted))

    def repainted(self, painted: LayoutUpdate, colours: ColorSystem) -> None:
        """All of it was written."""
        self._rows.clear()
        for y, strips in enumerate(painted.strips, painted.region.y):
            x = painted.region.x
            for strip in strips:
                self._put(y, x, *self._cells(strip, colours))
                x += strip.cell_length

    def changes(self, painted: ChopsUpdate, console: Console, colours: ColorSystem) -> str:
        """What to write so that the terminal shows what was painted."""
        whole: list[str] = []
        by_look: dict[str, list[str]] = {}
        for y, x, strip in _pieces(painted):
            text, looks = self._cells(strip, colours)
            if UNKNOWN in looks:
                whole.append(_move(x, y) + strip.render(console))
            for start, stop in self._differing(y, x, text, looks):
                by_look.setdefault(looks[start], []).append(_move(x + start, y) + text[start:stop])
            self._put(y, x, text, looks)
        for look, runs in by_look.items():
            whole += (self._sequences[ord(look) - 1], *runs)
        return "".join(whole) + "\x1b[m" * bool(by_look)

    def _cells(self, strip: Strip, colours: ColorSystem) -> tuple[str, str]:
        looks = [self._look(style, colours) for _, style, _ in strip]
        if None in looks or not is_narrow(strip.text):
            return UNKNOWN * strip.cell_length, UNKNOWN * strip.cell_length
        return strip.text, "".join(look * len(text) for look, (text, _, _) in zip(looks, strip, strict=True) if look)

    def _look(self, style: Style | None, colours: ColorSystem) -> str | None:
        """The look of a style; None for a link, which is more than a colour."""
        if style not in self._look_of:
            self._look_of[style] = None if style and style.link else self._numbered(style, colours)
        return self._look_of[style]

    def _numbered(self, style: Style | None, colours: ColorSystem) -> str:
        codes = Strip.render_ansi(style, colours) if style else ""
        sequence = f"\x1b[0;{codes}m" if codes else "\x1b[0m"
        if sequence not in self._sequences:
            self._sequences.append(sequence)
        return chr(self._sequences.index(sequence) + 1)

    def _differing(self, y: int, x: int, text: str, looks: str) -> Iterator[tuple[int, int]]:
        """Runs of one look that hold every cell of `text` that differs from what row `y` shows from `x` on."""
        old_text, old_looks = (row[x : x + len(text)].ljust(len(text), UNKNOWN) for row in self._row(y))
        if (old_text, old_looks) == (text, looks):
            return
        start = end = 0
        for at, cell in enumerate(zip(text, looks, old_text, old_looks, strict=True)):
            if cell[:2] == cell[2:] or cell[1] == UNKNOWN:
                continue
            if start < end and at - end <= MAX_GAP and looks[start : at + 1] == cell[1] * (at + 1 - start):
                end = at + 1
                continue
            if start < end:
                yield start, end
            start, end = at, at + 1
        if start < end:
            yield start, end

    def _row(self, y: int) -> tuple[str, str]:
        return self._rows.get(y, ("", ""))

    def _put(self, y: int, x: int, text: str, looks: str) -> None:
        old_text, old_looks = self._row(y)
        # Where a character is not one cell wide, terminals differ in where those behind it come to lie.
        behind = x + len(text) if UNKNOWN not in looks else len(old_text)
        self._rows[y] = (
            old_text[:x].ljust(x, UNKNOWN) + text + old_text[behind:],
            old_looks[:x].ljust(x, UNKNOWN) + looks + old_looks[behind:],
        )


class _DiffUpdate(CompositorUpdate):
    """An update of Textual's that says what to write only when it is written: some never are."""

    def __init__(self, shown: TerminalCells, painted: ChopsUpdate | LayoutUpdate) -> None:
        self._shown = shown
        self._painted = painted

    def render_segments(self, console: Console) -> str:
        colours = console._color_system or ColorSystem.TRUECOLOR
        if isinstance(self._painted, ChopsUpdate):
            return self._shown.changes(self._painted, console, colours)
        self._shown.repainted(self._painted, colours)
        return self._painted.render_segments(console)


def _pieces(painted: ChopsUpdate) -> Iterator[tuple[int, int, Strip]]:
    """Each piece of the changed spans: its row, its first cell, and what it shows."""
    for y, start, end in painted.spans:
        for piece_end, (x, strip) in zip(painted.chop_ends[y], painted.chops[y].items(), strict=False):
            if strip is not None and x < end and piece_end > start:
                yield y, x, strip.crop(0, min(piece_end, end) - x)


def _move(x: int, y: int) -> str:
    return f"\x1b[{y + 1};{x + 1}H"
