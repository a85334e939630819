"""Random keys, pastes, clicks and sizes for the screens, by a seed."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path

from textual import events
from textual.app import App
from textual.pilot import Pilot
from textual.widget import Widget
from textual.widgets import Input

from tests.fakes.ui_backend import FakeBox, busy_box, failed_box
from tests.fakes.watched_box import FakeWatch, view
from tests.faults.machines import AnyMachine
from tests.ui.pilots import PATIENCE_S, app_of, on_screen, screen_text, until
from tuner_tui.runs.read.reader import RunRow
from tuner_tui.ui.keys import KEYS
from tuner_tui.ui.screens.watch import WatchScreen
from tuner_tui.ui.watch_app import WatchApp, machine_views

BOUND = tuple(
    sorted({key for table in ("main", "page", "settings", "tune", "watch jobs", "watch rows") for binding in KEYS[table]
            for key in binding.key.split(",")} - {"ctrl+c"})
)  # fmt: skip
MOVES = (
    "ctrl+p", "pageup", "pagedown", "up", "down", "left", "right", "home", "end", "ctrl+home", "ctrl+end", "shift+home",
    "shift+end", "enter", "escape", "tab", "shift+tab", "space", "backspace", "delete", "ctrl+a", "ctrl+k", "ctrl+u",
    "ctrl+w", "ctrl+left", "ctrl+right", "ctrl+z", "ctrl+d", "f1", "f2", "f12", "insert", "ctrl+@",
)  # fmt: skip
TYPED = ("0", "1", "9", "-", ".", "e", "x", "ß", "中", "é", "[", "]", "{", "%", "\\", "'", '"', "𝟘")
PASTES = ("", "64", "1e400", "[red]", "\x1b[31m", "a" * 5000, "ＬＯＲＡ\u202e", "\n\n", "--set=1")
SIZES = ((120, 40), (80, 24), (20, 5), (1, 1), (300, 90), (200, 3))
LEAST_WIDTH = 40
"""Of a screen on which each widget has its place."""
MAX_TOASTS = 12
"""Notes that a screen may show at once, however many keys were refused."""


def boxes() -> dict[str, Callable[[], FakeBox]]:
    """Machines for the main screen."""
    runs = [RunRow(f"r{n:03d}", "completed", "Completed.", f"/runs/r{n:03d}", title="train") for n in range(30)]
    return {"busy": lambda: busy_box(runs=runs), "failed": failed_box, "idle": FakeBox}


def apps() -> dict[str, Callable[[], App[None]]]:
    """The screens over machines of their own."""

    return {
        "busy": lambda: boxes()["busy"]().app(),
        "failed": lambda: boxes()["failed"]().app(ascii_only=True),
        "watch": lambda: WatchApp(machine_views(lambda: FakeWatch(view())), lambda: WatchScreen(False, "box42")),
    }


async def result_of(box: FakeBox, keys: Sequence[str], slowly: bool) -> list[str]:
    """What `keys` lead to, each typed once the screen answered the one before, or all at once."""
    async with on_screen(box) as pilot:
        app = app_of(pilot)
        app.answer_limit_s = PATIENCE_S  # on a busy machine an answer that nothing holds up may take seconds
        for key in keys:
            app.simulate_key(key)
            if slowly:
                await _all_handled(pilot)
        await _all_handled(pilot)
        # A screen that has just come gets its focus a moment later.
        await until(pilot, lambda: app._exit or app.focused is not None or not app.screen.focus_chain)
        done = [box.orders, sorted(box.saved), len(box.launched), box.restarted, box.compared_runs]
        if app._exit:
            return ["left", *map(repr, done)]
        screens = [f"{type(screen).__name__} {getattr(screen, 'heading', '')}" for screen in app.screen_stack]
        editing = app.session.state.editing
        settings = None if editing is None else editing.current.settings
        return [*screens, f"page {app.main.page}", f"focus {app.focused!r}", repr(settings), *map(repr, done)]


async def _all_handled(pilot: Pilot[None]) -> None:
    """Wait until the app has taken every key and done what they ask for."""
    app = app_of(pilot)
    taken = asyncio.Event()
    app.call_later(taken.set)
    await until(pilot, lambda: app._exit or taken.is_set())  # the first key makes the queue
    assert app._input is not None
    joined = asyncio.ensure_future(app._input.join())
    await until(pilot, lambda: app._exit or joined.done())
    joined.cancel()


async def press_random_keys(app: App[None], seed: int, count: int) -> None:
    """Press keys as fast as they are taken, with pauses now and then; raises what the app fails with.

    A key that leaves the program ends it early.
    """
    chosen = random.Random(seed)
    async with app.run_test(size=SIZES[0]) as pilot:
        await pilot.pause()
        async for _ in acted(app, pilot, chosen, count):
            assert len(app._notifications) <= MAX_TOASTS, [note.message for note in app._notifications]


async def acted(app: App[None], pilot: Pilot[None], chosen: random.Random, count: int) -> AsyncIterator[None]:
    """Act `count` times, until the program is left, and yield when it has had time to answer now and then."""
    for _ in range(count):
        if not app.is_running or app._exit:
            return
        await act(app, pilot, chosen)
        if chosen.random() < 0.2:
            await pilot.pause()
            yield


async def act(app: App[None], pilot: Pilot[None], chosen: random.Random) -> None:
    """One key, paste, click or change of the size."""
    kind = chosen.random()
    if kind < 0.90:
        app.simulate_key(chosen.choice(chosen.choice((BOUND, MOVES, MOVES, TYPED))))
    elif kind < 0.94:
        app.post_message(events.Paste(chosen.choice(PASTES)))
    elif kind < 0.99:
        x, y = chosen.randrange(app.size.width), chosen.randrange(app.size.height)
        for event in (events.MouseMove, events.MouseDown, events.MouseUp):
            app.post_message(event(None, x, y, 0, 0, 1, False, False, False, x, y))
    else:
        await pilot.resize_terminal(*chosen.choice(SIZES))


async def use_any_machine(seed: int, root: Path, count: int) -> None:
    """Press random keys on the screen of a machine in any state, look at it, close what is open, and leave."""
    app, chosen = AnyMachine(seed, root).app(), random.Random(seed)
    async with app.run_test(size=chosen.choice((*SIZES, (40, 12), (109, 40), (115, 30), (250, 70)))) as pilot:
        await until(pilot, lambda: app.main.settings_view is not None and screen_text(app).strip())
        async for _ in acted(app, pilot, chosen, count):
            look(app)
        if not app.is_running or app._exit:
            return
        await _all_handled(pilot)
        await _leave(app, pilot)


async def _leave(app: App[None], pilot: Pilot[None]) -> None:
    """Close one dialog after the other, each with `escape`, twice where one first ends typing; then leave with `q`."""
    while not app._exit and (len(app.screen_stack) > 1 or isinstance(app.focused, Input)):
        before = len(app.screen_stack)
        for _ in range(2):
            if not app._exit and len(app.screen_stack) >= before:
                app.simulate_key("escape")
                await _all_handled(pilot)
        look(app)
        assert app._exit or len(app.screen_stack) < max(before, 2), f"esc does not close {app.screen}"
    if not app._exit:
        app.simulate_key("q")
        await until(pilot, lambda: app._exit)


def look(app: App[None]) -> None:
    """Draw the whole screen; everything on it must be within its place."""
    if app._exit or not app.screen_stack or app.screen._compositor.size != app.size:
        return
    screen_text(app)
    for widget in app.screen.query("*") if app.size.width >= LEAST_WIDTH else ():
        outer = widget.parent
        if widget.display and widget.region and isinstance(outer, Widget) and not outer.allow_horizontal_scroll:
            inside = outer.region.x <= widget.region.x and widget.region.right <= outer.region.right
            assert inside, f"{widget} in {widget.region} is wider than {outer} in {outer.region}"
