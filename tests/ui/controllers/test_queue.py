"""The queue on the screen: how it looks, and what its keys ask for."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from tests.fakes.queue_access import FakeQueue, some_lines
from tests.fakes.ui_backend import FakeBox
from tests.ui.pilots import ScreenPilot, app_of, dialog, on_screen, said, screen_text, settled, until
from tuner_tui.ui.screens.queue import QueueScreen, queue_rows
from tuner_tui.view.cells import plain_text

Compare = Callable[..., bool]


def queue_box() -> FakeBox:
    return FakeBox(queue=FakeQueue(some_lines(time.time() - 750)))


async def open_queue(pilot: ScreenPilot) -> None:
    await pilot.press("Q")
    await until(pilot, lambda: isinstance(pilot.app.screen, QueueScreen))
    await until(pilot, lambda: "q00" in screen_text(pilot.app) or "empty" in screen_text(pilot.app))


def test_the_reason_stands_below_each_entry() -> None:
    rows, at = queue_rows(some_lines(0.0), "q003", 750.0, 76)
    texts = [plain_text(row.line).rstrip() for row in rows]
    assert texts[at] == "▸ q003   waiting   12 min   python eval.py"
    assert texts[at + 1] == "    There is room on GPU 0, but starting now would delay q002, which came"
    assert texts[1].startswith("  q001   running            r008  python sft.py")


@pytest.mark.parametrize(
    ("waited_s", "shown"), [(59.0, "<1 min"), (61.0, "1 min"), (119.0, "1 min"), (205.0, "3 min"), (9e3, "2.5 h")]
)
def test_the_time_of_waiting_fits_into_its_column(waited_s: float, shown: str) -> None:
    rows, at = queue_rows(some_lines(0.0), "q003", waited_s, 76)
    assert plain_text(rows[at].line).rstrip() == f"▸ q003   waiting   {shown:<9}python eval.py"


async def test_keys_hold_move_and_remove_the_entry_under_the_cursor() -> None:
    box = queue_box()
    async with on_screen(box) as pilot:
        await open_queue(pilot)
        await pilot.press("j", "h")
        await until(pilot, lambda: ("hold", "q002") in box.queue.asked)
        await until(pilot, lambda: "2 held" in screen_text(pilot.app))
        await pilot.press("h")
        await until(pilot, lambda: ("release", "q002") in box.queue.asked)
        await pilot.press("J", "K", "x")
        await until(pilot, lambda: dialog(pilot) == "Remove")
        await pilot.press("y")
        await until(pilot, lambda: box.queue.asked[-1] == ("remove", "q002"))
        assert [what for what, _ in box.queue.asked if what in ("up", "down")] == ["down", "up"]
        await pilot.press("escape")
        await until(pilot, lambda: pilot.app.screen is app_of(pilot).main)


async def test_enter_shows_the_run_of_an_entry_once_it_has_one() -> None:
    async with on_screen(queue_box()) as pilot:
        await open_queue(pilot)
        await pilot.press("j", "enter")
        await until(pilot, lambda: "q002 has not started yet" in said(pilot))
        await pilot.press("k", "enter")
        await until(pilot, lambda: pilot.app.screen is app_of(pilot).main)
        folder = app_of(pilot).state.folder
        assert folder is not None
        assert folder.name == "r008"


async def test_the_training_shown_is_queued_after_a_look() -> None:
    box = FakeBox()
    async with on_screen(box) as pilot:
        await open_queue(pilot)
        await pilot.press("a")
        await until(pilot, lambda: dialog(pilot) == "Queue")
        assert "1 GPU with 41.3 GiB" in screen_text(pilot.app)
        await pilot.press("enter")
        await until(pilot, lambda: "Queued as q009." in said(pilot))
        await until(pilot, lambda: "q009" in screen_text(pilot.app))


async def test_the_dispatcher_is_started_again_by_the_screen() -> None:
    box = FakeBox()
    async with on_screen(box) as pilot:
        await until(pilot, lambda: ("wake", "") in box.queue.asked)


@pytest.mark.parametrize("size", [(80, 24), (120, 40)], ids=["80x24", "120x40"])
def test_look(snap_compare: Compare, size: tuple[int, int]) -> None:
    box = queue_box()

    async def before(pilot: ScreenPilot) -> None:
        await until(pilot, settled(pilot, box))
        await open_queue(pilot)
        await pilot.press("j")
        await pilot.pause()

    assert snap_compare(box.app(), terminal_size=size, run_before=before)
