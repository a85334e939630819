"""A panel's titles are painted without what it holds."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from textual.app import App, ComposeResult
from textual.geometry import Region
from textual.widgets import Static

from tuner_tui.ui.widgets.framed import Framed

WIDTH, HEIGHT = 30, 6


class Panel(Framed):
    DEFAULT_CSS = "Panel { border: round white; padding: 0 1; }"

    def compose(self) -> ComposeResult:
        yield Static("held")


class PanelApp(App[None]):
    def compose(self) -> ComposeResult:
        yield Panel()


@pytest.mark.parametrize(
    ("change", "row"),
    [(lambda panel: panel.entitle("above"), 0), (lambda panel: panel.say_below("below"), HEIGHT - 1)],
)
async def test_a_title_repaints_its_row(change: Callable[[Panel], None], row: int) -> None:
    app = PanelApp()
    async with app.run_test(size=(WIDTH, HEIGHT)) as pilot:
        await pilot.pause()
        panel = app.query_one(Panel)
        panel._exchange_repaint_regions()
        change(panel)
        assert panel._exchange_repaint_regions() == {Region(0, row, WIDTH, 1)}
        await pilot.pause()
        shown = [strip.text for strip in app.screen._compositor.render_strips()]
        assert ("above" if row == 0 else "below") in shown[row]
        assert "held" in shown[1]


async def test_any_other_refresh_is_of_the_whole_panel() -> None:
    app = PanelApp()
    async with app.run_test(size=(WIDTH, HEIGHT)) as pilot:
        await pilot.pause()
        panel = app.query_one(Panel)
        panel.entitle("above")
        panel._exchange_repaint_regions()
        panel.refresh()
        assert panel._exchange_repaint_regions() == {Region(0, 0, WIDTH, HEIGHT)}
