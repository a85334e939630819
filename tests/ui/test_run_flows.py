"""Train, stop, save, follow, leave."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from threading import Event
from typing import TypeVar

import pytest

from tests.ui import live_fakes
from tests.ui.fakes import INTERPRETER, FakeBox, FakeSampler, busy_box, ended, opened, running
from tests.ui.pilots import app_of, dialog, on_screen, said, until, value
from tuner_tui.hardware.inventory import Inventory
from tuner_tui.runs.events.types import FellBack
from tuner_tui.runs.read.reader import RunView
from tuner_tui.ui.messages import RunViewArrived
from tuner_tui.ui.services import RunLine, ServiceError

T = TypeVar("T")


async def test_one_key_trains_and_the_run_is_followed() -> None:
    box = FakeBox()
    async with on_screen(box) as pilot:
        await pilot.press("plus", "t")
        await until(pilot, lambda: app_of(pilot).main.view is not None)
        assert box.launched[0].resolved.settings.per_device_train_batch_size == 24
        assert app_of(pilot).state.folder == Path("/runs/r001")
        assert app_of(pilot).main.page == "settings"  # it is seen beside the settings
        assert "r001" in app_of(pilot).main.run_title


async def test_a_wish_to_train_waits_for_what_is_still_being_read_and_counts_once() -> None:
    box, read = FakeBox(), Event()

    def late() -> Inventory:
        read.wait()
        return box.inventory

    app = box.app(replace(box.services(), inventory=late))
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.press("t", "t")
        await until(pilot, lambda: "as soon as" in said(pilot))
        await until(pilot, lambda: app.main.settings_view is not None)
        assert not box.launched
        read.set()
        await until(pilot, lambda: app.main.view is not None)
        assert len(box.launched) == 1


async def test_a_run_that_is_opened_is_adopted_where_it_lost_its_supervisor() -> None:
    box = busy_box()
    async with on_screen(box) as pilot:
        await until(pilot, lambda: box.adopted == ["r007"])


async def test_a_launch_that_fails_says_why_and_follows_nothing() -> None:
    box = FakeBox(launch_error="There is no command 'trane'.")
    async with on_screen(box) as pilot:
        await pilot.press("t")
        await until(pilot, lambda: "no command 'trane'" in said(pilot))
        assert app_of(pilot).state.folder is None


async def test_wrong_settings_do_not_train() -> None:
    box = FakeBox(opened=opened(dataloader_prefetch_factor=4))
    async with on_screen(box) as pilot:
        await pilot.press("t")
        await until(pilot, lambda: said(pilot))
        assert not box.launched


async def test_no_second_training_beside_one_that_runs() -> None:
    box = busy_box()
    async with on_screen(box) as pilot:
        await pilot.press("t")
        await until(pilot, lambda: "training already" in said(pilot))
        assert not box.launched


@pytest.mark.parametrize(
    ("asked", "heading", "order"),
    [
        (None, "Stop", "stop"),
        ("stop", "Terminate", "terminate"),
        ("terminate", "Kill", "kill"),
        ("kill", "Kill", "kill"),
    ],
)
async def test_the_stop_ladder_asks_before_every_rung(asked: str | None, heading: str, order: str) -> None:
    box = busy_box(view=running(live_fakes.running(stop_requested=asked)))
    async with on_screen(box) as pilot:
        await pilot.press("s")
        await until(pilot, lambda: dialog(pilot) == heading)
        await pilot.press("enter")
        assert dialog(pilot) == heading
        await pilot.press("n")
        await until(pilot, lambda: dialog(pilot) == "")
        assert not box.orders
        await pilot.press("s")
        await until(pilot, lambda: dialog(pilot) == heading)
        await pilot.press("y")
        await until(pilot, lambda: box.orders == [("r007", order)])


async def test_nothing_to_stop_or_save_is_said() -> None:
    async with on_screen(FakeBox()) as pilot:
        await pilot.press("s", "c")
        await until(pilot, lambda: said(pilot).count("No training") == 2)


async def test_c_saves_a_checkpoint_and_goes_on() -> None:
    box = busy_box()
    async with on_screen(box) as pilot:
        await pilot.press("c")
        await until(pilot, lambda: box.orders == [("r007", "checkpoint")])
        await until(pilot, lambda: "checkpoint" in said(pilot))


async def test_a_run_that_falls_back_is_followed_into_the_next() -> None:
    box = busy_box()
    async with on_screen(box) as pilot:
        await until(pilot, lambda: app_of(pilot).main.view is not None)
        out = ended("out-of-memory", "Out of memory.")
        fell = FellBack(t=1.0, into="r008", number=1, most=3, sentence="micro batch 16 → 8; goes on as r008.")
        app_of(pilot).post_message(RunViewArrived(replace(out, state=replace(out.state, fell_back=fell))))
        await until(pilot, lambda: app_of(pilot).state.folder == Path("/runs/r008"))
        assert "Fallback 1 of 3. micro batch 16 → 8" in said(pilot)


async def test_a_run_that_fell_back_long_ago_is_shown_as_it_is() -> None:
    out = ended("out-of-memory", "Out of memory.")
    fell = FellBack(t=1.0, into="r008", number=1, most=3, sentence="micro batch 16 → 8; goes on as r008.")
    box = busy_box(view=replace(out, state=replace(out.state, fell_back=fell)))
    async with on_screen(box) as pilot:
        await pilot.press("6")
        await until(pilot, lambda: app_of(pilot).main.view is not None)
        assert app_of(pilot).state.folder == Path("/runs/r007")


async def test_another_run_is_followed_from_the_list() -> None:
    lines = [
        RunLine("r003", Path("/runs/r003"), "running"),
        RunLine("r002", Path("/runs/r002"), "failed", "It raised."),
    ]
    box = FakeBox(runs=lines)
    async with on_screen(box) as pilot:
        box.view = ended("failed", "It raised.")
        await pilot.press("r")
        await until(pilot, lambda: dialog(pilot) == "Runs")
        await pilot.press("j", "enter")
        await until(pilot, lambda: app_of(pilot).state.folder == Path("/runs/r002"))
        await until(pilot, lambda: app_of(pilot).main.run_title == "r002 · failed")


async def test_an_empty_list_of_runs_says_how_to_start_one() -> None:
    async with on_screen(FakeBox()) as pilot:
        await pilot.press("r")
        await until(pilot, lambda: dialog(pilot) == "Runs")
        await pilot.press("escape")
        await until(pilot, lambda: dialog(pilot) == "")


async def test_q_leaves_without_stopping_and_says_that_the_training_goes_on(
    capsys: pytest.CaptureFixture[str],
) -> None:
    box = busy_box()
    async with on_screen(box) as pilot:
        await pilot.press("q")
        await until(pilot, lambda: not pilot.app.is_running)
    assert not box.orders
    assert pilot.app.return_code == 0
    assert "r007 goes on training" in capsys.readouterr().err


async def test_a_run_that_cannot_be_read_any_more_is_said() -> None:
    box = busy_box()

    class Gone:
        def poll(self) -> RunView:
            raise OSError(5, "Input/output error")

    services = replace(box.services(), follow=lambda folder: Gone())
    app = box.app(services)
    async with app.run_test(size=(120, 40)) as pilot:
        await until(pilot, lambda: "cannot be read" in said(pilot))


async def test_a_hung_box_delays_no_key() -> None:
    hung = Event()
    box = FakeBox()

    def never(answer: T) -> Callable[..., T]:
        def wait(*_: object) -> T:
            hung.wait()
            return answer

        return wait

    services = replace(
        box.services(),
        inventory=never(box.inventory),
        open_sampler=never(FakeSampler(box.sample)),
        interpreter=never(INTERPRETER),
        runs=never(box.runs),
    )
    app = box.app(services)
    async with app.run_test(size=(120, 40)) as pilot:
        await until(pilot, lambda: app.main.settings_view is not None)
        await pilot.press("r", "plus")
        await until(pilot, lambda: value(pilot, "per_device_train_batch_size") == 24)
        await pilot.press("q")
        await until(pilot, lambda: not app.is_running)
    hung.set()


async def test_a_service_that_fails_at_the_start_leaves_a_usable_screen() -> None:
    box = FakeBox()

    def broken() -> Inventory:
        raise ServiceError("The inventory cannot be read.")

    app = box.app(replace(box.services(), inventory=broken))
    async with app.run_test(size=(120, 40)) as pilot:
        await until(pilot, lambda: "inventory cannot be read" in said(pilot))
        await until(pilot, lambda: app.main.settings_view is not None)
