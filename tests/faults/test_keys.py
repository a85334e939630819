"""No key, paste, click or size makes a screen fail, however fast they come."""

from __future__ import annotations

import pytest
from textual import events
from textual.pilot import Pilot

from tests.fakes.ui_backend import busy_box
from tests.faults.keys import apps, boxes, press_random_keys, result_of
from tests.ui.pilots import app_of, dialog, on_screen, until
from tuner_tui.ui.backend.records import PresetListing
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
    # The harness closes the screen while the app still handles news: all of it has to be there before.
    async with on_screen(busy_box()) as pilot:
        app = pilot.app
        for key in ("q", "s", "question_mark", "ctrl+p", "enter"):
            app.simulate_key(key)
    assert app.return_code in (0, None)


@pytest.mark.parametrize(
    ("name", "burst"),
    [
        ("busy", "p p"),
        ("busy", "p q s y s y"),
        ("busy", "r r v"),
        ("busy", "p down enter u 1 slash l e a r enter plus"),
        ("busy", "S a b c enter ctrl+p p r e enter"),
        ("busy", "v down enter down enter escape R y"),
        ("busy", "question_mark escape w escape a u e down escape"),
        ("failed", "1 enter backspace 9 enter plus t enter s y"),
        ("idle", "t h enter s o enter"),
        ("idle", "ctrl+s y ctrl+p T h enter t"),
    ],
)
async def test_a_burst_of_keys_does_what_slow_keys_do(name: str, burst: str) -> None:
    make, keys = boxes()[name], burst.split()
    assert await result_of(make(), keys, slowly=False) == await result_of(make(), keys, slowly=True)


async def test_keys_wait_for_a_hung_request_no_longer_than_somebody_would() -> None:
    box = busy_box()
    asked: list[None] = []

    def list_presets(inventory: object) -> list[PresetListing]:
        asked.append(None)
        box.hung.wait()
        return []

    app = box.app(box.backend(list_presets=list_presets))
    async with app.run_test() as pilot:
        await until(pilot, lambda: app.state.editing is not None)
        for key in ("p", "p", "question_mark"):
            app.simulate_key(key)
        await until(pilot, lambda: isinstance(app.screen, HelpScreen))
        box.hung.set()
        await until(pilot, lambda: dialog(pilot) == "Presets")
    assert len(asked) == 1
