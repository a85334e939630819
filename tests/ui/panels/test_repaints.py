"""The panels in an app: state in, text out, and only changes repainted."""

from __future__ import annotations

from dataclasses import replace
from typing import cast

from textual.app import ComposeResult
from textual.widget import Widget

from tests.fakes.live_run import START_S, FakeView, history, inventory, running, sample, samples
from tests.fakes.terminal import TerminalApp
from tests.fakes.ui_backend import INTERPRETER
from tuner_tui.runs.read.reader import RunView
from tuner_tui.runs.store.record import RunRecord
from tuner_tui.settings.job import BuiltinJob
from tuner_tui.settings.model import Resolved, Settings
from tuner_tui.ui.panels.hardware import HardwarePanel
from tuner_tui.ui.panels.in_effect import InEffectPanel
from tuner_tui.ui.panels.live import LivePanel
from tuner_tui.ui.panels.plots import PlotsPanel
from tuner_tui.ui.theme import DARK


class PanelApp(TerminalApp):
    """One panel that fills the screen."""

    CSS = "PanelApp > Screen > * { width: 100%; height: 100%; }"

    def __init__(self, panel: Widget) -> None:
        super().__init__()
        self.panel = panel
        self.register_theme(DARK)
        self.theme = DARK.name

    def get_theme_variable_defaults(self) -> dict[str, str]:
        return DARK.variables

    def compose(self) -> ComposeResult:
        yield self.panel

    @property
    def text(self) -> str:
        return "\n".join(strip.text.rstrip() for strip in self.screen._compositor.render_strips())


def view(now_s: float, **changes: object) -> RunView:
    recent = samples(60, now_s)
    shown = FakeView(running(now_s), history(), recent[-1], recent)
    return cast(RunView, replace(shown, **changes))  # type: ignore[arg-type]


async def test_the_live_panel_shows_the_box_until_a_run_is_followed() -> None:
    panel = LivePanel()
    app = PanelApp(panel)
    async with app.run_test(size=(60, 30)) as pilot:
        panel.sample, panel.now_s = sample(START_S), START_S
        await pilot.pause()
        await pilot.pause()
        assert "busy" in app.text
        assert "steps/s" not in app.text
        panel.view = view(START_S)
        await pilot.pause()
        await pilot.pause()
        assert "3.12 steps/s" in app.text or "3.13 steps/s" in app.text


async def test_own_samples_take_over_when_those_of_the_run_have_ended() -> None:
    panel = LivePanel()
    app = PanelApp(panel)
    async with app.run_test(size=(60, 30)) as pilot:
        panel.view, panel.now_s = view(START_S), START_S + 60
        await pilot.pause()
        await pilot.pause()
        assert "sampled 1 min 00 s ago" in app.text
        panel.sample = sample(START_S + 60)
        await pilot.pause()
        await pilot.pause()
        assert "sampled" not in app.text


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


async def test_the_hardware_panel_says_that_it_reads_and_then_what_it_read() -> None:
    panel = HardwarePanel()
    app = PanelApp(panel)
    async with app.run_test(size=(60, 20)) as pilot:
        await pilot.pause()
        assert "Reading the hardware" in app.text
        panel.inventory = inventory(8)
        panel.interpreter = INTERPRETER
        await pilot.pause()
        await pilot.pause()
        assert "8 × NVIDIA H100 80GB HBM3" in app.text
        assert "torch 2.13.0+cu130" in app.text


async def test_a_torch_that_cannot_use_the_cards_stands_first_on_the_hardware_panel() -> None:
    panel = HardwarePanel()
    app = PanelApp(panel)
    async with app.run_test(size=(60, 8)) as pilot:
        panel.inventory = inventory(8)
        panel.interpreter = replace(INTERPRETER, packages={"torch": "2.13.0+cpu"}, torch_cuda=None)
        await pilot.pause()
        await pilot.pause()
        assert "! PyTorch here is CPU-only (2.13.0+cpu)" in app.text
        assert "more lines" in app.text


def launched(settings: Settings) -> RunRecord:
    return RunRecord(
        id="r007", created_t=START_S, job=BuiltinJob(), resolved=Resolved(settings), argv=("python",), cwd="/",
        interpreter="python", host="box", program_version="1", output_dir="/out",
    )  # fmt: skip


async def test_the_in_effect_panel_marks_what_differs() -> None:
    panel = InEffectPanel()
    app = PanelApp(panel)
    async with app.run_test(size=(100, 12)) as pilot:
        await pilot.pause()
        assert "No run is open" in app.text
        panel.record = launched(Settings(tf32=True, per_device_train_batch_size=16))
        panel.state = running(START_S, in_effect={"tf32": False, "per_device_train_batch_size": 16})
        await pilot.pause()
        await pilot.pause()
        marked = [row for row in app.text.splitlines() if row.startswith("!")]
        assert [row.split()[1:] for row in marked] == [["TF32", "on", "off"]]


async def test_the_plots_panel_draws_what_the_history_holds() -> None:
    panel = PlotsPanel()
    app = PanelApp(panel)
    async with app.run_test(size=(100, 20)) as pilot:
        await pilot.pause()
        assert "no points yet" in app.text
        panel.history = history()
        await pilot.pause()
        await pilot.pause()
        for title in ("loss", "eval loss", "throughput, samples/s", "peak memory"):
            assert title in app.text
        assert any("\u2801" <= character <= "\u28ff" for character in app.text)
