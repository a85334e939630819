"""The hosts page: what it shows of each host, where the cursor goes, what enter opens, and how it looks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from textual.pilot import Pilot

from tests.fakes.hosts import HOSTS, FakeHosts
from tests.ui.pilots import dialog, screen_text, until
from tuner_tui.hosts.host_state import HostView
from tuner_tui.ui.hosts_app import HostsApp
from tuner_tui.ui.screens.hosts import HostPlace, hosts_rows, places_of
from tuner_tui.view.cells import plain_text

Compare = Callable[..., bool]


def app_over(hosts: FakeHosts, **options: Any) -> HostsApp:
    return HostsApp(hosts, hosts.open, **options)


def text_of(views: tuple[HostView, ...], width: int = 120, height: int = 100, at: HostPlace | None = None) -> str:
    return "\n".join(plain_text(row.line) for row in hosts_rows(views, at, width, height))


def test_each_host_has_its_cards_runs_and_troubles() -> None:
    text = text_of(HOSTS)
    for words in (
        "0 of 8 GPUs free", "4 of 4 GPUs free", "r007 llama-1b-sft", "1,240/9,000", "GPU 0–3", "r006", "out-of-memory",
        "25 min ago", "bob", "python finetune.py", "GPU 7: lost", "2 h 00 min ahead", "pip install", "40 s old",
        "never answered", "No route to host", "connecting",
    ):  # fmt: skip
        assert words in text, words


def test_a_small_terminal_shows_the_cards_of_the_chosen_host_only() -> None:
    text = text_of(HOSTS, 80, 34, HostPlace("gpu2"))
    assert "busy, memory" in text
    assert sum("━" in line for line in text.splitlines()) == 4
    assert all(len(line) <= 80 for line in text.splitlines())
    assert "━" not in text_of(HOSTS, 80, 22, HostPlace("gpu2"))
    assert len(text_of(HOSTS, 80, 22).splitlines()) == 22


@pytest.mark.parametrize("width", [20, 40, 80, 200])
def test_the_row_under_the_cursor_is_always_shown(width: int) -> None:
    for place in places_of(HOSTS):
        text = text_of(HOSTS, width, 12, place)
        assert any("▸" in line for line in text.splitlines()), place


def test_a_run_with_a_strange_name_cannot_be_opened() -> None:
    report = HOSTS[0].report
    assert report is not None
    bad = replace(report, ended=tuple(replace(run, run="r1; reboot") for run in report.ended), jobs=())
    assert places_of([replace(HOSTS[0], report=bad)]) == [HostPlace("gpu1")]


async def test_enter_opens_what_is_under_the_cursor() -> None:
    hosts = FakeHosts()
    app = app_over(hosts)
    async with app.run_test(size=(120, 40)) as pilot:
        await until(pilot, lambda: "gpu7" in screen_text(app))
        assert "3 of 7 hosts answer" in screen_text(app)
        await pilot.press("enter", "down", "enter", "end", "enter", "home", "r")
        await until(pilot, lambda: hosts.asked.count("retry") == 4)
    assert [asked for asked in hosts.asked if asked.startswith("open")] == [
        "open gpu1 None", "open gpu1 r007", "open gpu7 None",
    ]  # fmt: skip
    assert hosts.asked[0] == "start"


async def test_the_cursor_stays_with_its_host_when_its_run_is_gone() -> None:
    hosts = FakeHosts()
    app = app_over(hosts)
    async with app.run_test(size=(120, 40)) as pilot:
        await until(pilot, lambda: "r007" in screen_text(app))
        await pilot.press("down")
        hosts.views = tuple(replace(view, report=None) if view.name == "gpu1" else view for view in HOSTS)
        await until(pilot, lambda: "r007" not in screen_text(app))
        await pilot.press("enter")
        await until(pilot, lambda: "open gpu1 None" in hosts.asked)


async def test_keys_and_glossary_are_one_key_away() -> None:
    app = app_over(FakeHosts())
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.press("question_mark")
        await until(pilot, lambda: dialog(pilot) == "Help")
        await pilot.press("escape", "q")
    assert app.return_code == 0


def hosts_snapshot(compare: Compare, size: tuple[int, int], *keys: str, **options: Any) -> None:
    app = app_over(FakeHosts(), **options)

    async def before(pilot: Pilot[None]) -> None:
        await until(pilot, lambda: "gpu2" in screen_text(app))
        await pilot.press(*keys)

    assert compare(app, terminal_size=size, run_before=before)


@pytest.mark.parametrize("size", [(80, 24), (120, 40)], ids=["80x24", "120x40"])
def test_the_page(snap_compare: Compare, size: tuple[int, int]) -> None:
    hosts_snapshot(snap_compare, size, "down")


def test_the_page_in_ascii_without_colour(snap_compare: Compare) -> None:
    hosts_snapshot(snap_compare, (120, 40), colour=False, ascii_only=True)
