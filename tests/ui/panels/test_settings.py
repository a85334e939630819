"""The settings panel, key by key."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from msgspec.structs import replace
from textual import events

from tests.fakes.ui_backend import FakeBox, failed_box, opened
from tests.ui.pilots import ScreenPilot, app_of, cursor_on, notes, on_screen, press_until, screen_text, until, value
from tuner_tui.settings.job import CommandJob
from tuner_tui.settings.model import FIELDS
from tuner_tui.ui.panels.settings import AROUND_TITLE, SettingsList, SettingsPanel, ValueInput
from tuner_tui.ui.terminal.base_widgets import RowsPanel
from tuner_tui.view.settings_form import KNOBS

BATCH = "per_device_train_batch_size"


async def test_keys_move_through_the_form_and_open_groups() -> None:
    async with on_screen(FakeBox(opened=opened(weight_decay=0.1, learning_rate=1e-3)), (80, 24)) as pilot:
        panel = app_of(pilot).main.query_one(SettingsPanel)
        await pilot.press("1")
        assert cursor_on(pilot) == BATCH
        await pilot.press("down", "j", "down")
        assert cursor_on(pilot) == "dataloader_num_workers"
        await pilot.press("k", "up", "up", "up", "up", "pagedown", "pageup")
        assert cursor_on(pilot) == BATCH
        await pilot.press("end")
        assert panel.list.row is not None
        assert panel.list.row.label == "▸ Length"
        await pilot.press("enter", "end")
        assert cursor_on(pilot) == "seed"
        at = next(at for at, row in enumerate(panel.list.rows) if row.group == "Optimizer" and row.name is None)
        assert panel.list.rows[at].label == "▹ Optimizer"
        assert "warmup" not in [row.label for row in panel.list.rows], "nobody has set it"
        await pilot.press("home", *["down"] * at, "enter")
        assert "weight_decay" in [row.name for row in panel.list.rows]
        await pilot.press("left")
        assert "weight_decay" not in [row.name for row in panel.list.rows]


@pytest.mark.parametrize(("keys", "result"), [(["plus", "right"], 32), (["minus"], 12), (["equals_sign", "left"], 16)])
async def test_plus_and_minus_step(keys: list[str], result: int) -> None:
    async with on_screen(FakeBox()) as pilot:
        await press_until(pilot, lambda: value(pilot, BATCH) == result, *keys)
        assert notes(pilot) == ""


async def test_a_value_is_edited_in_place() -> None:
    async with on_screen(FakeBox()) as pilot:
        panel, typed = app_of(pilot).main.query_one(SettingsPanel), app_of(pilot).main.query_one(ValueInput)
        await pilot.press("enter")
        assert typed.value == "16"
        await pilot.press("backspace", "escape")
        assert value(pilot, BATCH) == 16
        assert not typed.has_class("-shown")
        await pilot.press("enter", "backspace", "backspace", "3", "2", "enter")
        await until(pilot, lambda: value(pilot, BATCH) == 32)
        assert str(panel.border_title).startswith("1 Settings · llama-1b-sft changed")
        assert panel.border_subtitle == "effective batch 256 = 32 × 4 × 2 GPUs"
        assert app_of(pilot).main.focused is panel.list
        await pilot.press("enter", "backspace", "backspace", "4", "down")
        await until(pilot, lambda: value(pilot, BATCH) == 4)
        assert cursor_on(pilot) == "gradient_accumulation_steps"
        await pilot.press("enter", "5", "alt+4")  # who goes elsewhere gives up the edit
        await until(pilot, lambda: not typed.has_class("-shown"))
        assert value(pilot, "gradient_accumulation_steps") == 4
        assert app_of(pilot).main.page == "output"


async def test_the_title_has_whole_parts_and_follows_the_size() -> None:
    async with on_screen(FakeBox(), (200, 40)) as pilot:
        panel = app_of(pilot).main.query_one(SettingsPanel)
        while len(panel.list.rows) <= panel.list.size.height:
            await pilot.press("down")
            if (row := panel.list.row) is not None and row.label.startswith("▸"):
                await pilot.press("enter")
        await until(pilot, lambda: str(panel.border_title).endswith(" below"))
        for width in (160, 120, 100, 200):
            await pilot.resize_terminal(width, 40)
            await until(pilot, lambda: len(str(panel.border_title)) <= panel.outer_size.width - AROUND_TITLE)
            assert re.fullmatch(r"llama-1b-sft|\d+ below", str(panel.border_title).split(" · ")[-1])
        await until(pilot, lambda: str(panel.border_title).endswith(" below"))


async def test_an_error_is_shown_the_moment_it_is_one_and_is_not_taken() -> None:
    async with on_screen(FakeBox()) as pilot:
        await pilot.press("enter", "backspace", "backspace", "0")
        help_text = app_of(pilot).main.query_one("#field-help", RowsPanel)
        await until(pilot, lambda: help_text.values[0].tone == "error")
        assert app_of(pilot).main.query_one(ValueInput).has_class("-wrong")
        await pilot.press("enter")
        assert app_of(pilot).main.query_one(ValueInput).has_class("-shown")
        await press_until(pilot, lambda: help_text.values[0].tone != "error", "backspace", "8")
        await press_until(pilot, lambda: value(pilot, BATCH) == 8, "enter")


async def test_tab_edits_one_number_after_another() -> None:
    async with on_screen(FakeBox(), (80, 24)) as pilot:
        await pilot.press("1", "enter", *"32", "tab", *"2", "tab")
        await until(pilot, lambda: (value(pilot, BATCH), value(pilot, "gradient_accumulation_steps")) == (32, 2))
        assert cursor_on(pilot) == "precision"
        assert not app_of(pilot).main.query_one(ValueInput).has_class("-shown"), "it has a list of its own"


async def test_slash_finds_a_field_to_switch_or_empty() -> None:
    async with on_screen(FakeBox()) as pilot:
        await press_until(pilot, lambda: value(pilot, "torch_compile"), "slash", *"compile", "enter", "space")
        await press_until(pilot, lambda: not value(pilot, "torch_compile"), "enter")
        await pilot.press("slash", *"prefetch", "enter", "backspace")
        await until(pilot, lambda: value(pilot, "dataloader_prefetch_factor") is None)
        await pilot.press("slash", *"seed", "enter", "delete")
        assert value(pilot, "seed") == 42, "it may not be empty"
        await pilot.press("slash", *"learn")
        assert cursor_on(pilot) == "learning_rate"
        await pilot.press("z")
        assert app_of(pilot).main.query_one(ValueInput).has_class("-wrong")
        await pilot.press("escape")
        assert app_of(pilot).main.focused is app_of(pilot).main.query_one(SettingsPanel).list


async def test_a_click_moves_the_cursor_and_a_second_one_edits() -> None:
    async with on_screen(FakeBox()) as pilot:
        panel = app_of(pilot).main.query_one(SettingsPanel)
        await pilot.click(panel.list, offset=(5, 1))
        assert cursor_on(pilot) == "gradient_accumulation_steps"
        await pilot.click(panel.list, offset=(5, 1))
        await until(pilot, lambda: app_of(pilot).main.query_one(ValueInput).has_class("-shown"))


@pytest.mark.parametrize("box", [FakeBox, failed_box])
async def test_the_five_knobs_are_visible_together_on_a_small_terminal(box: Callable[[], FakeBox]) -> None:
    async with on_screen(box(), (80, 24)) as pilot:
        await pilot.press("alt+1")
        seen = screen_text(pilot.app)
        for label in ("micro batch", "accumulation", "precision", "workers", "prefetch"):
            assert f" {label} " in seen


async def test_a_large_terminal_shows_all_fields_and_a_smaller_one_those_that_are_set() -> None:
    async with on_screen(FakeBox(opened=opened(learning_rate=1e-3)), (200, 60)) as pilot:
        for height, shown in ((60, {*FIELDS}), (52, {*KNOBS, "learning_rate"})):
            await pilot.resize_terminal(200, height)
            form = app_of(pilot).main.query_one(SettingsPanel).list
            await until(pilot, lambda: {row.name for row in form.rows if row.name} == shown)  # noqa: B023


async def burst(pilot: ScreenPilot, *keys: str) -> None:
    """Send keys without waiting between them, as a terminal does with what was typed while it was busy."""
    for key in keys:
        pilot.app.post_message(events.Key(key, key if len(key) == 1 else "\r" if key == "enter" else None))
    await pilot.pause()


async def test_a_burst_of_keys_opens_edits_and_finds_in_the_order_typed() -> None:
    """Enter selects the value, so that what is typed replaces it."""
    async with on_screen(FakeBox()) as pilot:
        await burst(pilot, "enter", *"24", "enter", "down", "enter", "7", "enter")
        await until(pilot, lambda: value(pilot, "gradient_accumulation_steps") == 7)
        assert value(pilot, BATCH) == 24
        await burst(pilot, "slash", *"learn", "enter", "enter", *"3e-4", "enter")
        await until(pilot, lambda: value(pilot, "learning_rate") == 3e-4)


async def test_what_is_not_known_of_a_command_takes_one_line_a_group_until_it_is_opened() -> None:
    command = CommandJob(command=("python", "train.py"))
    async with on_screen(FakeBox(opened=replace(opened(None), job=command)), size=(200, 60)) as pilot:
        form = app_of(pilot).main.query_one(SettingsList)
        await until(pilot, lambda: any(row.origin.endswith("unknown") for row in form.rows if row.name is None))
        assert [row.name for row in form.rows if row.name and row.value == "–"] == list(KNOBS)
        group = next(at for at, row in enumerate(form.rows) if row.name is None)
        await press_until(pilot, lambda: form.rows[form.cursor].name is None, *["down"] * group)
        await press_until(pilot, lambda: form.rows[group].label.startswith("▾"), "right")
        assert form.rows[group + 1].value == "–"
        await press_until(pilot, lambda: form.rows[group].label.startswith("▸"), "left")
