"""Comparing two runs on the screen: which two, what is said of them, and how it looks."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.fakes.run_pairs import two_jobs, two_runs
from tests.fakes.ui_backend import FakeBox, busy_box
from tests.runs.builders import record
from tests.ui.pilots import ScreenPilot, app_of, dialog, on_screen, screen_text, settled, until
from tuner_tui.runs.events.types import Finished
from tuner_tui.runs.read.reader import RunRow
from tuner_tui.runs.store.codec import encode_event
from tuner_tui.runs.store.folder import create_folder
from tuner_tui.runs.store.record import write_record
from tuner_tui.ui.backend.facade import Backend, CliOverrides
from tuner_tui.ui.backend.records import ComparedRuns
from tuner_tui.ui.drawing.cells import line_width, plain_text
from tuner_tui.ui.drawing.charts import two_curves
from tuner_tui.ui.screens.compare import CompareScreen, compare_rows, headline

Compare = Callable[..., bool]
RUNS = [RunRow(f"r{n:03d}", "completed", "Completed.", f"/runs/r{n:03d}") for n in (8, 7, 6)]


def texts(shown: ComparedRuns, width: int) -> list[str]:
    return [plain_text(row.line).rstrip() for row in compare_rows(shown, width)]


def on_compare(pilot: ScreenPilot) -> bool:
    screen = pilot.app.screen
    return isinstance(screen, CompareScreen) and screen.compared is not None


async def test_v_compares_the_followed_run_with_the_one_picked() -> None:
    box = busy_box(runs=RUNS)
    async with on_screen(box) as pilot:
        await pilot.press("v")
        await until(pilot, lambda: dialog(pilot) == "Compare r007 with")
        await pilot.press("j", "enter")
        await until(pilot, lambda: on_compare(pilot))
        await until(pilot, lambda: "tokens ×" in screen_text(pilot.app))
        assert box.compared_runs == [("r007", "r006")]
        await pilot.press("escape")
        await until(pilot, lambda: pilot.app.screen is app_of(pilot).main)
        assert app_of(pilot).state.folder == Path("/runs/r007")


async def test_without_a_followed_run_both_are_asked_for() -> None:
    box = FakeBox(runs=RUNS)
    async with on_screen(box) as pilot:
        await pilot.press("v")
        await until(pilot, lambda: dialog(pilot) == "Compare")
        await pilot.press("enter")
        await until(pilot, lambda: dialog(pilot) == "Compare r008 with")
        await pilot.press("enter")
        await until(pilot, lambda: on_compare(pilot))
        assert box.compared_runs == [("r008", "r007")]


def test_the_headline_says_what_came_of_the_later_run() -> None:
    assert headline(two_runs()) == "tokens ×1.68 · peak memory ×1.28 · loss after 12,800 samples -0.0289"


def test_settings_stand_beside_figures_where_there_is_room() -> None:
    wide = texts(two_runs(), 140)
    row = next(line for line in wide if line.startswith("Set"))
    assert "Measured" in row
    batch = next(line for line in wide if line.startswith("micro batch"))
    assert batch.split()[2:4] == ["16", "32"]
    narrow = texts(two_runs(), 76)
    assert not any("Settings" in line and "Measured" in line for line in narrow)
    assert set(map(str.strip, narrow)) >= {"Settings", "Measured"} or len(narrow) > len(wide)


def test_different_jobs_are_warned_of_and_no_losses_draw_nothing() -> None:
    shown = texts(two_jobs(), 120)
    assert any("different jobs" in line for line in shown)
    assert any(line.startswith("Settings: identical") for line in shown)
    assert not any("loss over samples" in line for line in shown)


@pytest.mark.parametrize("width", [30, 40, 76, 111, 112, 140, 196])
def test_no_row_outgrows_its_place(width: int) -> None:
    for shown in (two_runs(), two_jobs(), two_runs()._replace(names=("r" * 30, "s" * 30))):
        rows = compare_rows(shown, width)
        tables = next(n for n, row in enumerate(rows) if plain_text(row.line).startswith("Set"))
        assert all(line_width(row.line) <= max(width, len("Settings: identical")) for row in rows[tables:])


def test_two_curves_are_told_apart_without_colour() -> None:
    flat, low = [(float(x), 2.0) for x in range(50)], [(float(x), 1.0) for x in range(50)]
    rows = [plain_text(row.line) for row in two_curves("loss", ("a", "b"), (flat, low), 60, 8)]
    assert len(rows) == 8
    assert "⠁⠁⠁⠁" in rows[1]
    assert "⣀⣀⣀⣀" in rows[6]


def test_one_run_without_losses_leaves_the_other_curve() -> None:
    curve = [(float(x), 2.0 - x / 50) for x in range(50)]
    assert len(two_curves("loss", ("a", "b"), ((), curve), 60, 8)) == 8
    assert two_curves("loss", ("a", "b"), ((), ()), 60, 8) == []


@pytest.mark.parametrize("size", [(80, 24), (120, 40), (200, 60)], ids=["80x24", "120x40", "200x60"])
def test_it_looks(snap_compare: Compare, size: tuple[int, int]) -> None:
    box = busy_box(runs=RUNS)

    async def before(pilot: ScreenPilot) -> None:
        await until(pilot, settled(pilot, box))
        await pilot.press("v")
        await until(pilot, lambda: dialog(pilot) == "Compare r007 with")
        await pilot.press("enter")
        await until(pilot, lambda: on_compare(pilot))

    assert snap_compare(box.app(), terminal_size=size, run_before=before)


def test_the_older_run_comes_first_with_a_plain_status(tmp_path: Path) -> None:
    for number, (created_t, ending) in enumerate(((2.0, "Completed."), (1.0, "Out of memory: tried 2 GiB."))):
        folder = create_folder(tmp_path)
        write_record(folder, record(id=folder.id, created_t=created_t, memory_limit_bytes=3 * 2**30 * number or None))
        folder.events.write_bytes(encode_event(Finished(t=3.0, outcome="out-of-memory", sentence=ending)))
    compared = next(Backend(CliOverrides()).compare_runs(tmp_path / "r001", tmp_path / "r002"))
    assert compared.names == ("r002", "r001")
    assert compared.statuses == ("Out of memory; the limit was 3.0 GiB.", "Completed.")
