"""Helpers for tests that drive the screen."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from textual._compositor import LayoutUpdate
from textual.app import App
from textual.pilot import Pilot
from textual.widgets import Static

from tests.fakes.ui_backend import FakeBox, PausedApp
from tuner_tui.ui.app import TunerApp
from tuner_tui.ui.panels.settings import SettingsList

PATIENCE_S = 30.0
SIZE = (120, 40)
ScreenPilot = Pilot[None]


def app_of(pilot: ScreenPilot) -> TunerApp:
    """The app under test."""
    assert isinstance(pilot.app, TunerApp)
    return pilot.app


async def until(pilot: ScreenPilot, condition: Callable[[], object]) -> None:
    """Run the app until `condition` holds, and render a frame; fail if it does not within `PATIENCE_S`."""
    ends = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < ends, "the condition was never met"
        await pilot.pause()
    await pilot.pause()
    if isinstance(pilot.app, PausedApp):
        pilot.app.render_frame()


async def press_until(pilot: ScreenPilot, condition: Callable[[], object], *keys: str) -> None:
    """Press `keys`, and run the app until `condition` holds."""
    await pilot.press(*keys)
    await until(pilot, condition)


async def press_to(pilot: ScreenPilot, title: str, *keys: str) -> None:
    """Press `keys`, and run the app until the dialog `title` is shown and filled; no dialog where it is empty.

    A key for a dialog that is still being filled may have to be pressed again.
    """
    await press_until(pilot, lambda: dialog(pilot) == title and not is_being_filled(pilot), *keys)


def settled(pilot: ScreenPilot, box: FakeBox) -> Callable[[], bool]:
    """Return a function that says whether everything about the box is shown."""
    main = app_of(pilot).main

    def is_settled() -> bool:
        settings = None not in (main.settings_view, *main.machine, main.outlook)
        run = box.view is None or (main.view is not None and main.log_window is not None)
        causes = {finding.cause for finding in main.findings}  # a sentence may name the run
        diagnosed = causes.issuperset(finding.cause for finding in (box.findings if box.view else ()))
        return settings and run and main.sample is not None and diagnosed

    return is_settled


@asynccontextmanager
async def on_screen(box: FakeBox, size: tuple[int, int] = SIZE, **options: Any) -> AsyncIterator[ScreenPilot]:
    """Run the app over `box` and wait until everything is shown."""
    app = box.app(**options)
    app.error_timeout_s = app.note_timeout_s = 3600.0  # read on a busy machine, too
    async with app.run_test(size=size) as pilot:
        await until(pilot, settled(pilot, box))
        yield pilot


def value(pilot: ScreenPilot, name: str) -> Any:
    """Return the current value of the setting `name`."""
    editing = app_of(pilot).session.state.editing
    assert editing is not None
    return getattr(editing.current.settings, name)


def cursor_on(pilot: ScreenPilot) -> str | None:
    """Return the field under the cursor of the settings form."""
    row = app_of(pilot).main.query_one(SettingsList).row
    return None if row is None else row.name


def dialog(pilot: ScreenPilot) -> str:
    """Return the title of the dialog on top; empty if there is none."""
    boxes = pilot.app.screen.query("#dialog")
    return str(boxes.first().border_title) if boxes else ""


def is_being_filled(pilot: ScreenPilot) -> bool:
    """Return whether the dialog on top says that it still reads what it is to show."""
    texts = pilot.app.screen.query("#dialog Static").results(Static)
    return any(str(text.content).startswith("Reading settings") for text in texts)


def notes(pilot: ScreenPilot) -> str:
    """Return all notifications shown, one per line."""
    return "\n".join(note.message for note in pilot.app._notifications)


def preset_shown(pilot: ScreenPilot) -> str:
    """Return the preset in the title of the settings, with a star if something was changed."""
    return str(app_of(pilot).main.query_one("#settings").border_title).split(" · ")[1]


def screen_text(app: App[None]) -> str:
    """Return the text of the screen, without trailing spaces."""
    update = app.screen._compositor.render_update(full=True, screen_stack=app._background_screens)
    assert isinstance(update, LayoutUpdate)
    return "\n".join("".join(strip.text for strip in strips).rstrip() for strips in update.strips)
