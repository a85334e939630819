"""No key, paste, click or size makes a screen fail, however fast they come."""

from __future__ import annotations

import pytest
from textual import events
from textual.pilot import Pilot

from tests.fakes.ui_backend import busy_box
from tests.faults.keys import apps, press_random_keys
from tests.ui.pilots import app_of, dialog, on_screen, until
from tuner_tui.ui.screens.dialogs import ConfirmScreen
from tuner_tui.ui.screens.help import HelpScreen

KEYS = 500
# A coroutine of a flow that has not begun when the app ends is never awaited.
pytestmark = pytest.mark.filterwarnings("ignore:coroutine .* was never awaited:RuntimeWarning")


@pytest.mark.parametrize(("name", "seed"), [("busy", 3), ("busy", 6), ("failed", 8), ("failed", 9), ("watch", 6)])
async def test_random_keys(name: str, seed: int) -> None:
    await press_random_keys(apps()[name](), seed, KEYS)


@pytest.mark.parametrize("keys", [("ctrl+p", "pagedown"), ("ctrl+p", "pageup"), ("ctrl+p", "T", "pagedown")])
async def test_keys_before_the_palette_is_laid_out(keys: tuple[str, ...]) -> None:
    async with on_screen(busy_box()) as pilot:
        for key in keys:
            pilot.app.simulate_key(key)
        await until(pilot, lambda: dialog(pilot) == "Commands")


async def test_a_second_answer_leaves_the_screen_below() -> None:
    async with on_screen(busy_box()) as pilot:
        below, question = HelpScreen(()), ConfirmScreen("Stop", "Stop it?")
        await pilot.app.push_screen(below)
        await pilot.app.push_screen(question)
        question.action_answer(True)
        question.action_answer(True)
        await pilot.pause()
        assert pilot.app.screen is below


async def drag(pilot: Pilot[None], start: tuple[int, int], end: tuple[int, int]) -> None:
    for event, (x, y) in ((events.MouseDown, start), (events.MouseMove, end), (events.MouseUp, end)):
        pilot.app.post_message(event(None, x, y, 0, 0, 1, False, False, False, x, y))
        await pilot.pause()


async def test_text_cannot_be_dragged_over() -> None:
    async with on_screen(busy_box()) as pilot:
        for row in range(0, 40, 3):
            await drag(pilot, (2, row), (100, row + 1))
        assert app_of(pilot).main.selections == {}


async def test_a_key_after_the_last_one() -> None:
    app = busy_box().app()
    async with app.run_test() as pilot:
        await pilot.pause()
        for key in ("q", "s", "question_mark", "ctrl+p", "enter"):
            app.simulate_key(key)
    assert app.return_code in (0, None)
