"""Apply, diff, why: a remedy applied with one key, and undone with one."""

from __future__ import annotations

from pathlib import Path

from tests.fakes.ui_backend import DATA_WAIT, OUT_OF_MEMORY, FakeBox, busy_box, ended, failed_box
from tests.ui.pilots import app_of, dialog, on_screen, said, until, value
from tuner_tui.settings.model import OriginKind
from tuner_tui.ui.panels.layout import TROUBLES_MOST_ROWS
from tuner_tui.ui.panels.troubleshooting import TroubleshootingPanel

WORKERS = "dataloader_num_workers"


async def test_apply_changes_the_settings_at_once() -> None:
    async with on_screen(busy_box()) as pilot:
        await pilot.press("a")
        await until(pilot, lambda: value(pilot, WORKERS) == 4)
        assert dialog(pilot) == ""
        assert value(pilot, "dataloader_persistent_workers")
        assert "Applied. R restarts this run with it" in said(pilot)
        editing = app_of(pilot).state.editing
        assert editing is not None
        assert editing.current.origin(WORKERS).kind is OriginKind.REMEDY


async def test_undo_takes_the_whole_remedy_back() -> None:
    async with on_screen(busy_box()) as pilot:
        await pilot.press("a")
        await until(pilot, lambda: value(pilot, WORKERS) == 4)
        await pilot.press("u")
        await until(pilot, lambda: value(pilot, WORKERS) == 8)
        assert not value(pilot, "dataloader_persistent_workers")


async def test_diff_changes_nothing_and_can_be_left() -> None:
    async with on_screen(busy_box()) as pilot:
        await pilot.press("d")
        await until(pilot, lambda: dialog(pilot) == DATA_WAIT.remedies[0].title)
        await pilot.press("escape")
        await until(pilot, lambda: dialog(pilot) == "")
        assert value(pilot, WORKERS) == 8


async def test_the_diff_can_be_applied() -> None:
    async with on_screen(busy_box()) as pilot:
        await pilot.press("d")
        await until(pilot, lambda: dialog(pilot) == DATA_WAIT.remedies[0].title)
        await pilot.press("a")
        await until(pilot, lambda: value(pilot, WORKERS) == 4)
        assert dialog(pilot) == ""


async def test_a_remedy_that_changes_nothing_cannot_be_applied() -> None:
    async with on_screen(busy_box()) as pilot:
        await pilot.press("a")
        await until(pilot, lambda: value(pilot, WORKERS) == 4)
        await pilot.press("a")
        await until(pilot, lambda: "already have these values" in said(pilot))
        await pilot.press("d")
        await until(pilot, lambda: dialog(pilot) == DATA_WAIT.remedies[0].title)
        await pilot.press("a")
        assert dialog(pilot) == DATA_WAIT.remedies[0].title
        await pilot.press("escape", "u")
        await until(pilot, lambda: value(pilot, WORKERS) == 8)


async def test_the_cursor_goes_through_the_remedies() -> None:
    async with on_screen(failed_box()) as pilot:
        panel = app_of(pilot).main.query_one(TroubleshootingPanel)
        await pilot.press("alt+3", "down")
        assert panel.choice is not None
        assert panel.choice.remedy is OUT_OF_MEMORY.remedies[1]
        await pilot.press("down", "k")
        assert panel.choice.remedy is OUT_OF_MEMORY.remedies[0]
        await pilot.press("j", "a")
        await until(pilot, lambda: value(pilot, "gradient_checkpointing"))


async def test_why_shows_the_evidence() -> None:
    async with on_screen(busy_box()) as pilot:
        await pilot.press("w")
        await until(pilot, lambda: dialog(pilot) == "Why")
        await pilot.press("escape")
        await until(pilot, lambda: dialog(pilot) == "")


async def test_a_remedy_outside_the_settings_is_explained_instead() -> None:
    async with on_screen(busy_box()) as pilot:
        await pilot.press("alt+3", "down", "a")
        await until(pilot, lambda: dialog(pilot) == "Why")


async def test_keys_without_a_finding_do_nothing() -> None:
    async with on_screen(busy_box(findings=())) as pilot:
        await pilot.press("a", "d", "w")
        assert dialog(pilot) == ""


async def test_a_failure_is_framed_as_one() -> None:
    async with on_screen(failed_box()) as pilot:
        panel = app_of(pilot).main.query_one(TroubleshootingPanel)
        assert panel.has_class("-failed")
        assert panel.styles.border_top[0] == "heavy"


async def test_what_came_of_a_run_stands_above_what_is_wrong_with_the_box_and_all_of_it_is_seen() -> None:
    box = FakeBox(view=ended("completed", "Completed."), findings=(DATA_WAIT,))
    async with on_screen(box, folder=Path("/runs/r007")) as pilot:
        panel = app_of(pilot).main.query_one(TroubleshootingPanel)
        for size in ((120, 40), (118, 34), (120, 40)):
            await pilot.resize_terminal(*size)
            await until(pilot, lambda: panel.size.height == panel.wanted_rows > 3)
        app_of(pilot).main.findings = (DATA_WAIT, OUT_OF_MEMORY)
        await until(pilot, lambda: panel.size.height == TROUBLES_MOST_ROWS - 2 < panel.wanted_rows)
        seen = "\n".join(strip.text for strip in pilot.app.screen._compositor.render_strips())
        assert 0 < seen.index("✓ Finished: ") < seen.index(OUT_OF_MEMORY.sentence)
