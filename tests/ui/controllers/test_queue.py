"""The queue on the screen: how it looks, and what its keys ask for."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.fakes.queue_access import FakeQueue, some_lines
from tests.fakes.ui_backend import FakeBox
from tests.ui.pilots import ScreenPilot, app_of, dialog, on_screen, said, screen_text, settled, until
from tuner_tui.ui.drawing.cells import plain_text
from tuner_tui.ui.screens.queue import QueueScreen, queue_rows

Compare = Callable[..., bool]


def queue_box() -> FakeBox:
    return FakeBox(queue=FakeQueue(some_lines(time.time() - 750)))


async def open_queue(pilot: ScreenPilot) -> None:
    await pilot.press("Q")
    await until(pilot, lambda: isinstance(pilot.app.screen, QueueScreen))
    await until(pilot, lambda: "r00" in screen_text(pilot.app) or "empty" in screen_text(pilot.app))


def test_the_reason_stands_below_each_run() -> None:
    rows, at = queue_rows(some_lines(0.0), "r003", 750.0, 76)
    texts = [plain_text(row.line).rstrip() for row in rows]
    assert texts[at] == "▸ r003  waiting      12 min   python eval.py"
    assert texts[at + 1] == "    It starts after run r002 has ended."


@pytest.mark.parametrize(("waited_s", "shown"), [(59.0, "<1 min"), (119.0, "1 min"), (9e3, "2.5 h")])
def test_the_time_of_waiting_fits_into_its_column(waited_s: float, shown: str) -> None:
    rows, at = queue_rows(some_lines(0.0), "r003", waited_s, 76)
    assert plain_text(rows[at].line).rstrip() == f"▸ r003  waiting      {shown:<9}python eval.py"


async def test_keys_remove_the_run_under_the_cursor_and_show_it() -> None:
    box = queue_box()
    async with on_screen(box) as pilot:
        await open_queue(pilot)
        await pilot.press("j", "x")
        await until(pilot, lambda: dialog(pilot) == "Remove")
        await pilot.press("y")
        await until(pilot, lambda: box.queue.asked[-1] == ("remove", "r003"))
        await until(pilot, lambda: "r003" not in screen_text(pilot.app))
        await pilot.press("enter")
        await until(pilot, lambda: pilot.app.screen is app_of(pilot).main)
        assert app_of(pilot).state.folder == Path("/runs/r002")


async def test_the_training_shown_is_queued_after_a_look() -> None:
    box = FakeBox()
    async with on_screen(box) as pilot:
        await open_queue(pilot)
        await pilot.press("a")
        await until(pilot, lambda: dialog(pilot) == "Queue")
        assert "1 of 2 GPUs" in screen_text(pilot.app)
        await pilot.press("enter")
        await until(pilot, lambda: "Queued as r009." in said(pilot))
        await until(pilot, lambda: "r009" in screen_text(pilot.app))


async def test_the_screen_wakes_what_starts_waiting_runs() -> None:
    box = FakeBox()
    async with on_screen(box) as pilot:
        await until(pilot, lambda: ("wake", "") in box.queue.asked)


def test_look(snap_compare: Compare) -> None:
    box = queue_box()

    async def before(pilot: ScreenPilot) -> None:
        await until(pilot, settled(pilot, box))
        await open_queue(pilot)
        await pilot.press("j")
        await pilot.pause()

    assert snap_compare(box.app(), terminal_size=(80, 24), run_before=before)
