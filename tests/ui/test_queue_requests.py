"""The queue on the screen: why each run waits, and what its keys do."""

from __future__ import annotations

import time
from pathlib import Path

from tests.fakes.ui_backend import FakeBox, failed_box
from tests.ui.pilots import ScreenPilot, app_of, notes, on_screen, press_to, press_until, screen_text, until
from tuner_tui.runs.queue.listing import QueueLine
from tuner_tui.runs.read.reader import RunRow
from tuner_tui.ui.screens.pickers import queue_items


def some_lines(submitted_t: float) -> tuple[QueueLine, ...]:
    """A run in each state."""
    return (
        QueueLine(
            "r002", "/runs/r002", "waiting", "llama-1b-sft",
            "It needs 2 GPUs, 0 free. GPU 0: run r001; GPU 1: alice: python train.py --model llama-3.1-8b.",
            2, submitted_t,
        ),
        QueueLine(
            "r003", "/runs/r003", "waiting", "python eval.py", "It starts after run r002 has ended.", 1, submitted_t
        ),
        QueueLine(
            "r004", "/runs/r004", "was-waiting", "python tiny.py",
            "It was waiting when the machine was restarted; `tuner-tui queue --restart` queues it again.", 1,
        ),
        QueueLine("r005", "/runs/r005", "damaged", reason="/runs/r005/queue.json is damaged: not of this version."),
    )  # fmt: skip


async def open_queue(pilot: ScreenPilot) -> None:
    await press_to(pilot, "Queue", "Q")


def test_a_line_has_state_age_and_command() -> None:
    items = queue_items(some_lines(0.0), 750.0)
    assert [f"{item.label}  {item.about}" for item in items[1:3]] == [
        "r003  waiting      12 min  python eval.py",
        "r004  was-waiting          python tiny.py",
    ]


async def test_keys_remove_the_run_under_the_cursor_and_show_it() -> None:
    box = FakeBox(queue=some_lines(time.time() - 750))
    async with on_screen(box) as pilot:
        await open_queue(pilot)
        await press_until(pilot, lambda: "It starts after run r002 has ended." in screen_text(pilot.app), "down")
        await press_to(pilot, "Remove", "x")
        await press_to(pilot, "Queue", "y")
        assert box.orders == [("r003", "stop")]
        assert "r003" not in screen_text(pilot.app)
        await press_until(pilot, lambda: app_of(pilot).session.state.folder == Path("/runs/r002"), "enter")


async def test_the_training_shown_is_queued_after_a_look() -> None:
    box = FakeBox()
    async with on_screen(box) as pilot:
        await open_queue(pilot)
        assert box.queue_wakes == 2  # by the start of the screen and now
        await press_until(pilot, lambda: "1 of 2 GPUs" in screen_text(pilot.app), "a")
        await press_until(pilot, lambda: "r009  waiting" in screen_text(pilot.app), "enter")
        await until(pilot, lambda: "llama-1b-sft" in screen_text(pilot.app))


def other_run(name: str) -> RunRow:
    return RunRow(name, "running", "Running.", f"/runs/{name}", pid=300, phase="training", title="python sft.py")


async def test_a_training_is_queued_while_another_run_has_its_hardware() -> None:
    box = failed_box()
    async with on_screen(box) as pilot:
        box.runs, box.shortage = [other_run("r008")], "It needs 1 GPU, 0 free. GPU 0: run r008."
        await until(pilot, lambda: "r008 python sft.py: training · r: open it" in screen_text(pilot.app))
        await press_to(pilot, "Queue", "t")
        assert "GPU 0: run r008. This one can wait in the queue" in notes(pilot)
        await press_until(pilot, lambda: "Queued as r009" in notes(pilot), "enter")
        box.runs = [other_run("r009")]
        await until(pilot, lambda: app_of(pilot).session.state.folder == Path("/runs/r009"))


async def test_a_run_that_waited_is_not_shown_in_place_of_one_that_was_opened_since() -> None:
    box = failed_box(shortage="The CPU is taken by run r008.", runs=[other_run("r010")])
    async with on_screen(box) as pilot:
        await press_to(pilot, "Queue", "t")
        await press_until(pilot, lambda: "Queued as r009" in notes(pilot), "enter")
        await press_to(pilot, "Runs", "r")
        await press_until(pilot, lambda: app_of(pilot).session.state.folder == Path("/runs/r010"), "enter")
        box.runs = [other_run("r009")]
        await until(pilot, lambda: "r009 python sft.py: training · r: open it" in screen_text(pilot.app))
        assert app_of(pilot).session.state.folder == Path("/runs/r010")


async def test_a_remedy_is_not_trained_beside_a_run_that_has_the_hardware_unasked() -> None:
    box = failed_box(shortage="It needs 1 GPU, 0 free. GPU 0: run r008.")
    async with on_screen(box) as pilot:
        await press_to(pilot, "Train", "enter")
        assert "Another run trains now and has the hardware" in screen_text(pilot.app)
        await press_to(pilot, "", "escape")
        assert not box.retried
