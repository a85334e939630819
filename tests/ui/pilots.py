"""Helpers for tests that drive the screen."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from textual.pilot import Pilot

from tests.fakes.ui_backend import FakeBox
from tuner_tui.ui.app import TunerApp
from tuner_tui.ui.widgets.settings_list import SettingsList

PATIENCE_S = 60.0
SIZE = (120, 40)
ScreenPilot = Pilot[None]


def app_of(pilot: ScreenPilot) -> TunerApp:
    """The app under test."""
    assert isinstance(pilot.app, TunerApp)
    return pilot.app


async def until(pilot: ScreenPilot, condition: Callable[[], object]) -> None:
    """Let the app work until `condition` holds; fails where it never does."""
    ends = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < ends, "it never came to that"
        await pilot.pause()
    await pilot.pause()


def settled(pilot: ScreenPilot, box: FakeBox) -> Callable[[], bool]:
    """Whether everything the box has to tell stands on the screen."""
    app = app_of(pilot)
    main = app.main

    def all_told() -> bool:
        told = None not in (main.settings_view, main.inventory, main.interpreter, main.outlook)
        run = box.view is None or (main.view is not None and main.log_window is not None)
        return told and run and main.sample is not None and main.findings == (box.findings if box.view else ())

    return all_told


@asynccontextmanager
async def on_screen(box: FakeBox, size: tuple[int, int] = SIZE, **options: Any) -> AsyncIterator[ScreenPilot]:
    """The screen over `box`, once everything has arrived."""
    app = box.app(**options)
    async with app.run_test(size=size) as pilot:
        await until(pilot, settled(pilot, box))
        yield pilot


def value(pilot: ScreenPilot, name: str) -> Any:
    """The setting `name` as it is now."""
    editing = app_of(pilot).state.editing
    assert editing is not None
    return getattr(editing.current.settings, name)


def cursor_on(pilot: ScreenPilot) -> str | None:
    """The field under the cursor of the form."""
    row = app_of(pilot).main.query_one(SettingsList).row
    return None if row is None else row.name


def dialog(pilot: ScreenPilot) -> str:
    """The title of the dialog on top; empty where there is none."""
    boxes = pilot.app.screen.query("#dialog")
    return str(boxes.first().border_title) if boxes else ""


def said(pilot: ScreenPilot) -> str:
    """All notifications, one a line."""
    return "\n".join(note.message for note in pilot.app._notifications)


def preset_shown(pilot: ScreenPilot) -> str:
    """The preset in the title of the settings, with its star where something was changed."""
    return str(app_of(pilot).main.query_one("#settings").border_title).split(" · ")[1]
