"""The panels in an app: state in, text out, and only changes repainted."""

from __future__ import annotations

from typing import cast

from msgspec.structs import replace
from textual.app import ComposeResult
from textual.color import Color
from textual.filter import NoColor
from textual.geometry import Region
from textual.widget import Widget

from tests.fakes.live_run import START_S, FakeView, history, inventory, running, sample, samples
from tests.fakes.terminal import TerminalApp
from tests.fakes.ui_backend import INTERPRETER
from tests.ui.pilots import until
from tuner_tui.runs.read.reader import RunView
from tuner_tui.ui.panels.layout import PanelGrid
from tuner_tui.ui.panels.live import LivePanel, PlotsPanel
from tuner_tui.ui.terminal.base_widgets import RowsPanel, blank_lines
from tuner_tui.ui.theme import DARK
from tuner_tui.view.hardware_rows import hardware_rows


class PanelApp(TerminalApp):
    """Panels that fill the screen."""

    CSS = "PanelApp > Screen > * { width: 100%; height: 1fr; }"

    def __init__(self, *panels: Widget) -> None:
        super().__init__()
        self.panels = panels
        self.register_theme(DARK)
        self.theme = DARK.name

    def get_theme_variable_defaults(self) -> dict[str, str]:
        return DARK.variables

    def compose(self) -> ComposeResult:
        yield from self.panels

    @property
    def text(self) -> str:
        return "\n".join(strip.text.rstrip() for strip in self.screen._compositor.render_strips())


def view(now_s: float, **changes: object) -> RunView:
    recent = samples(60, now_s)
    shown = FakeView(running(now_s), history(), recent[-1], recent)
    return cast(RunView, replace(shown, **changes))


async def test_own_samples_take_over_when_those_of_the_run_have_ended() -> None:
    panel = LivePanel()
    app = PanelApp(panel)
    async with app.run_test(size=(60, 30)) as pilot:
        panel.sample, panel.now_s = sample(START_S), START_S
        await until(pilot, lambda: "busy" in app.text)
        assert "steps/s" not in app.text
        panel.view, panel.now_s = view(START_S), START_S + 60
        panel.sample = None
        await until(pilot, lambda: "sampled 1 min 00 s ago" in app.text)
        assert "steps/s" in app.text
        panel.sample = sample(START_S + 60)
        await until(pilot, lambda: "sampled" not in app.text)


async def test_a_second_writes_a_small_part_of_the_panel() -> None:
    panel = LivePanel()
    app = PanelApp(panel)
    async with app.run_test(size=(36, 20)) as pilot:
        panel.view, panel.now_s = view(START_S), START_S
        await pilot.pause()
        await pilot.pause()
        app.written = ""
        panel.view, panel.now_s = view(START_S + 1), START_S + 1
        await pilot.pause()
        await pilot.pause()
        assert 0 < len(app.written) < 450
        shown = [app.terminal.text(y, 36).rstrip() for y in range(20)]
        assert "\n".join(shown) == app.text


async def test_every_size_is_drawn_exactly_to_its_width() -> None:
    panel = LivePanel()
    app = PanelApp(panel)
    async with app.run_test(size=(36, 8)) as pilot:
        panel.view, panel.now_s = view(START_S), START_S
        for size in ((36, 8), (1, 1), (120, 40), (200, 60), (24, 5)):
            await pilot.resize_terminal(*size)
            await pilot.pause()
            strips = app.screen._compositor.render_strips()
            assert {strip.cell_length for strip in strips} == {size[0]}


async def test_the_panels_show_what_arrives() -> None:
    plots = PlotsPanel()
    hardware = RowsPanel(hardware_rows, None, None)
    app = PanelApp(plots, hardware)
    async with app.run_test(size=(100, 60)) as pilot:
        for text in ("no points yet", "Reading the hardware"):
            await until(pilot, lambda: text in app.text)  # noqa: B023
        plots.view = view(START_S)
        hardware.values = (inventory(8), INTERPRETER)
        for title in ("loss", "eval loss", "throughput, samples/s", "peak memory", "8 × NVIDIA H100", "torch 2.13.0"):
            await until(pilot, lambda: title in app.text)  # noqa: B023
        assert any("\u2801" <= character <= "\u28ff" for character in app.text)


async def test_plots_are_read_at_a_step_with_the_cursor_keys() -> None:
    plots = PlotsPanel()
    app = PanelApp(plots)
    async with app.run_test(size=(100, 20)) as pilot:
        plots.focus()
        plots.view = cast("RunView", FakeView(running(START_S), history()))
        await until(pilot, lambda: "smoothed" in app.text)
        assert "at step 1,2" not in app.text
        await pilot.press("left", "left")
        await until(pilot, lambda: app.text.count("at step 1,2") >= 4)
        await pilot.press("right", "right")
        await until(pilot, lambda: "at step 1,2" not in app.text)


async def test_what_others_cover_has_the_background_that_textual_would_draw() -> None:
    grid = PanelGrid(LivePanel(id="live"))
    app = PanelApp(grid)
    async with app.run_test(size=(40, 6)):
        grid.styles.background = Color.parse("#102030")
        for filters in ([], [NoColor()]):
            app._filters[:] = filters
            shown, drawn = (
                [[(text, style and (style.bgcolor, style.reverse)) for text, style, _ in strip] for strip in strips]
                for strips in (blank_lines(grid, Region(0, 1, 40, 2)), Widget.render_lines(grid, Region(0, 1, 40, 2)))
            )
            assert shown == drawn
