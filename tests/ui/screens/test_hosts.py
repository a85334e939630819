"""The page of several hosts: what it shows of each, and how it looks."""

from __future__ import annotations

from collections.abc import Callable
from queue import Queue

import pytest
from msgspec.structs import replace
from textual.pilot import Pilot

from tests.fakes.hosts import HOSTS
from tests.fakes.live_run import samples
from tests.ui.pilots import notes, press_to, press_until, screen_text, until
from tuner_tui.hosts import HostView
from tuner_tui.ui.screens.hosts import HostScreen, HostsScreen
from tuner_tui.ui.watch_app import WatchApp
from tuner_tui.view.cells import plain_text
from tuner_tui.view.hosts_rows import host_rows, hosts_rows
from tuner_tui.view.sample_history import WINDOWS

Compare = Callable[..., bool]


def hosts_app() -> WatchApp[HostsScreen]:
    return WatchApp(iter([HOSTS]), HostsScreen)


@pytest.mark.parametrize("width", [40, 80, 200])
def test_no_row_is_wider_than_its_place(width: int) -> None:
    for host in HOSTS:
        assert all(len(plain_text(row)) <= width for row in host_rows(host, width))


def test_each_host_has_its_load_gpus_and_runs_or_one_line() -> None:
    rows = {host.name: [plain_text(row) for row in host_rows(host, 120)] for host in HOSTS}
    text = "\n".join(rows["gpu1"])
    for words in (
        "8 × H100 80GB HBM3",
        "CPU 41 %",
        "RAM 212 GiB of 504 GiB",
        "power cap",
        " 7  ✗ lost 4 min",
        "r007 llama-1b-sft  ━━──────────────  1,240/9,000",
    ):
        assert words in text, words
    labels = next(row for row in rows["gpu1"] if row.split()[:1] == ["GPU"])
    assert {"busy", "memory", "power"} <= set(labels.split())
    assert "No NVIDIA driver" in "\n".join(rows["ann@lab.example.org"])
    assert rows["gpu6"] == ["gpu6                ssh: connect to host gpu6 port 22: No route to host"]
    assert rows["gpu7"] == ["gpu7                connecting …"]


def test_rows_that_are_left_show_the_sum_and_histories_in_columns_that_are_the_same() -> None:
    recent = {HOSTS[0].name: samples(90, gpus=8), HOSTS[1].name: samples(90, gpus=4)}
    rows = [plain_text(row).rstrip() for row in hosts_rows(HOSTS, recent, WINDOWS[0], None, 196, 58)]
    assert rows[0] == "12 GPUs   10 in use   1 free   1 lost   6.4 of 7.7 kW"
    assert len(rows) <= 58
    assert [row.count("GPU busy") for row in rows if "GPU busy" in row] == [1, 1], "a row for each GPU"
    low = [plain_text(row) for row in hosts_rows(HOSTS, recent, WINDOWS[0], None, 196, 20)]
    assert [row.count("GPU busy") for row in low if "GPU busy" in row] == [2, 2], "two columns in each"
    assert len({row.rfind("GPU busy") for row in low if "GPU busy" in row}) == 1
    assert len(low) < 30


@pytest.mark.parametrize("cursor", range(len(HOSTS)))
def test_the_host_under_the_cursor_has_a_mark(cursor: int) -> None:
    rows = [plain_text(row) for row in hosts_rows(HOSTS, {}, WINDOWS[0], cursor, 80)]
    assert [row.split()[1] for row in rows if row.startswith("▸ ")] == [HOSTS[cursor].name]
    assert all(len(row) <= 80 for row in rows)


async def test_keys_move_the_cursor_show_help_and_quit() -> None:
    app = hosts_app()
    async with app.run_test(size=(80, 16)) as pilot:
        await until(pilot, lambda: "3 of 5 answer" in screen_text(app))
        assert "▸ gpu1" in screen_text(app)
        assert "gpu7" not in screen_text(app)
        await press_until(pilot, lambda: "▸ gpu2" in screen_text(app), "down")
        await until(pilot, lambda: " 3  ─" in screen_text(app).split("▸ gpu2")[1])
        await press_until(pilot, lambda: "▸ gpu7" in screen_text(app), "end")
        await press_to(pilot, "Help", "home", "question_mark")
        await press_until(pilot, lambda: not app.is_running, "escape", "q")
    assert app.return_code == 0


async def test_enter_shows_the_host_under_the_cursor_with_its_jobs_until_escape() -> None:
    told = Queue[tuple[HostView, ...]]()
    told.put(HOSTS)
    app = WatchApp(iter(told.get, ()), HostsScreen)
    async with app.run_test(size=(120, 40)) as pilot:
        await until(pilot, lambda: "3 of 5 answer" in screen_text(app))
        await press_until(pilot, lambda: isinstance(app.screen, HostScreen), "enter")
        await until(pilot, lambda: "Jobs" in screen_text(app) and "8123" in screen_text(app))
        assert HOSTS[0].machine is not None
        job = HOSTS[0].machine.jobs[0]
        later = replace(HOSTS[0], machine=replace(HOSTS[0].machine, jobs=(replace(job, user="zoe"),)))
        told.put((later, *HOSTS[1:]))
        await until(pilot, lambda: "zoe" in screen_text(app))
        told.put((replace(later, machine=None), *HOSTS[1:]))
        await press_until(pilot, lambda: app.screen is app.watch_screen, "escape")
        await until(pilot, lambda: "2 of 5 answer" in screen_text(app))
        await press_until(pilot, lambda: "it has not answered" in notes(pilot), "enter")
        told.put(())


@pytest.mark.parametrize("size", [(80, 24), (120, 40)], ids=["80x24", "120x40"])
def test_the_page(snap_compare: Compare, size: tuple[int, int]) -> None:
    app = hosts_app()

    async def before(pilot: Pilot[None]) -> None:
        await until(pilot, lambda: "gpu2" in screen_text(app))

    assert snap_compare(app, terminal_size=size, run_before=before)
