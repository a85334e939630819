"""The watch screen: its keys, what it shows of one job and of a machine without cards, and how it looks."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest
from textual.pilot import Pilot

from tests.fakes.watched_box import CARDS, JOBS, FakeWatch, cardless_view, view
from tests.ui.pilots import dialog, screen_text, until
from tuner_tui.runs.read.machine_monitor import MachineView
from tuner_tui.ui.drawing.cells import plain_text
from tuner_tui.ui.drawing.watch_rows import JobScene, job_places, job_rows, sorted_jobs
from tuner_tui.ui.screens.watch import jobs_by_gpu, training_cards
from tuner_tui.ui.watch_app import WatchApp

SIZE = (120, 40)
Compare = Callable[..., bool]


def app_over(shown: MachineView, pid: int | None = None, **options: Any) -> WatchApp:
    box = FakeWatch(shown)
    return WatchApp(lambda: box, pid, None if pid is None else "r007", heading="box42", **options)


@asynccontextmanager
async def watching(shown: MachineView, pid: int | None = None) -> AsyncIterator[tuple[WatchApp, Pilot[None]]]:
    app = app_over(shown, pid)
    async with app.run_test(size=SIZE) as pilot:
        await until(pilot, lambda: app.watch_screen.view is not None)
        yield app, pilot


async def test_cards_host_and_jobs_are_there() -> None:
    async with watching(view()) as (app, _):
        seen = screen_text(app)
    assert "GPUs · 8 × H100 80GB HBM3" in seen
    assert "box42" in seen
    assert "r007 llama-1b-sft  1,240/9,000  14 %" in seen
    assert "4+32+1" in seen
    assert "python finetune.py --config big.yaml" in seen
    assert "not visible from here" in seen
    assert "power cap" in seen
    assert "lost" in seen


async def test_enter_opens_a_job_and_closes_it() -> None:
    # The command stands at its GPU, at its job, and at the process of an open job.
    async with watching(view()) as (app, pilot):
        await pilot.press("down", "down", "enter")
        await until(pilot, lambda: screen_text(app).count("vllm.entrypoints") == 3)
        await pilot.press("enter")
        await until(pilot, lambda: screen_text(app).count("vllm.entrypoints") == 2)


async def test_a_opens_all_jobs_and_what_does_not_fit_leaves_a_sign() -> None:
    async with watching(view()) as (app, pilot):
        await pilot.press("a")
        await until(pilot, lambda: "more lines" in screen_text(app))
        await pilot.press("end")
        await until(pilot, lambda: "cpu_train.py" in screen_text(app))
        await pilot.press("a")
        await until(pilot, lambda: "more lines" not in screen_text(app))


async def test_s_sorts_by_the_next_column() -> None:
    async with watching(view()) as (app, pilot):
        first = app.watch_screen.jobs._order[0]
        await pilot.press("s", "s")
        await until(pilot, lambda: "▾CPU %" in screen_text(app))
        assert app.watch_screen.jobs._order[:2] != [first, first]
        cpu = {job.pid: job.cpu_pct or 0 for job in JOBS}
        order = app.watch_screen.jobs._order
        assert order == sorted(order, key=lambda pid: -cpu[pid])


async def test_help_and_quit() -> None:
    async with watching(view()) as (app, pilot):
        await pilot.press("question_mark")
        await until(pilot, lambda: dialog(pilot) == "Help")
        assert "SM %" in screen_text(app)
        await pilot.press("escape", "q")
        await until(pilot, lambda: not app.is_running)
    assert app.return_code == 0


async def test_one_job_shows_its_cards_and_processes_only() -> None:
    async with watching(view(JOBS[:1]), 4000) as (app, pilot):
        await until(pilot, lambda: screen_text(app).count("worker") == 32 or "more lines" in screen_text(app))
        seen = screen_text(app)
    assert "box42 · r007" in seen
    assert "power cap" not in seen


async def test_the_cursor_reaches_every_process_of_a_job() -> None:
    async with watching(view(JOBS[:1]), 4000) as (app, pilot):
        await until(pilot, lambda: "more lines" in screen_text(app))
        for process in JOBS[0].processes:
            await pilot.press("down")
            assert app.watch_screen.jobs.cursor == (JOBS[0].pid, process.pid)
            assert f" {process.pid} " in screen_text(app)
        await pilot.press("enter")
        assert "more lines" not in screen_text(app)


async def test_one_job_that_ends_says_so() -> None:
    box = FakeWatch(view(JOBS[:1]))
    app = WatchApp(lambda: box, 4000, "r007", heading="box42")
    async with app.run_test(size=SIZE) as pilot:
        await until(pilot, lambda: app.watch_screen.view is not None)
        box.shown = view(())
        await until(pilot, lambda: "The job has ended." in screen_text(app))


async def test_without_cards_the_reason_and_the_way_out() -> None:
    async with watching(cardless_view()) as (app, _):
        seen = screen_text(app)
    assert "No NVIDIA driver is installed" in seen
    assert "everything works on the CPU" in seen
    assert "cpu_train.py" in seen


async def test_a_box_that_cannot_be_watched_says_why() -> None:
    def broken() -> FakeWatch:
        raise PermissionError(13, "Permission denied", "/proc")

    app = WatchApp(broken, heading="box42")
    async with app.run_test(size=SIZE) as pilot:
        await until(pilot, lambda: any("Permission denied" in note.message for note in app._notifications))


@pytest.mark.parametrize(("size", "least"), [(SIZE, 1), ((200, 60), 4)])
async def test_rows_that_the_jobs_do_not_need_show_histories_of_the_cards(size: tuple[int, int], least: int) -> None:
    app = app_over(view())
    async with app.run_test(size=size) as pilot:
        await until(pilot, lambda: app.watch_screen.cards.detail.chart >= least)
        seen = screen_text(app)
        assert all(job.user in seen for job in JOBS if job.user), "all jobs have room"
        assert "charts: last" in seen
        await pilot.press("down", "enter")
        await until(pilot, lambda: app.watch_screen.cards.detail.chart < least)
        await pilot.press("enter")
        await until(pilot, lambda: app.watch_screen.cards.detail.chart >= least)


async def test_without_cards_the_rows_show_the_history_of_the_processor() -> None:
    async with watching(cardless_view()) as (app, pilot):
        await until(pilot, lambda: app.watch_screen.host.chart > 4)
        assert "CPU busy" in screen_text(app)
        assert "cpu_train.py" in screen_text(app)


@pytest.mark.parametrize("size", [(80, 24), SIZE, (200, 60)], ids=["80x24", "120x40", "200x60"])
def test_it_looks(snap_compare: Compare, size: tuple[int, int]) -> None:
    async def before(pilot: Pilot[None]) -> None:
        app = pilot.app
        assert isinstance(app, WatchApp)
        await until(pilot, lambda: app.watch_screen.view is not None)
        await pilot.press("down", "enter")
        await pilot.pause()

    assert snap_compare(app_over(view()), terminal_size=size, run_before=before)


@pytest.mark.parametrize("width", [40, 64, 80, 120, 200])
def test_no_row_is_wider_than_its_place(width: int) -> None:
    opened = frozenset(job.pid for job in JOBS)
    for row in job_rows(JobScene(JOBS, view().sample.time_s, opened=opened, cursor=(5000, None)), width, 200)[1:]:
        assert len(plain_text(row.line)) <= width, plain_text(row.line)


def test_the_cursor_is_always_in_sight() -> None:
    opened = frozenset(job.pid for job in JOBS)
    for place in job_places(JOBS, opened):
        rows = job_rows(JobScene(JOBS, 0.0, opened=opened, cursor=place), 120, 7)
        assert len(rows) == 7
        assert any(f" {place[1] or place[0]} " in plain_text(row.line) for row in rows)


def test_equal_jobs_keep_their_order_by_age() -> None:
    older = replace(JOBS[-1], pid=1, started_s=1.0)
    younger = replace(JOBS[-1], pid=2, started_s=2.0)
    assert [job.pid for job in sorted_jobs([younger, older], "memory")] == [1, 2]


def test_all_cards_of_the_fake_box_are_told_apart() -> None:
    assert [gpu.index for gpu in CARDS] == list(range(8))


def test_each_card_names_its_job() -> None:
    jobs = jobs_by_gpu(view())
    assert jobs[0] == "r007 llama-1b-sft"
    assert jobs[4].endswith("finetune.py --config big.yaml")
    assert training_cards(view()) == {0, 1, 2, 3}
