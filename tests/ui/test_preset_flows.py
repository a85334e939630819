"""Presets: load, save, save as; nothing is lost or replaced without a yes."""

from __future__ import annotations

from dataclasses import replace

from tests.ui.fakes import FakeBox, opened
from tests.ui.pilots import dialog, on_screen, preset_shown, said, until, value
from tuner_tui.ui.services import Opened, ServiceError

BATCH = "per_device_train_batch_size"


async def test_a_preset_is_loaded_and_the_broken_one_cannot_be_picked() -> None:
    async with on_screen(FakeBox()) as pilot:
        await pilot.press("p")
        await until(pilot, lambda: dialog(pilot) == "Presets")
        await pilot.press("enter")
        await until(pilot, lambda: value(pilot, BATCH) == 2)
        assert preset_shown(pilot) == "cpu"


async def test_loading_over_changes_asks_first() -> None:
    async with on_screen(FakeBox()) as pilot:
        await pilot.press("plus", "p")
        await until(pilot, lambda: dialog(pilot) == "Presets")
        await pilot.press("enter")
        await until(pilot, lambda: dialog(pilot) == "Load")
        await pilot.press("n")
        await until(pilot, lambda: dialog(pilot) == "")
        assert value(pilot, BATCH) == 24


async def test_a_preset_that_cannot_be_loaded_says_why() -> None:
    box = FakeBox()

    def broken(name: str) -> Opened:
        raise ServiceError("cpu.yaml line 3: unknown key 'batch'")

    async with on_screen(box, services=replace(box.services(), load_preset=broken)) as pilot:
        await pilot.press("p")
        await until(pilot, lambda: dialog(pilot) == "Presets")
        await pilot.press("enter")
        await until(pilot, lambda: "line 3" in said(pilot))


async def test_save_writes_the_settings_and_the_mark_goes() -> None:
    box = FakeBox()
    async with on_screen(box) as pilot:
        await pilot.press("plus", "ctrl+s")
        await until(pilot, lambda: "llama-1b-sft" in box.saved)
        await until(pilot, lambda: preset_shown(pilot) == "llama-1b-sft")
        assert box.saved["llama-1b-sft"].resolved.settings.per_device_train_batch_size == 24


async def test_nothing_is_replaced_without_a_yes() -> None:
    box = FakeBox(saved={"llama-1b-sft": opened()})
    async with on_screen(box) as pilot:
        await pilot.press("plus", "ctrl+s")
        await until(pilot, lambda: dialog(pilot) == "Save")
        await pilot.press("n")
        await until(pilot, lambda: dialog(pilot) == "")
        assert box.saved["llama-1b-sft"].resolved.settings.per_device_train_batch_size == 8
        await pilot.press("ctrl+s")
        await until(pilot, lambda: dialog(pilot) == "Save")
        await pilot.press("y")
        await until(pilot, lambda: box.saved["llama-1b-sft"].resolved.settings.per_device_train_batch_size == 24)


async def test_save_as_asks_for_a_name() -> None:
    box = FakeBox()
    async with on_screen(box) as pilot:
        await pilot.press("S")
        await until(pilot, lambda: dialog(pilot) == "Save as")
        await pilot.press(*"-2", "enter")
        await until(pilot, lambda: "llama-1b-sft-2" in box.saved)
        await until(pilot, lambda: preset_shown(pilot) == "llama-1b-sft-2")


async def test_save_as_can_be_left() -> None:
    box = FakeBox()
    async with on_screen(box) as pilot:
        await pilot.press("S")
        await until(pilot, lambda: dialog(pilot) == "Save as")
        await pilot.press("escape")
        await until(pilot, lambda: dialog(pilot) == "")
        assert not box.saved


async def test_settings_without_a_name_are_saved_as() -> None:
    box = FakeBox(opened=opened(None))
    async with on_screen(box) as pilot:
        assert preset_shown(pilot) == "unsaved"
        await pilot.press("ctrl+s")
        await until(pilot, lambda: dialog(pilot) == "Save as")
