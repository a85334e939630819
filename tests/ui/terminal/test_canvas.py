"""The canvas: what is written for a change, and what the terminal then shows."""

from __future__ import annotations

import re
from collections.abc import Sequence

import pytest
from textual.app import ComposeResult
from textual.geometry import Region, Size
from textual.reactive import reactive
from textual.strip import Strip

from tests.fakes.terminal import TerminalApp
from tuner_tui.ui.terminal.base_widgets import Canvas, LeavableScreen
from tuner_tui.ui.terminal.cell_writer import Ascii
from tuner_tui.ui.theme import DARK, LIGHT
from tuner_tui.view.cells import Line, TextSpan, line

_COLOURS = re.compile(r"\x1b\[[\d;]*m")


class Board(Canvas, can_focus=True):
    """Shows whatever rows it is given."""

    shown: reactive[tuple[Line, ...]] = reactive((), repaint=False)

    def watch_shown(self) -> None:
        self.redraw()

    def rows(self, width: int, height: int) -> Sequence[Line]:
        return self.shown


class BoardApp(TerminalApp):
    CSS = "Board { width: 100%; height: 100%; }"

    def __init__(self, *rows: Line, ascii_only: bool = False) -> None:
        super().__init__()
        self.board = Board()
        self.board.shown = rows
        self.filters = [Ascii()] if ascii_only else []
        for theme in (DARK, LIGHT):
            self.register_theme(theme)
        self.theme = DARK.name

    def get_theme_variable_defaults(self) -> dict[str, str]:
        return DARK.variables

    def get_line_filters(self) -> Sequence[object]:  # type: ignore[override]
        return [*super().get_line_filters(), *self.filters]

    def compose(self) -> ComposeResult:
        yield self.board

    @property
    def text(self) -> list[str]:
        """What the terminal shows."""
        return [self.terminal.text(y, self.size.width).rstrip() for y in range(self.size.height)]


def rows(figure: str, tail: str = "rest") -> tuple[Line, ...]:
    return (line("label ", figure, "  ", tail), line("still"))


async def written(before: tuple[Line, ...], after: tuple[Line, ...]) -> str:
    """What is written when the rows change; the terminal shows them then."""
    app = BoardApp(*before)
    async with app.run_test(size=(30, 4)) as pilot:
        await pilot.pause()
        app.written = ""
        app.board.shown = after
        await pilot.pause()
        await pilot.pause()
        for y, row in enumerate(after):
            assert app.text[y] == "".join(run.text for run in row).rstrip()
        return _COLOURS.sub("", app.written)


@pytest.mark.parametrize("columns", [40, 25])
async def test_a_frame_before_a_change_of_width_is_handled_has_every_cell(columns: int) -> None:
    app = BoardApp(*rows("12345"))
    async with app.run_test(size=(30, 4)) as pilot:
        await pilot.pause()
        app.terminal.cells.clear()
        app._shown.forget()
        app.screen._refresh_layout(Size(columns, 4))  # draws at once; the board's own event waits in its queue
        assert app.board.size.width == columns
        assert len(app.terminal.cells) == columns * 4


async def test_a_new_figure_is_written_alone() -> None:
    assert await written(rows("12345"), rows("12395")) == "\x1b[1;10H9"


async def test_figures_far_apart_are_written_apart() -> None:
    assert await written(rows("12345", "rest"), rows("92345", "best")) == "\x1b[1;7H9\x1b[6Cb"


async def test_a_row_more_is_written_alone() -> None:
    single, two = (line("first"),), (line("first"), line("second"))
    assert await written(single, two) == "\x1b[2;1Hsecond"
    assert await written(two, single) == "\x1b[2;1H      "


async def test_rows_that_do_not_fit_leave_a_sign_and_can_be_scrolled_to() -> None:
    app = BoardApp(*(line(f"row {number}") for number in range(9)))
    async with app.run_test(size=(30, 4)) as pilot:
        await pilot.pause()
        assert app.text == ["row 0", "row 1", "row 2", "↓ 6 more lines"]
        await pilot.press("end")
        await pilot.pause()
        assert app.text == ["↑ 6 more lines", "row 6", "row 7", "row 8"]
        await pilot.press("home", "down")
        await pilot.pause()
        assert app.text[1] == "row 2"


async def test_ascii_is_what_the_terminal_gets() -> None:
    app = BoardApp(line("━━ ", "█▁"), ascii_only=True)
    async with app.run_test(size=(30, 4)) as pilot:
        await pilot.pause()
        await pilot.pause()
        assert app.text[0].isascii()


async def test_another_theme_recolours_everything() -> None:
    app = BoardApp(line("a ", TextSpan("bad", "bad")))
    async with app.run_test(size=(30, 4)) as pilot:
        await pilot.pause()
        await pilot.pause()
        before = list(app.screen._compositor.render_strips()[0])
        app.theme = LIGHT.name
        await pilot.pause()
        await pilot.pause()
        after = list(app.screen._compositor.render_strips()[0])
    assert [segment.text for segment in before] == [segment.text for segment in after]
    assert all(a.style != b.style for a, b in zip(before, after, strict=True))


class RenderedBoard(Board):
    """Records which of its rows are rendered."""

    def __init__(self, *rows: Line, id: str) -> None:
        super().__init__(id=id)
        self.shown = rows
        self.rendered: list[range] = []

    def render_lines(self, crop: Region) -> list[Strip]:
        self.rendered.append(crop.line_range)
        return super().render_lines(crop)


class LayeredScreen(LeavableScreen[None]):
    def compose(self) -> ComposeResult:
        for name in ("left", "right", "above"):
            yield RenderedBoard(*(line(f"{name} {y}") for y in range(6)), id=name)


class LayeredApp(BoardApp):
    CSS = """
    LayeredScreen { layout: horizontal; layers: below above; }
    RenderedBoard { width: 10; height: 6; layer: below; }
    #above { layer: above; width: 6; height: 2; offset: 7 2; }
    """

    def get_default_screen(self) -> LayeredScreen:
        return LayeredScreen()

    def compose(self) -> ComposeResult:
        yield from ()


async def test_only_what_is_around_a_change_is_rendered_and_what_is_above_it_stays() -> None:
    app = LayeredApp()
    async with app.run_test(size=(24, 6)) as pilot:
        await pilot.pause()
        await pilot.pause()
        boards = {name: app.screen.query_one(f"#{name}", RenderedBoard) for name in ("left", "right", "above")}
        before = app.text
        assert before[1:4] == ["left 1    right 1", "left 2 above…ht 2", "left 3 ↓ 5 m…ht 3"]
        for row, rendered in ((0, {"right": [range(1)]}), (2, {"right": [range(2, 3)], "above": [range(1)]})):
            for board in boards.values():
                board.rendered.clear()
            shown = list(boards["right"].shown)
            shown[row] = line("RIGHT", str(row))
            boards["right"].shown = tuple(shown)
            await pilot.pause()
            await pilot.pause()
            assert {name: board.rendered for name, board in boards.items() if board.rendered} == rendered
        assert app.text == ["left 0    RIGHT0", before[1], "left 2 above…HT2", *before[3:]]


async def test_nothing_is_rendered_of_frames_that_are_not_written() -> None:
    app = LayeredApp()
    app.is_settling = True
    async with app.run_test(size=(24, 6)) as pilot:
        await pilot.pause()
        board = app.screen.query_one("#right", RenderedBoard)
        board.shown = (line("RIGHT"),)
        await pilot.pause()
        assert board.rendered == []
        assert app.written == ""
        app.is_settling, app.is_blank = False, True
        board.refresh(Region(0, 0, 1, 1))
        await pilot.pause()
        assert board.rendered == [range(6)]
        assert app.text[0] == "left 0    RIGHT"


@pytest.mark.parametrize("frame", ["padding: 1 2; border: round red;", "border-left: thick blue;", ""])
async def test_a_changed_row_stands_between_the_edges_that_textual_draws(frame: str) -> None:
    app = BoardApp(*rows("1"))
    app.CSS = f"Board {{ width: 100%; height: 100%; {frame} }}"  # type: ignore[misc]
    async with app.run_test(size=(30, 9)) as pilot:
        await pilot.pause()
        app.board.shown = rows("2", "more")
        app.board._draw()
        changed = Region(0, app.board.styles.gutter.top, 30, 1)
        drawn, again = app.board.render_lines(changed), app.board.render_lines(changed)
        app.board._styles_cache.clear()
        by_textual = app.board.render_lines(changed)
        assert list(drawn[0]) == list(again[0]) == list(by_textual[0])
        assert "label 2  more" in drawn[0].text
