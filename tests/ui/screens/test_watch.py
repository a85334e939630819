"""The watch screen: its keys, what it shows of one job and of a machine without GPUs, and how it looks."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from msgspec.structs import replace
from textual.pilot import Pilot

from tests.fakes.watched_box import GPUS, JOBS, FakeWatch, gpuless_view, view
from tests.ui.pilots import press_to, press_until, screen_text, until
from tuner_tui.ui.screens.watch import WatchScreen
from tuner_tui.ui.watch_app import WatchApp, machine_views

SIZE = (120, 40)
Compare = Callable[..., bool]
Watching = tuple[WatchApp[WatchScreen], Pilot[None]]


@asynccontextmanager
async def watching(box: FakeWatch, pid: int | None = None) -> AsyncIterator[Watching]:
    heading = "box42" if pid is None else "box42 · r007"
    app = WatchApp(machine_views(lambda: box, pid), lambda: WatchScreen(pid is not None, heading))
    async with app.run_test(size=SIZE) as pilot:
        await until(pilot, lambda: app.watch_screen.view is not None)
        yield app, pilot


async def test_keys_open_sort_explain_and_leave() -> None:
    box = FakeWatch(view())
    async with watching(box) as (app, pilot):
        seen = screen_text(app)
        assert "GPUs · 8 × H100 80GB HBM3" in seen
        assert "box42" in seen
        # The command stands at its GPU, at its job, and at the process of an open job.
        await pilot.press("down", "down", "enter")
        await until(pilot, lambda: screen_text(app).count("vllm.entrypoints") == 3)
        await press_until(pilot, lambda: screen_text(app).count("vllm.entrypoints") == 2, "enter")
        await press_until(pilot, lambda: "more lines" in screen_text(app), "a")
        await press_until(pilot, lambda: "cpu_train.py" in screen_text(app), "end")
        await press_until(pilot, lambda: "▾CPU %" in screen_text(app), "a", "s", "s")
        load = {job.pid: job.cpu_pct or 0 for job in JOBS}
        assert app.watch_screen.jobs._order == sorted(load, key=lambda pid: -load[pid])
        await press_to(pilot, "Help", "question_mark")
        assert "busy " in screen_text(app)
        await press_until(pilot, lambda: not app.is_running, "escape", "q")
    assert app.return_code == 0


async def test_one_job_shows_its_processes_and_gpus_only_until_it_ends() -> None:
    box = FakeWatch(view(JOBS[:1]))
    async with watching(box, 4000) as (app, pilot):
        await until(pilot, lambda: "more lines" in screen_text(app))
        assert "box42 · r007" in screen_text(app)
        assert "power cap" not in screen_text(app)
        for process in JOBS[0].processes:
            await pilot.press("down")
            assert app.watch_screen.jobs.cursor == (JOBS[0].pid, process.pid)
            assert f" {process.pid} " in screen_text(app)
        box.shown = view(())
        await until(pilot, lambda: "The job has ended." in screen_text(app))


async def test_a_box_that_cannot_be_watched_says_why() -> None:
    def broken() -> FakeWatch:
        raise PermissionError(13, "Permission denied", "/proc")

    app = WatchApp(machine_views(broken), lambda: WatchScreen(False, "box42"))
    async with app.run_test(size=SIZE) as pilot:
        await until(pilot, lambda: any("Permission denied" in note.message for note in app._notifications))


async def test_the_title_has_the_sum_of_gpus_and_the_time_that_all_charts_show() -> None:
    async with watching(FakeWatch(view())) as (app, pilot):
        await until(pilot, lambda: " s · z 10 min" in screen_text(app))
        await pilot.resize_terminal(200, 60)
        await until(pilot, lambda: "6 busy, 1 idle, 1 lost · 3.8 of 4.9 kW" in screen_text(app))
        assert "dave ipykernel_launch" in screen_text(app)
        assert all(job.user in screen_text(app) for job in JOBS if job.user), "all jobs have room"
        await press_until(pilot, lambda: " s · z all" in screen_text(app), "z")
    async with watching(FakeWatch(gpuless_view())) as (app, pilot):
        await until(pilot, lambda: "z 10 min" in screen_text(app))
        assert "No NVIDIA driver is installed" in screen_text(app)


async def test_jobs_stay_on_the_screen_when_the_driver_answers_late() -> None:
    shown = view(gpus=GPUS[:2])
    box = FakeWatch(replace(shown, sample=replace(shown.sample, gpus=())))
    async with watching(box) as (app, pilot):
        await until(pilot, lambda: "asking the driver" in screen_text(app))
        box.shown = shown
        await until(pilot, lambda: "2 × H100" in screen_text(app))
        assert all(job.user in screen_text(app) for job in JOBS if job.user)


def test_it_looks(snap_compare: Compare) -> None:
    async def before(pilot: Pilot[None]) -> None:
        app = pilot.app
        assert isinstance(app, WatchApp)
        await until(pilot, lambda: app.watch_screen.view is not None)
        await pilot.press("down", "enter")
        await pilot.pause()

    box = FakeWatch(view())
    assert snap_compare(
        WatchApp(machine_views(lambda: box), lambda: WatchScreen(False, "box42")), terminal_size=SIZE, run_before=before
    )
