"""Every text of the program fits its place on a screen of 80 columns: nothing is cut but the user's own words."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
import typer
from typer.core import TyperGroup

from tests.fakes.ui_backend import FakeBox, busy_box, failed_box
from tests.ui.pilots import dialog, on_screen, press_to, screen_text, settled, until
from tuner_tui.cli.options import build_app
from tuner_tui.ui.keys import KEYS

SIZE = (80, 24)
CUT = re.compile(r"[\w,.)]…")
REMEDY = re.compile(r"[│┃] {3}[▸·] ")
DIALOGS = {"question_mark": "Help", "e": "Job", "p": "Presets", "r": "Runs", "o": "Tune", "S": "Save as"}


def cut_texts(screen: str) -> list[str]:
    """Lines with a word that was cut. The effect of a remedy may be: `w` shows the whole of it."""
    return [line.strip() for line in screen.splitlines() if CUT.search(line) and not REMEDY.match(line)]


@pytest.mark.parametrize("box", [FakeBox, busy_box, failed_box], ids=["fresh", "training", "failed"])
async def test_on_the_pages_of_a_small_screen(box: Callable[[], FakeBox]) -> None:
    made = box()
    async with on_screen(made, size=SIZE) as pilot:
        await until(pilot, settled(pilot, made))
        cut = []
        for page in range(1, 8):
            await pilot.press(f"alt+{page}")
            await pilot.pause()
            cut += cut_texts(screen_text(pilot.app))
        assert not cut


async def test_in_the_dialogs() -> None:
    made = FakeBox()
    async with on_screen(made, size=SIZE) as pilot:
        await until(pilot, settled(pilot, made))
        for key, title in DIALOGS.items():
            await pilot.press(key)
            await until(pilot, lambda: dialog(pilot) == title)  # noqa: B023
            await pilot.pause()
            assert not cut_texts(screen_text(pilot.app))
            await press_to(pilot, "", "escape")


def test_the_commands_in_the_help() -> None:
    root = typer.main.get_command(build_app())
    assert isinstance(root, TyperGroup)
    shown = root.get_help(typer.Context(root, info_name="tuner-tui", terminal_width=80, max_content_width=80))
    assert "..." not in shown.partition("Commands:")[2]


def test_the_explanation_of_a_key_is_one_line_of_the_help_screen() -> None:
    keys = (*KEYS["app"], *KEYS["main"], *KEYS["settings"], *KEYS["tune"])
    assert not [key.id for key in keys if len(key.tooltip) > 56]
