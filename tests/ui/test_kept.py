"""What a widget painted is handed out again until something of it is painted anew."""

from __future__ import annotations

from typing import ClassVar

from textual.app import App, ComposeResult
from textual.geometry import Region
from textual.strip import Strip
from textual.widget import Widget

from tuner_tui.ui.theme import DARK, LIGHT
from tuner_tui.ui.widgets.kept import Kept


class Counting(Widget):
    painted = 0

    def render_lines(self, crop: Region) -> list[Strip]:
        self.painted += 1
        return super().render_lines(crop)


class Panel(Kept, Counting):
    DEFAULT_CSS = "Panel { height: 1fr; } Panel.-loud { text-style: bold; }"

    said: ClassVar[str] = "before"

    def render(self) -> str:
        return self.said


class PanelsApp(App[None]):
    def compose(self) -> ComposeResult:
        yield Panel()
        yield Panel()
        yield Panel()

    def on_mount(self) -> None:
        for theme in (DARK, LIGHT):
            self.register_theme(theme)
        self.theme = DARK.name

    def get_theme_variable_defaults(self) -> dict[str, str]:
        return DARK.variables


async def test_a_panel_between_two_that_change_is_not_painted_again() -> None:
    app = PanelsApp()
    async with app.run_test(size=(20, 9)) as pilot:
        await pilot.pause()
        first, still, last = app.query(Panel)
        before = still.painted
        for panel in (first, last):
            panel.said = "after"  # type: ignore[misc]
            panel.refresh()
        await pilot.pause()
        await pilot.pause()
        assert still.painted == before
        shown = [strip.text.rstrip() for strip in app.screen._compositor.render_strips()]
        assert [line for line in shown if line] == ["after", "before", "after"]


async def test_another_theme_and_another_class_paint_it_again() -> None:
    app = PanelsApp()
    async with app.run_test(size=(20, 9)) as pilot:
        await pilot.pause()
        panel = app.query(Panel).first()
        for change in (lambda: setattr(app, "theme", LIGHT.name), lambda: panel.add_class("-loud")):
            before = panel.painted
            change()
            await pilot.pause()
            await pilot.pause()
            assert panel.painted > before
