"""Pages, footer, help, palette, themes: the screen around the panels."""

from __future__ import annotations

from typing import Any

import pytest
from textual.binding import Binding
from textual.widgets import OptionList

from tests.fakes.ui_backend import FakeBox, busy_box, failed_box
from tests.ui.pilots import app_of, cursor_on, dialog, on_screen, screen_text, until
from tuner_tui.ui.keys import COMPARE_KEYS, EDIT_KEYS, MAIN_KEYS, PAGE_KEYS, SETTINGS_KEYS, TROUBLES_KEYS, TUNE_KEYS
from tuner_tui.ui.panels.bars import KeyFooter, PageTabs
from tuner_tui.ui.panels.layout import PAGES
from tuner_tui.ui.panels.output import OUTPUT_KEYS
from tuner_tui.ui.screens.help import GLOSSARY, help_groups

ALL_KEYS = (*MAIN_KEYS, *PAGE_KEYS, *SETTINGS_KEYS, *TROUBLES_KEYS, *EDIT_KEYS, *OUTPUT_KEYS, *COMPARE_KEYS, *TUNE_KEYS)


@pytest.mark.parametrize("key", ALL_KEYS, ids=lambda key: key.id)
def test_every_key_has_an_id_a_tooltip_and_a_group(key: Binding) -> None:
    assert key.id
    assert key.tooltip
    assert key.group is not None


def test_no_two_keys_share_an_id() -> None:
    ids = [key.id for key in ALL_KEYS]
    assert len(set(ids)) == len(ids)


def test_help_names_every_key_of_the_main_screen() -> None:
    tips = [tip for _, rows in help_groups([*MAIN_KEYS, *PAGE_KEYS]) for _, tip in rows]
    assert all(key.tooltip in tips for key in (*MAIN_KEYS, *PAGE_KEYS))
    assert any(word == "effective batch" for word, _ in GLOSSARY)


async def test_numbers_go_to_the_panels() -> None:
    async with on_screen(busy_box(), size=(80, 24)) as pilot:
        main = app_of(pilot).main
        for number, page in enumerate(PAGES, start=1):
            await pilot.press(f"alt+{number}")
            assert main.page == page
            assert main.query_one(f"#{page}").display
            assert main.query_one(PageTabs).shown == page


async def test_plain_numbers_go_to_the_panels_from_anywhere_but_the_form() -> None:
    async with on_screen(busy_box(), size=(80, 24)) as pilot:
        await pilot.press("alt+2", "4")
        assert app_of(pilot).main.page == "output"


async def test_tab_goes_round() -> None:
    async with on_screen(FakeBox(), size=(80, 24)) as pilot:
        await pilot.press(*["tab"] * len(PAGES))
        assert app_of(pilot).main.page == "settings"
        assert cursor_on(pilot) is not None
        await pilot.press("shift+tab")
        assert app_of(pilot).main.page == PAGES[-1]


async def test_a_click_on_the_strip_shows_the_page() -> None:
    async with on_screen(busy_box(), size=(80, 24)) as pilot:
        await pilot.click(PageTabs, offset=(16, 0))
        assert app_of(pilot).main.page == "live"


async def test_the_strip_counts_the_troubles() -> None:
    async with on_screen(failed_box(), size=(80, 24)) as pilot:
        assert app_of(pilot).main.query_one(PageTabs).trouble == (1, "failed")


async def test_the_footer_shows_what_can_be_done() -> None:
    async with on_screen(FakeBox()) as pilot:
        line = app_of(pilot).main.query_one(KeyFooter)
        text = line.render().plain
        assert "t Train" in text
        assert "Stop" not in text
        assert text.rstrip().endswith("? Help")
        await pilot.press("enter")
        await until(pilot, lambda: "enter Accept" in line.render().plain)
        assert "Train" not in line.render().plain


async def test_the_footer_of_a_running_training_stops_and_saves() -> None:
    async with on_screen(busy_box()) as pilot:
        text = app_of(pilot).main.query_one(KeyFooter).render().plain
        assert "s Stop" in text
        assert "c Checkpoint" in text
        assert "a Apply" in text
        assert "Train" not in text


async def test_a_click_on_the_footer_does_what_the_key_does() -> None:
    async with on_screen(FakeBox()) as pilot:
        await pilot.click(KeyFooter, offset=(115, 0))
        await until(pilot, lambda: dialog(pilot) == "Help")


async def test_help_opens_and_closes() -> None:
    async with on_screen(FakeBox()) as pilot:
        await pilot.press("question_mark")
        await until(pilot, lambda: dialog(pilot) == "Help")
        await pilot.press("q")
        await until(pilot, lambda: dialog(pilot) == "")
        await pilot.press("f1")
        await until(pilot, lambda: dialog(pilot) == "Help")


async def test_the_palette_does_what_the_keys_do() -> None:
    box = FakeBox()
    async with on_screen(box) as pilot:
        await pilot.press("ctrl+p")
        await pilot.press(*"train")
        await until(pilot, lambda: pilot.app.screen.query_one(OptionList).option_count < 4)
        await pilot.press("enter")
        await until(pilot, lambda: box.launched)


async def test_the_theme_goes_from_dark_to_light_and_back() -> None:
    async with on_screen(FakeBox()) as pilot:
        await pilot.press("T")
        await until(pilot, lambda: pilot.app.theme == "tuner-light")
        await pilot.press("T")
        await until(pilot, lambda: pilot.app.theme == "tuner-dark")


async def test_without_colour_there_is_no_theme_to_change() -> None:
    async with on_screen(FakeBox(), colour=False) as pilot:
        await pilot.press("T")
        assert pilot.app.theme == "tuner-plain"


async def test_slash_searches_the_output_from_elsewhere() -> None:
    async with on_screen(busy_box()) as pilot:
        await pilot.press("alt+2", "slash")
        assert app_of(pilot).main.page == "output"


async def test_no_size_is_refused() -> None:
    sizes = [(1, 1), (20, 5), (118, 31), (400, 120)]
    async with on_screen(failed_box(), size=sizes[0]) as pilot:
        for size in sizes:
            await pilot.resize_terminal(*size)
            pages = range(1, 8) if size == (20, 5) else (5,)
            await pilot.press(*(f"alt+{number}" for number in pages), "w", "escape")
        await pilot.resize_terminal(120, 40)
        assert app_of(pilot).main.query_one("#settings").display


@pytest.mark.parametrize("options", [{"ascii_only": True}, {"colour": False}, {"theme": "light"}])
async def test_no_look_is_refused(options: dict[str, Any]) -> None:
    async with on_screen(busy_box(), **options) as pilot:
        await pilot.press("d", "escape", "enter", "escape", "p", "escape")
        assert dialog(pilot) == ""


async def test_ascii_means_ascii() -> None:
    async with on_screen(busy_box(), ascii_only=True) as pilot:
        assert screen_text(pilot.app).isascii()


async def test_the_screen_goes_on_under_a_dialog() -> None:
    async with on_screen(FakeBox()) as pilot:
        await pilot.press("p")
        await until(pilot, lambda: dialog(pilot) == "Presets")
        app_of(pilot).main.findings = failed_box().findings
        await until(pilot, lambda: "The GPU ran out of memory" in screen_text(pilot.app))
        await pilot.press("escape")
        await until(pilot, lambda: dialog(pilot) == "")
        assert "The GPU ran out of memory" in screen_text(pilot.app)
