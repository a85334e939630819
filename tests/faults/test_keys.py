"""No key, paste, click or size makes a screen fail, however fast they come."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import ClassVar

import pytest
from textual.binding import BindingType

from tests.fakes.ui_backend import FakeBox, busy_box
from tests.faults.keys import apps, boxes, press_random_keys, result_of, use_any_machine
from tests.ui.pilots import PATIENCE_S, app_of, dialog, on_screen, until
from tuner_tui.settings.presets import PresetEntry
from tuner_tui.ui.screens.dialogs import ConfirmScreen
from tuner_tui.ui.screens.help import HelpScreen
from tuner_tui.ui.terminal.base_app import BaseApp

KEYS, MACHINES = 500, 8
# A coroutine of a flow that has not begun when the app ends is never awaited.
pytestmark = pytest.mark.filterwarnings("ignore:coroutine .* was never awaited:RuntimeWarning")


@pytest.mark.parametrize(
    "name", ["busy", *(pytest.param(name, marks=pytest.mark.full) for name in ("failed", "watch"))]
)
async def test_random_keys(name: str) -> None:
    await press_random_keys(apps()[name](), 6, KEYS)


@pytest.mark.parametrize(
    "seed", [*range(MACHINES), *(pytest.param(seed, marks=pytest.mark.full) for seed in range(MACHINES, 40))]
)
async def test_any_machine(seed: int, tmp_path: Path) -> None:
    """`python -m tests.faults.fuzz --machines --minutes 30` searches for longer."""
    await use_any_machine(seed, tmp_path / "runs", 40)


async def test_a_key_that_reads_the_curves_of_no_run() -> None:
    async with on_screen(FakeBox()) as pilot:
        await pilot.press("5", "left", "left", "right")
        assert app_of(pilot).main.page == "plots"


@pytest.mark.parametrize("keys", [("ctrl+p", "pagedown"), ("ctrl+p", "T", "pagedown")])
async def test_keys_before_the_palette_is_laid_out(keys: tuple[str, ...]) -> None:
    async with on_screen(busy_box()) as pilot:
        for key in keys:
            pilot.app.simulate_key(key)
        await until(pilot, lambda: dialog(pilot) == "Commands")


@pytest.mark.parametrize(
    ("name", "burst"),
    [
        ("busy", "p q s y s y"),
        ("busy", "p down enter u 1 slash l e a r enter plus"),
        ("failed", "1 enter backspace 9 enter plus t escape minus"),  # what starts waits until it was seen
        pytest.param("busy", "S a b c enter ctrl+p p r e enter", marks=pytest.mark.full),
        pytest.param("busy", "v down enter down enter escape R escape minus", marks=pytest.mark.full),
        pytest.param("idle", "ctrl+s y ctrl+p T h enter t", marks=pytest.mark.full),
    ],
)
async def test_a_burst_of_keys_does_what_slow_keys_do(name: str, burst: str) -> None:
    make, keys = boxes()[name], burst.split()
    assert await result_of(make(), keys, slowly=False) == await result_of(make(), keys, slowly=True)


async def test_keys_wait_for_a_hung_request_no_longer_than_somebody_would() -> None:
    box = busy_box()
    asked: list[None] = []

    def list_presets(inventory: object) -> list[PresetEntry]:
        asked.append(None)
        box.hung.wait()
        return []

    app = box.app(box.backend(list_presets=list_presets))
    async with app.run_test() as pilot:
        await until(pilot, lambda: app.main.settings_view is not None)
        for key in ("p", "p", "question_mark"):
            app.simulate_key(key)
        await until(pilot, lambda: isinstance(app.screen, HelpScreen))
        box.hung.set()
        await until(pilot, lambda: dialog(pilot) == "Presets")
    assert len(asked) == 1


class TwoRequests(BaseApp):
    """`a` begins a request that goes on in the background, and `b` one that shows a dialog once that has ended."""

    BINDINGS: ClassVar[list[BindingType]] = [("a", "first"), ("b", "second"), ("n", "refuse")]

    def __init__(self) -> None:
        super().__init__("dark", colour=True, ascii_only=False)
        self.second_began = asyncio.Event()
        self.first_ended = asyncio.Event()
        self.answered = self.refused = False

    def action_refuse(self) -> None:
        self.refused = True

    def action_first(self) -> None:
        self.serve(self._first)

    def action_second(self) -> None:
        self.serve(self._second)

    async def _first(self) -> None:
        self.let_input_through()
        await self.second_began.wait()
        asyncio.get_running_loop().call_later(0, self.first_ended.set)

    async def _second(self) -> None:
        self.second_began.set()
        await self.first_ended.wait()
        for _ in range(100):  # time in which the next key must not be handled
            await asyncio.sleep(0)
        await self.ask(ConfirmScreen("Delete", "Delete it?", "delete"))
        self.answered = True


async def test_a_request_that_ends_lets_no_key_through_to_another() -> None:
    app = TwoRequests()
    async with app.run_test() as pilot:
        app.answer_limit_s = PATIENCE_S
        for key in ("a", "b", "n"):
            app.simulate_key(key)
        await until(pilot, lambda: app.answered or app.refused)
    assert not app.refused
