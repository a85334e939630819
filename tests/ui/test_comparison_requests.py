"""Comparing two runs on the screen: which two, what is said of them, and how it looks."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from msgspec.structs import replace

from tests.fakes.ui_backend import FakeBox, busy_box
from tests.runs.builders import record
from tests.ui.pilots import ScreenPilot, app_of, on_screen, press_to, press_until, screen_text, settled, until
from tuner_tui.runs.events.types import Finished
from tuner_tui.runs.read.reader import RunRow
from tuner_tui.runs.store.codec import encode_event
from tuner_tui.runs.store.folder import create_folder
from tuner_tui.runs.store.record import write_record
from tuner_tui.ui.backend import Backend
from tuner_tui.ui.screens.compare import CompareScreen

Compare = Callable[..., bool]
RUNS = [RunRow(f"r{n:03d}", "completed", "Completed.", f"/runs/r{n:03d}") for n in (8, 7, 6)]


def on_compare(pilot: ScreenPilot) -> bool:
    screen = pilot.app.screen
    return isinstance(screen, CompareScreen) and screen.panel.values != (None,)


async def test_v_compares_the_followed_run_with_the_one_picked() -> None:
    box = busy_box(runs=RUNS)
    async with on_screen(box) as pilot:
        await press_to(pilot, "Compare r007 with", "v")
        await press_until(pilot, lambda: on_compare(pilot), "down", "enter")
        await until(pilot, lambda: "1.7× faster" in screen_text(pilot.app))
        assert box.compared_runs == [("r007", "r006")]
        await press_until(pilot, lambda: pilot.app.screen is app_of(pilot).main, "escape")
        assert app_of(pilot).session.state.folder == Path("/runs/r007")


async def test_the_first_run_offered_is_the_one_most_like_the_followed_run() -> None:
    fine, followed = ("python", "fine.py"), replace(RUNS[1], command=("python", "fine.py", "--steps", "9"), title="f 9")
    crashed = replace(RUNS[0], run="r009", path="/runs/r009", command=("python", "oom.py"), outcome="out-of-memory")
    trial = replace(RUNS[0], command=fine, tuning="t001", outcome="completed")
    similar = replace(RUNS[2], command=fine, outcome="completed")
    box = busy_box(runs=[crashed, trial, followed, similar])
    async with on_screen(box) as pilot:
        await press_to(pilot, "Compare r007 with", "v")
        text = screen_text(pilot.app)
        assert text.index("r006") < text.index("r008") < text.index("r009")


async def test_without_a_followed_run_both_are_asked_for() -> None:
    box = FakeBox(runs=RUNS)
    async with on_screen(box) as pilot:
        await press_to(pilot, "Compare", "v")
        await press_to(pilot, "Compare r008 with", "enter")
        await press_until(pilot, lambda: on_compare(pilot), "enter")
        assert box.compared_runs == [("r008", "r007")]


def test_it_looks(snap_compare: Compare) -> None:
    box = busy_box(runs=RUNS)

    async def before(pilot: ScreenPilot) -> None:
        await until(pilot, settled(pilot, box))
        await press_to(pilot, "Compare r007 with", "v")
        await press_until(pilot, lambda: on_compare(pilot), "enter")

    assert snap_compare(box.app(), terminal_size=(120, 40), run_before=before)


def test_the_older_run_comes_first_with_a_plain_status(tmp_path: Path) -> None:
    for number, (created_t, ending) in enumerate(((2.0, "Completed."), (1.0, "Out of memory: tried 2 GiB."))):
        folder = create_folder(tmp_path)
        write_record(folder, record(id=folder.id, created_t=created_t, memory_limit_bytes=3 * 2**30 * number or None))
        folder.events.write_bytes(encode_event(Finished(t=3.0, outcome="out-of-memory", sentence=ending)))
    compared = next(Backend().compare_runs(tmp_path / "r001", tmp_path / "r002"))
    assert compared.names == ("r002", "r001")
    assert compared.statuses == ("Out of memory; the limit was 3.0 GiB.", "Completed.")
