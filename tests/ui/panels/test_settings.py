"""The settings panel, key by key."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from textual import events

from tests.fakes.ui_backend import FakeBox, failed_box, opened
from tests.ui.pilots import ScreenPilot, app_of, cursor_on, on_screen, said, screen_text, until, value
from tuner_tui.settings.model import FIELDS
from tuner_tui.ui.panels.settings import FieldHelp, SettingsPanel, ValueInput

BATCH = "per_device_train_batch_size"


async def test_the_form_has_the_focus_and_arrows_move_through_it() -> None:
    async with on_screen(FakeBox()) as pilot:
        assert cursor_on(pilot) == BATCH
        await pilot.press("down", "j", "down")
        assert cursor_on(pilot) == "dataloader_num_workers"
        await pilot.press("k", "up", "up", "up", "up")
        assert cursor_on(pilot) == BATCH
        await pilot.press("end")
        row = app_of(pilot).main.query_one(SettingsPanel).list.row
        assert row is not None
        assert row.label == "▸ Length"
        await pilot.press("enter", "end")
        assert cursor_on(pilot) == "seed"
        await pilot.press("home")
        assert cursor_on(pilot) == BATCH
        await pilot.press("pagedown", "pageup")
        assert cursor_on(pilot) == BATCH


@pytest.mark.parametrize(
    ("keys", "result"), [("plus", 24), ("equals_sign", 24), ("right", 24), ("minus", 12), ("left", 12)]
)
async def test_plus_and_minus_step(keys: str, result: int) -> None:
    async with on_screen(FakeBox()) as pilot:
        await pilot.press(keys)
        await until(pilot, lambda: value(pilot, BATCH) == result)


async def test_enter_edits_and_enter_takes_the_value() -> None:
    async with on_screen(FakeBox()) as pilot:
        await pilot.press("enter", "backspace", "backspace", "3", "2", "enter")
        await until(pilot, lambda: value(pilot, BATCH) == 32)
        panel = app_of(pilot).main.query_one(SettingsPanel)
        assert str(panel.border_title).startswith("1 Settings · llama-1b-sft*")
        assert panel.border_subtitle == "effective batch 256 = 32 × 4 × 2 GPUs"
        assert app_of(pilot).main.focused is panel.list


async def test_enter_edits_the_value_that_is_there_and_escape_leaves_it() -> None:
    async with on_screen(FakeBox()) as pilot:
        await pilot.press("enter")
        typed = app_of(pilot).main.query_one(ValueInput)
        assert typed.value == "16"
        await pilot.press("backspace", "escape")
        assert value(pilot, BATCH) == 16
        assert not typed.has_class("-shown")


async def test_an_error_is_shown_the_moment_it_is_one_and_is_not_taken() -> None:
    async with on_screen(FakeBox()) as pilot:
        await pilot.press("enter", "backspace", "backspace", "0")
        lines = app_of(pilot).main.query_one(FieldHelp)
        await until(pilot, lambda: lines.shown.tone == "error")
        assert app_of(pilot).main.query_one(ValueInput).has_class("-wrong")
        await pilot.press("enter")
        assert app_of(pilot).main.query_one(ValueInput).has_class("-shown")
        await pilot.press("backspace", "8")
        await until(pilot, lambda: lines.shown.tone != "error")
        await pilot.press("enter")
        await until(pilot, lambda: value(pilot, BATCH) == 8)


@pytest.mark.parametrize(("key", "page"), [("2", "live"), ("4", "output"), ("7", "hardware"), ("1", "settings")])
async def test_a_digit_goes_to_its_page_and_edits_nothing(key: str, page: str) -> None:
    async with on_screen(FakeBox(), (80, 24)) as pilot:
        await pilot.press(key)
        await until(pilot, lambda: app_of(pilot).main.page == page)
        assert not app_of(pilot).main.query_one(ValueInput).has_class("-shown")


async def test_down_accepts_and_goes_on() -> None:
    async with on_screen(FakeBox()) as pilot:
        await pilot.press("enter", "backspace", "backspace", "4", "down")
        await until(pilot, lambda: value(pilot, BATCH) == 4)
        assert cursor_on(pilot) == "gradient_accumulation_steps"


async def test_who_goes_elsewhere_gives_up_the_edit() -> None:
    async with on_screen(FakeBox()) as pilot:
        await pilot.press("enter", "4", "alt+4")
        typed = app_of(pilot).main.query_one(ValueInput)
        await until(pilot, lambda: not typed.has_class("-shown"))
        assert value(pilot, BATCH) == 16
        assert app_of(pilot).main.page == "output"


async def test_space_and_enter_switch() -> None:
    async with on_screen(FakeBox()) as pilot:
        await pilot.press("slash", *"compile", "enter", "space")
        await until(pilot, lambda: value(pilot, "torch_compile"))
        await pilot.press("enter")
        await until(pilot, lambda: not value(pilot, "torch_compile"))


async def test_backspace_empties_what_may_be_empty() -> None:
    async with on_screen(FakeBox()) as pilot:
        await pilot.press("slash", *"prefetch", "enter", "backspace")
        await until(pilot, lambda: value(pilot, "dataloader_prefetch_factor") is None)
        await pilot.press("slash", *"seed", "enter", "delete")
        assert value(pilot, "seed") == 42


async def test_slash_finds_a_field() -> None:
    async with on_screen(FakeBox()) as pilot:
        await pilot.press("slash", *"learn")
        assert cursor_on(pilot) == "learning_rate"
        await pilot.press("z")
        assert app_of(pilot).main.query_one(ValueInput).has_class("-wrong")
        await pilot.press("escape")
        assert app_of(pilot).main.focused is app_of(pilot).main.query_one(SettingsPanel).list


async def test_undo_and_redo() -> None:
    async with on_screen(FakeBox()) as pilot:
        await pilot.press("plus", "plus")
        await until(pilot, lambda: value(pilot, BATCH) == 32)
        await pilot.press("u", "ctrl+z")
        await until(pilot, lambda: value(pilot, BATCH) == 16)
        assert app_of(pilot).main.query_one(SettingsPanel).list.rows[0].changed is False
        await pilot.press("ctrl+r", "ctrl+y")
        await until(pilot, lambda: value(pilot, BATCH) == 32)


async def test_rules_across_fields_show_in_place() -> None:
    async with on_screen(FakeBox(opened=opened(dataloader_num_workers=2, dataloader_prefetch_factor=4))) as pilot:
        await pilot.press("slash", *"workers", "enter", "enter", "backspace", "0", "enter")
        panel = app_of(pilot).main.query_one(SettingsPanel)
        await until(pilot, lambda: any(row.tone == "error" for row in panel.list.rows))
        wrong = {row.name for row in panel.list.rows if row.tone == "error"}
        assert "dataloader_prefetch_factor" in wrong


async def test_a_click_moves_the_cursor_and_a_second_one_edits() -> None:
    async with on_screen(FakeBox()) as pilot:
        panel = app_of(pilot).main.query_one(SettingsPanel)
        await pilot.click(panel.list, offset=(5, 1))
        assert cursor_on(pilot) == "gradient_accumulation_steps"
        await pilot.click(panel.list, offset=(5, 1))
        await until(pilot, lambda: app_of(pilot).main.query_one(ValueInput).has_class("-shown"))


async def test_nothing_is_said_where_all_is_well() -> None:
    async with on_screen(FakeBox()) as pilot:
        await pilot.press("plus", "minus")
        assert said(pilot) == ""


@pytest.mark.parametrize("box", [FakeBox, failed_box])
async def test_the_five_knobs_are_visible_together_on_a_small_terminal(box: Callable[[], FakeBox]) -> None:
    async with on_screen(box(), (80, 24)) as pilot:
        await pilot.press("alt+1")
        seen = screen_text(pilot.app)
        for label in ("micro batch", "accumulation", "precision", "workers", "prefetch"):
            assert f" {label} " in seen


async def test_a_group_opens_and_closes_and_says_what_was_changed() -> None:
    async with on_screen(FakeBox(opened=opened(weight_decay=0.1, learning_rate=1e-3)), (80, 24)) as pilot:
        rows = app_of(pilot).main.query_one(SettingsPanel).list.rows
        at = next(at for at, row in enumerate(rows) if row.group == "Optimizer" and row.name is None)
        assert rows[at].origin == "2 changed"
        await pilot.press(*["down"] * at, "enter")
        panel = app_of(pilot).main.query_one(SettingsPanel)
        assert "weight_decay" in [row.name for row in panel.list.rows]
        await pilot.press("left")
        assert "weight_decay" not in [row.name for row in panel.list.rows]


async def test_a_folded_group_shows_what_is_wrong_in_it() -> None:
    async with on_screen(FakeBox(opened=opened(peft_method="none", lora_r=8, eval_steps=7)), (80, 24)) as pilot:
        panel = app_of(pilot).main.query_one(SettingsPanel)
        folded = {row.group: row for row in panel.list.rows if row.name is None}
        problems = panel.view.problems if panel.view is not None else ()
        groups = {FIELDS[name].group for problem in problems for name in problem.fields}
        assert {group for group, row in folded.items() if row.tone} == groups & folded.keys()


@pytest.mark.parametrize(("height", "closed"), [(60, set()), (52, {"Length"})])
async def test_a_large_terminal_shows_the_groups_open_that_fit(height: int, closed: set[str]) -> None:
    async with on_screen(FakeBox(), (200, height)) as pilot:
        rows = app_of(pilot).main.query_one(SettingsPanel).list.rows
        hidden = {name for name, spec in FIELDS.items() if spec.group in closed}
        assert {row.name for row in rows if row.name} == set(FIELDS) - hidden


async def burst(pilot: ScreenPilot, *keys: str) -> None:
    """Send keys without waiting between them, as a terminal does with what was typed while it was busy."""
    for key in keys:
        pilot.app.post_message(events.Key(key, key if len(key) == 1 else "\r" if key == "enter" else None))
    await pilot.pause()


async def test_keys_of_a_burst_arrive_in_the_order_typed() -> None:
    async with on_screen(FakeBox()) as pilot:
        await pilot.press("enter", "end")
        await burst(pilot, "backspace", "backspace", *"12345", "enter")
        await until(pilot, lambda: value(pilot, BATCH) == 12345)


async def test_a_burst_can_open_edit_and_leave_two_fields() -> None:
    """Enter selects the value, so that what is typed replaces it."""
    async with on_screen(FakeBox()) as pilot:
        await burst(pilot, "enter", *"24", "enter", "down", "enter", "7", "enter")
        await until(pilot, lambda: value(pilot, "gradient_accumulation_steps") == 7)
        assert value(pilot, BATCH) == 24


async def test_a_burst_finds_a_field_and_edits_it() -> None:
    async with on_screen(FakeBox()) as pilot:
        await burst(pilot, "slash", *"learn", "enter", "enter", *"3e-4", "enter")
        await until(pilot, lambda: value(pilot, "learning_rate") == 3e-4)
