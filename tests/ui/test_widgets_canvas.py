"""The canvas: which cells are repainted for a change, and what the terminal then shows."""

from __future__ import annotations

from collections.abc import Sequence

from textual.app import App, ComposeResult
from textual.geometry import Region
from textual.reactive import reactive

from tuner_tui.ui.drawing.cells import Row, Run, line
from tuner_tui.ui.theme import DARK, LIGHT, Ascii
from tuner_tui.ui.widgets.canvas import Canvas, Slice, merge_slices


class Board(Canvas, can_focus=True):
    """Shows whatever rows it is given."""

    shown: reactive[tuple[Row, ...]] = reactive((), repaint=False)

    def watch_shown(self) -> None:
        self.redraw()

    def rows(self, width: int, height: int) -> Sequence[Row]:
        return self.shown


class BoardApp(App[None]):
    CSS = "Board { width: 100%; height: 100%; }"

    def __init__(self, *rows: Row, ascii_only: bool = False) -> None:
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
        return [strip.text.rstrip() for strip in self.screen._compositor.render_strips()]


def rows(figure: str, tail: str = "rest") -> tuple[Row, ...]:
    return (Row(line("label ", figure, "  ", tail), slices=((6, 11),)), Row(line("still")))


async def repainted(before: tuple[Row, ...], after: tuple[Row, ...]) -> list[tuple[str, Region]]:
    """Which widget repaints which cells when the rows change."""
    app = BoardApp(*before)
    async with app.run_test(size=(30, 4)) as pilot:
        await pilot.pause()
        painted: list[tuple[str, Region]] = []
        for widget in (app.board, *app.query(Slice)):
            taken = widget._exchange_repaint_regions
            name = type(widget).__name__

            def exchange(taken=taken, name=name):
                regions = taken()
                painted.extend((name, region) for region in regions)
                return regions

            widget._exchange_repaint_regions = exchange
        app.board.shown = after
        await pilot.pause()
        await pilot.pause()
        assert app.text[0] == "".join(run.text for run in after[0].line).rstrip()
        return painted


async def test_a_new_figure_repaints_its_own_cells_only() -> None:
    assert await repainted(rows("12345"), rows("12395")) == [("Slice", Region(3, 0, 1, 1))]


async def test_a_change_outside_the_slices_is_the_canvas_own() -> None:
    assert await repainted(rows("12345", "rest"), rows("12345", "best")) == [("Board", Region(13, 0, 1, 1))]


async def test_the_same_picture_repaints_nothing() -> None:
    assert await repainted(rows("12345"), rows("12345")) == []


async def test_a_change_of_style_alone_is_repainted() -> None:
    plain = (Row(line("ab", "cd")),)
    marked = (Row(line("ab", Run("cd", "bad"))),)
    assert await repainted(plain, marked) == [("Board", Region(2, 0, 2, 1))]


async def test_a_row_more_is_repainted_alone() -> None:
    one, two = (Row(line("first")),), (Row(line("first")), Row(line("second")))
    assert await repainted(one, two) == [("Board", Region(0, 1, 6, 1))]
    assert await repainted(two, one) == [("Board", Region(0, 1, 6, 1))]


async def test_several_requests_are_one_drawing() -> None:
    app = BoardApp(Row(line("a")))
    drawn = 0
    async with app.run_test(size=(30, 4)) as pilot:
        await pilot.pause()
        inner = app.board.rows

        def counting(width: int, height: int) -> Sequence[Row]:
            nonlocal drawn
            drawn += 1
            return inner(width, height)

        app.board.rows = counting  # type: ignore[method-assign]
        for _ in range(5):
            app.board.redraw()
        await pilot.pause()
    assert drawn == 1


async def test_another_shape_moves_the_slices() -> None:
    app = BoardApp(*rows("12345"))
    async with app.run_test(size=(30, 4)) as pilot:
        await pilot.pause()
        app.board.shown = (Row(line("a")), *rows("54321"), Row(line("c")))
        await pilot.pause()
        await pilot.pause()
        assert [piece.place for piece in app.query(Slice)] == [Region(6, 1, 5, 1)]
        assert app.text[:4] == ["a", "label 54321  rest", "still", "c"]


async def test_slices_go_when_they_are_not_wanted() -> None:
    app = BoardApp(*rows("12345"))
    async with app.run_test(size=(30, 4)) as pilot:
        await pilot.pause()
        app.board.shown = (Row(line("plain")), Row(line("text")))
        await pilot.pause()
        await pilot.pause()
        assert not app.query(Slice)
        assert app.text[:2] == ["plain", "text"]


async def test_rows_that_do_not_fit_leave_a_sign_and_can_be_scrolled_to() -> None:
    app = BoardApp(*(Row(line(f"row {number}")) for number in range(9)))
    async with app.run_test(size=(30, 4)) as pilot:
        await pilot.pause()
        assert app.text == ["row 0", "row 1", "row 2", "… 6 more lines"]
        await pilot.press("end")
        await pilot.pause()
        assert app.text == ["… 6 more lines", "row 6", "row 7", "row 8"]
        await pilot.press("home", "down")
        await pilot.pause()
        assert app.text[1] == "row 2"


async def test_ascii_reaches_slices_too() -> None:
    app = BoardApp(Row(line("━━ ", "█▁"), slices=((3, 5),)), ascii_only=True)
    async with app.run_test(size=(30, 4)) as pilot:
        await pilot.pause()
        await pilot.pause()
        assert app.text[0].isascii()


async def test_another_theme_recolours_everything() -> None:
    app = BoardApp(Row(line("a ", Run("bad", "bad")), slices=((2, 5),)))
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


def test_equal_spans_of_neighbours_are_one_slice() -> None:
    table = [Row((), slices=((4, 9), (12, 20)))] * 3 + [Row((), slices=((4, 9),))]
    assert merge_slices(table, 18) == [Region(4, 0, 5, 4), Region(12, 0, 6, 3)]
