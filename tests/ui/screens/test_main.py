"""Pages, footer, help, palette, themes: the screen around the panels."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace
from textual.widgets import Input, OptionList

from tests.fakes.ui_backend import DATA_WAIT, FakeBox, busy_box, failed_box, opened
from tests.ui.pilots import (
    app_of,
    cursor_on,
    dialog,
    notes,
    on_screen,
    preset_shown,
    press_to,
    press_until,
    screen_text,
    settled,
    until,
)
from tuner_tui.advice.finding import FindingSeverity
from tuner_tui.runs.read.reader import RunRow
from tuner_tui.settings.job import CommandJob
from tuner_tui.ui.keys import GLOSSARIES, KEYS, key_label
from tuner_tui.ui.panels.arrangement import PAGES
from tuner_tui.ui.panels.bars import KeyFooter, PageTabs
from tuner_tui.ui.panels.troubleshooting import TroubleshootingPanel
from tuner_tui.ui.screens.help import help_groups, help_rows
from tuner_tui.ui.status_text import FIRST_KEYS
from tuner_tui.view.cells import plain_text

ALL_KEYS = [
    key
    for table in ("main", "page", "settings", "troubles", "remedy", "edit", "output", "compare", "tune")
    for key in KEYS[table]
]


def test_every_key_has_an_id_of_its_own_a_tooltip_and_a_group() -> None:
    assert all(key.id and key.tooltip and key.group is not None for key in ALL_KEYS)
    assert len({key.id for key in ALL_KEYS}) == len(ALL_KEYS)


def test_help_names_every_key_of_the_main_screen() -> None:
    groups = help_groups([*KEYS["main"], *KEYS["page"]])
    shown = [pair for _, pairs in groups for pair in pairs]
    assert all((key_label(key.key.split(",")[0]), key.description) in shown for key in (*KEYS["main"], *KEYS["page"]))
    assert any(word == "effective batch" for word, _ in GLOSSARIES["main"])


@pytest.mark.parametrize(("width", "height"), [(84, 32), (70, 40)])
def test_the_help_is_one_page_and_breaks_no_name_of_a_key(width: int, height: int) -> None:
    groups = help_groups(
        [key for table in ("main", "app", "page", "settings", "troubles", "remedy", "output") for key in KEYS[table]]
    )
    rows = [plain_text(row) for row in help_rows(groups, GLOSSARIES["main"], width)]
    assert len(rows) <= height
    assert all(len(row.rstrip()) <= width for row in rows)
    assert all(any(f"{key} {name}" in row for row in rows) for _, pairs in groups for key, name in pairs)


async def test_a_note_stands_above_the_keys_in_place_of_the_one_before() -> None:
    box, sentence = FakeBox(), "Starting llama-1b-sft on GPU 0 with the settings shown here"
    async with box.app().run_test(size=(80, 24), notifications=True) as pilot:
        await until(pilot, settled(pilot, box))
        app_of(pilot).show_note("Queueing …")
        await until(pilot, lambda: "Queueing …" in screen_text(pilot.app))
        app_of(pilot).show_note(sentence)
        await until(pilot, lambda: sentence in screen_text(pilot.app))
        *above, note, keys = screen_text(pilot.app).splitlines()
        assert note.strip("▌ ") == sentence
        assert "q Quit" in keys
        assert not any("Queueing" in row for row in above)


async def test_what_is_not_possible_now_stands_apart_in_the_help() -> None:
    async with on_screen(FakeBox()) as pilot:
        await press_to(pilot, "Help", "question_mark")
        row = next(row for row in screen_text(pilot.app).splitlines() if "Not possible now" in row)
        assert "s Stop" in row
        assert "t Train" not in row
        assert screen_text(pilot.app).count("s Stop") == 1


@pytest.mark.parametrize("words", ["gpus", "processes", "ddp"])
async def test_the_palette_finds_the_number_of_gpus(words: str) -> None:
    async with on_screen(FakeBox()) as pilot:
        await press_to(pilot, "Commands", "ctrl+p")
        await press_until(pilot, lambda: "GPUs (g)" in screen_text(pilot.app), *words)
        assert "nearest" not in screen_text(pilot.app)
        await press_until(pilot, lambda: "2 processes, one on each GPU" in screen_text(pilot.app), "enter")
        assert "2 processes, one on each GPU; effective batch 128 = 16 × 4 × 2 processes" in notes(pilot)
        await press_until(pilot, lambda: "1 process on 2 GPUs" in screen_text(pilot.app), "g")
        assert preset_shown(pilot) == "llama-1b-sft", "all is as before"


async def test_a_command_that_starts_its_processes_itself_gets_no_more_of_them() -> None:
    command = CommandJob(command=("torchrun", "--nproc-per-node=2", "train.py"))
    async with on_screen(FakeBox(opened=replace(opened(None), job=command))) as pilot:
        await press_until(pilot, lambda: "The command starts its processes itself" in notes(pilot), "g")


async def test_on_a_small_screen_the_glossary_is_scrolled_to() -> None:
    async with on_screen(FakeBox(), size=(80, 24)) as pilot:
        await press_to(pilot, "Help", "question_mark")
        assert "s Stop" in screen_text(pilot.app)
        await press_until(pilot, lambda: "closes only the screen" in screen_text(pilot.app), "end")
        await press_to(pilot, "", "question_mark")


async def test_a_key_that_does_nothing_says_what_may_be_meant() -> None:
    async with on_screen(FakeBox(), size=(80, 24)) as pilot:
        await press_until(pilot, lambda: "M does nothing here; m is Memory." in notes(pilot), "M")
    async with on_screen(FakeBox(), size=(80, 24)) as pilot:
        await press_until(pilot, lambda: "% does nothing here; ? shows all keys." in notes(pilot), "percent_sign")


async def test_without_a_run_the_screen_says_what_to_press_and_which_runs_there_are() -> None:
    async with on_screen(FakeBox()) as pilot:
        await until(pilot, lambda: all(text in screen_text(pilot.app) for _, text in FIRST_KEYS))
    ended = RunRow(
        "r002",
        "ended",
        "",
        "/runs/r002",
        outcome="out-of-memory",
        age_s=10800.0,
        title="train.py",
        created_t=1000.0,
        ended_t=4600.0,
    )
    live = RunRow(
        "r003", "running", "", "/runs/r003", pid=7, phase="training", step=14, total_steps=100, title="sft.py"
    )
    async with on_screen(FakeBox(runs=[live, ended])) as pilot:
        await until(pilot, lambda: screen_text(pilot.app).count("r003 sft.py: training, 14 %") == 2)
        await until(pilot, lambda: "r002 train.py: out of memory, 2.0 h ago" in screen_text(pilot.app))


@pytest.mark.parametrize(("severity", "mark"), [("failed", "●1"), ("warning", "●1"), ("hint", "○1")])
async def test_the_tab_of_troubleshooting_marks_the_worst_finding(severity: FindingSeverity, mark: str) -> None:
    box = busy_box(findings=(replace(DATA_WAIT, severity=severity),))
    async with on_screen(box, size=(80, 24)) as pilot:
        await until(pilot, lambda: f"3 Trouble {mark}" in screen_text(pilot.app))


async def test_numbers_tab_and_clicks_go_to_the_panels() -> None:
    async with on_screen(failed_box(), size=(80, 24)) as pilot:
        main = app_of(pilot).main
        assert main.query_one(PageTabs).trouble == (1, "failed")
        for number, page in enumerate(PAGES, start=1):
            await pilot.press(f"alt+{number}")
            assert main.page == page
            assert main.query_one(f"#{page}").display
            assert main.query_one(PageTabs).shown == page
        await pilot.press("4")
        assert main.page == "output"
        await pilot.press("alt+1", *["tab"] * len(PAGES))
        assert main.page == "settings"
        assert cursor_on(pilot) is not None
        await pilot.press("shift+tab")
        assert main.page == PAGES[-1]
        await pilot.press("alt+1", "2")  # in the form too
        assert main.page == "live"
        await pilot.press("slash")
        assert main.page == "output", "slash searches the output from elsewhere"
        await pilot.press("escape")
        await pilot.click(PageTabs, offset=(16, 0))
        assert main.page == "live"


async def test_slash_searches_the_settings_while_there_is_no_output() -> None:
    async with on_screen(FakeBox(), size=(80, 24)) as pilot:
        await pilot.press("alt+2", "slash")
        await until(pilot, lambda: "search a setting" in screen_text(pilot.app))
        await pilot.press(*"warm")
        assert app_of(pilot).main.page == "settings"
        assert isinstance(pilot.app.focused, Input)
        assert pilot.app.focused.value == "warm"


async def test_the_footer_shows_what_can_be_done_and_takes_clicks() -> None:
    async with on_screen(FakeBox()) as pilot:
        footer = app_of(pilot).main.query_one(KeyFooter)
        text = footer.render().plain
        assert "t Train" in text
        assert "Stop" not in text
        assert text.rstrip().endswith("? Help")
        await press_until(pilot, lambda: "enter Accept" in footer.render().plain, "enter")
        assert "Train" not in footer.render().plain
        await pilot.press("escape")
        await pilot.click(KeyFooter, offset=(115, 0))
        await until(pilot, lambda: dialog(pilot) == "Help")
        await press_to(pilot, "", "q")
        await press_to(pilot, "Help", "f1")
    async with on_screen(busy_box()) as pilot:
        text = app_of(pilot).main.query_one(KeyFooter).render().plain
        assert all(key in text for key in ("s Stop", "c Checkpoint", "a Apply"))
        panel = app_of(pilot).main.query_one(TroubleshootingPanel)
        panel.selected = 1  # its second remedy changes no setting
        await until(pilot, lambda: "Apply" not in app_of(pilot).main.query_one(KeyFooter).render().plain)
        assert "Train" not in text
        await pilot.press("3")
        await until(pilot, lambda: "enter Why" in app_of(pilot).main.query_one(KeyFooter).render().plain)
        await press_to(pilot, "Why", "enter")


async def test_the_palette_does_what_the_keys_do() -> None:
    box = FakeBox()
    async with on_screen(box) as pilot:
        await pilot.press("ctrl+p")
        await press_until(pilot, lambda: pilot.app.screen.query_one(OptionList).option_count < 6, *"train")
        await press_to(pilot, "Train", "enter")
        await press_until(pilot, lambda: box.launched, "enter")


async def test_the_palette_has_the_actions_of_every_panel() -> None:
    async with on_screen(busy_box()) as pilot:
        await press_to(pilot, "Help", "question_mark")
        await press_to(pilot, "Commands", "ctrl+p")
        options = pilot.app.screen.query_one(OptionList)
        assert options.option_count > len(KEYS["main"]) + len(KEYS["page"])
        texts = [str(option.prompt) for option in options.options]
        assert "Train (t)" not in " ".join(texts[: texts.index("Not possible now")]), "a run trains"
        assert texts.index("Not possible now") < next(at for at, text in enumerate(texts) if "Train (t)" in text)
        await press_until(pilot, lambda: pilot.app.screen.query_one(OptionList).option_count == 1, *"last line")
        await press_until(pilot, lambda: app_of(pilot).main.page == "output", "enter")


async def test_the_theme_goes_from_dark_to_light_and_back() -> None:
    async with on_screen(FakeBox()) as pilot:
        for theme in ("tuner-light", "tuner-dark"):
            await pilot.press("T")
            await until(pilot, lambda: pilot.app.theme == theme)  # noqa: B023


async def test_no_size_is_refused() -> None:
    sizes = [(1, 1), (20, 5), (118, 31), (400, 120)]
    async with on_screen(failed_box(), size=sizes[0]) as pilot:
        for size in sizes:
            await pilot.resize_terminal(*size)
            pages = range(1, 6) if size == (20, 5) else (5,)
            await pilot.press(*(f"alt+{number}" for number in pages), "w", "escape")
        await pilot.resize_terminal(120, 40)
        assert app_of(pilot).main.query_one("#settings").display


@pytest.mark.parametrize("options", [{"ascii_only": True}, {"colour": False}, {"theme": "light"}])
async def test_no_look_is_refused(options: dict[str, Any]) -> None:
    async with on_screen(busy_box(), **options) as pilot:
        await pilot.press("T", "d", "escape", "enter", "escape", "p", "escape")
        assert dialog(pilot) == ""
        assert screen_text(pilot.app).isascii() == ("ascii_only" in options)
        assert (pilot.app.theme == "tuner-plain") == ("colour" in options), "without colour there is no theme to change"


async def test_the_screen_goes_on_under_a_dialog() -> None:
    async with on_screen(FakeBox()) as pilot:
        await press_to(pilot, "Save as", "S")
        app_of(pilot).main.findings = failed_box().findings
        await until(pilot, lambda: "The GPU ran out of memory" in screen_text(pilot.app))
        await press_to(pilot, "", "escape")
        assert "The GPU ran out of memory" in screen_text(pilot.app)
