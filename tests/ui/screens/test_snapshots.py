"""The screen as it looks, at three sizes, in its states and its looks."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from tests.fakes.memory_outlooks import estimated
from tests.fakes.ui_backend import FakeBox, busy_box, failed_box, opened
from tests.ui.pilots import ScreenPilot, app_of, dialog, on_screen, press_to, screen_text, settled, until, value
from tuner_tui.advice.estimate import MemoryOutlook

Box = Callable[[], FakeBox]
BATCH = "per_device_train_batch_size"
Compare = Callable[..., bool]
SMALL, USUAL, WIDE = (80, 24), (120, 40), (200, 60)


def snapshot(
    compare: Compare, box: FakeBox, size: tuple[int, int], *keys: str, title: str | None = None, **options: Any
) -> None:
    """Compare the screen over `box` after `keys`, with the dialog `title` open where one is named."""

    async def before(pilot: ScreenPilot) -> None:
        await until(pilot, settled(pilot, box))
        await pilot.press(*keys)
        await until(pilot, lambda: app_of(pilot).main.outlook == MemoryOutlook(estimated(value(pilot, BATCH))))
        if title is not None:
            await until(pilot, lambda: dialog(pilot) == title)
        await pilot.pause()

    run_before: Callable[[ScreenPilot], Awaitable[None]] = before
    assert compare(box.app(**options), terminal_size=size, run_before=run_before)


@pytest.mark.parametrize(
    ("box", "size"),
    [(FakeBox, SMALL), (busy_box, USUAL), (failed_box, WIDE)],
    ids=["fresh-80x24", "training-120x40", "failed-200x60"],
)
def test_dark(snap_compare: Compare, box: Box, size: tuple[int, int]) -> None:
    snapshot(snap_compare, box(), size)


@pytest.mark.parametrize(
    "options",
    [{"theme": "light"}, {"colour": False}, {"colour": False, "ascii_only": True}],
    ids=["light", "no-colour", "ascii"],
)
def test_looks(snap_compare: Compare, options: dict[str, Any]) -> None:
    snapshot(snap_compare, busy_box(), USUAL, **options)


@pytest.mark.parametrize("page", [2, 5])
def test_pages_of_a_small_terminal(snap_compare: Compare, page: int) -> None:
    snapshot(snap_compare, busy_box(), SMALL, f"alt+{page}")


def test_settings_that_do_not_fit_together(snap_compare: Compare) -> None:
    box = FakeBox(opened=opened("mistaken", dataloader_prefetch_factor=4, learning_rate=3e-4))
    snapshot(snap_compare, box, USUAL, "slash", *"prefetch", "enter")


async def test_the_diff_of_a_remedy_has_old_and_new_values() -> None:
    async with on_screen(failed_box(), size=USUAL) as pilot:
        await press_to(pilot, "micro batch 16 → 8, accumulation 4 → 8", "d")
        text = screen_text(app_of(pilot))
        assert "16  →  8" in text
        assert "4  →  8" in text
        assert "enter apply" in text


def test_help(snap_compare: Compare) -> None:
    snapshot(snap_compare, FakeBox(), USUAL, "question_mark", title="Help")
