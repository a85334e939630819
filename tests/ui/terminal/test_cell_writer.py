"""What is written is what differs, and the terminal shows what was painted."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st
from rich.color import ColorSystem
from rich.console import Console
from rich.segment import Segment
from rich.style import Style
from textual._compositor import ChopsUpdate, LayoutUpdate
from textual.geometry import Region
from textual.strip import Strip

from tests.fakes.terminal import FakeTerminal
from tuner_tui.ui.terminal.cell_writer import TerminalCells

WIDTH, HEIGHT = 16, 3
STYLES = (None, Style(), Style(color="#d3d9e0", bgcolor="#0f1317"), Style(color="#ff7b72", bold=True), Style(dim=True))
CONSOLE = Console(color_system="truecolor", force_terminal=True, legacy_windows=False)

Row = tuple[tuple[str, Style | None], ...]
"""A character and its style for each cell; a wide character stands in its first cell, and "" in its second."""
Frame = tuple[Row, ...]

cells = st.tuples(st.sampled_from("ab 1─█"), st.sampled_from(STYLES))
wide = st.sampled_from(STYLES).map(lambda style: (("日", style), ("", style)))
pieces = st.lists(st.one_of(cells.map(lambda cell: (cell,)), wide), min_size=WIDTH, max_size=WIDTH)


def fitted(all_rows: Sequence[Row]) -> Row:
    row = tuple(cell for piece in all_rows for cell in piece)[:WIDTH]
    return (*row[:-1], ("x", None)) if row[-1][0] == "日" else row


frames: st.SearchStrategy[Frame] = st.lists(
    st.one_of(st.lists(cells, min_size=WIDTH, max_size=WIDTH).map(tuple), pieces.map(fitted)),
    min_size=HEIGHT,
    max_size=HEIGHT,
).map(tuple)
spans = st.lists(st.tuples(st.integers(0, HEIGHT - 1), st.integers(0, WIDTH - 1), st.integers(1, WIDTH)), min_size=1)


def strip_of(row: Row) -> Strip:
    return Strip([Segment(character, style) for character, style in row if character], len(row))


def in_full(frame: Frame) -> LayoutUpdate:
    return LayoutUpdate([[strip_of(row)] for row in frame], Region(0, 0, WIDTH, HEIGHT))


def in_part(frame: Frame, spans: Sequence[tuple[int, int, int]], cuts: Sequence[int] = (0, WIDTH)) -> ChopsUpdate:
    chops = [{start: strip_of(row[start:end]) for start, end in pairwise(cuts)} for row in frame]
    return ChopsUpdate(chops, list(spans), [list(cuts[1:])] * len(frame))


@cache
def look_of(style: Style | None) -> str:
    return Strip.render_ansi(style, ColorSystem.TRUECOLOR) if style else ""


def looks_like(frame: Frame) -> dict[tuple[int, int], tuple[str, str]]:
    return {
        (y, x): (character, look_of(style))
        for y, row in enumerate(frame)
        for x, (character, style) in enumerate(row)
    }  # fmt: skip


def writer() -> tuple[Callable[[object], str], FakeTerminal]:
    shown, terminal = TerminalCells(), FakeTerminal()

    def write(painted: object) -> str:
        written: str = shown.wrap(painted).render_segments(CONSOLE)  # type: ignore
        terminal.feed(written)
        return written

    return write, terminal


@settings(deadline=None)
@given(frames, st.lists(frames, min_size=1, max_size=4))
def test_the_terminal_shows_every_frame(first: Frame, later: list[Frame]) -> None:
    write, terminal = writer()
    write(in_full(first))
    assert terminal.cells == looks_like(first)
    for frame in later:
        write(in_part(frame, [(y, 0, WIDTH) for y in range(HEIGHT)]))
        assert terminal.cells == looks_like(frame)


@settings(deadline=None)
@given(frames, frames, spans)
def test_what_was_not_asked_for_is_not_written(before: Frame, after: Frame, spans: list[tuple[int, int, int]]) -> None:
    ordered = [(y, start, end) for y, start, end in spans if start < end]
    if not ordered or any("日" in character for row in (*before, *after) for character, _ in row):
        return
    write, terminal = writer()
    write(in_full(before))
    write(in_part(after, ordered))
    old, new = looks_like(before), looks_like(after)
    asked = {(y, x) for y, _, end in ordered for x in range(end)}
    assert terminal.cells == {at: new[at] if at in asked else old[at] for at in old}


def plain(*rows: str, style: Style | None = None) -> Frame:
    return tuple(tuple((character, style) for character in row.ljust(WIDTH)) for row in rows)


def test_the_same_again_writes_nothing() -> None:
    write, _ = writer()
    write(in_full(plain("loss 1.234", "step 7")))
    assert write(in_part(plain("loss 1.234", "step 7"), [(0, 0, WIDTH), (1, 0, WIDTH)])) == ""


def test_one_figure_is_written_and_what_stands_before_it_is_not() -> None:
    write, _ = writer()
    write(in_full(plain("loss 1.234", "step 7")))
    assert write(in_part(plain("loss 1.235", "step 8"), [(0, 0, WIDTH), (1, 0, WIDTH)])) == (
        "\x1b[0;m\x1b[1;10H5\x1b[2;6H8\x1b[m"
    )


def test_each_look_is_named_once() -> None:
    red = STYLES[3]
    write, _ = writer()
    write(in_full(plain("aaaa", "aaaa", "aaaa")))
    rows = [tuple((c, red if c == "R" else None) for c in row.ljust(WIDTH)) for row in ("R  b", "bbbR", "R  R")]
    written = write(in_part(tuple(rows), [(y, 0, WIDTH) for y in range(3)]))
    assert written.count("m") == 3


def test_what_follows_in_a_row_is_reached_by_going_right() -> None:
    write, _ = writer()
    write(in_full(plain("loss 1.234 at 7")))
    assert write(in_part(plain("boss 1.234 at 8"), [(0, 0, WIDTH)])) == "\x1b[0;m\x1b[1;1Hb\x1b[13C8\x1b[m"


def test_after_forgetting_everything_is_written_again() -> None:
    shown, terminal = TerminalCells(), FakeTerminal()
    frame = plain("loss 1.234", "step 7")
    terminal.feed(shown.wrap(in_full(frame)).render_segments(CONSOLE))  # type: ignore
    terminal.cells.clear()  # another program wrote over it
    shown.forget()
    terminal.feed(shown.wrap(in_full(frame)).render_segments(CONSOLE))  # type: ignore
    assert terminal.cells == looks_like(frame)


def test_what_lies_behind_a_wide_character_is_written_anew() -> None:
    write, terminal = writer()
    row: Row = (("日", None), ("", None), *((c, None) for c in "tail".ljust(WIDTH - 2)))
    write(in_part((row,), [(0, 0, WIDTH)], cuts=(0, 8, WIDTH)))
    assert "tail" in write(in_part((row,), [(0, 0, WIDTH)], cuts=(0, 8, WIDTH)))
    assert terminal.text(0, 6) == "日tail"


def test_a_link_is_written_as_textual_writes_it() -> None:
    shown = TerminalCells()
    strip = Strip([Segment("docs", Style(link="https://example.org")), Segment(" " * 12)], WIDTH)
    update = ChopsUpdate([{0: strip}], [(0, 0, WIDTH)], [[WIDTH]])
    for _ in range(2):
        assert "https://example.org" in shown.wrap(update).render_segments(CONSOLE)  # type: ignore
