"""The twelve tasks of a user, each done by keys alone; the keys are counted.

`TASKS` are the tasks with their keys. What is typed (a command, a name) is not a key of the task.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.fakes.ui_backend import FakeBox, busy_box, failed_box, opened
from tests.ui.pilots import ScreenPilot, app_of, dialog, on_screen, preset_shown, said, screen_text, until, value
from tests.ui.test_comparison_requests import RUNS
from tuner_tui.settings.job import CommandJob
from tuner_tui.ui.panels.settings import FieldHelp
from tuner_tui.ui.screens.compare import CompareScreen
from tuner_tui.ui.screens.tune import TuneScreen

MOST_KEYS = 6
BATCH, WORKERS = "per_device_train_batch_size", "dataloader_num_workers"


@dataclass(frozen=True)
class Task:
    """What a user wants, and the keys that do it."""

    what: str
    keys: tuple[str, ...]


TRAIN = Task("train the demo", ("t",))
CHANGE = Task("change batch, precision and workers", ("plus", "down", "down", "plus", "down", "plus"))
RELOAD = Task("load the preset again", ("p", "enter"))
OWN_SCRIPT = Task("train with a script of one's own, after the demo", ("e", "right", "enter", "t", "enter"))
FIX = Task("out of memory: apply the remedy, then undo it", ("a", "u"))
STARVED = Task("find the loader that starves the training", ("w",))
REATTACH = Task("go back to the run of yesterday", ("r", "down", "enter"))
COMPARE = Task("compare two runs", ("v", "enter"))
TUNE = Task("tune the settings", ("o", "enter"))
WATCH = Task("watch the machine: GPUs, host and output", ("2", "4"))
MEANING = Task("find out what a setting means", ("slash", "enter"))
STOP = Task("stop with a checkpoint", ("s", "y"))
TASKS = (TRAIN, CHANGE, RELOAD, OWN_SCRIPT, FIX, STARVED, REATTACH, COMPARE, TUNE, WATCH, MEANING, STOP)


@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.what)
def test_no_task_takes_more_than_six_keys(task: Task) -> None:
    assert len(task.keys) <= MOST_KEYS


async def press(pilot: ScreenPilot, task: Task, title: str = "") -> None:
    """Press the keys of `task`; wait after the first one until the dialog `title` is open, if it opens one."""
    first, *others = task.keys
    await pilot.press(first)
    if title:
        await until(pilot, lambda: dialog(pilot) == title)
    await pilot.press(*others)


async def test_training_the_demo() -> None:
    box = FakeBox(opened=opened("demo"))
    async with on_screen(box) as pilot:
        await press(pilot, TRAIN)
        await until(pilot, lambda: app_of(pilot).main.run_name == "r001")
        assert box.launched[0].preset == "demo"


@pytest.mark.parametrize("size", [(80, 24), (120, 40)])
async def test_changing_batch_precision_and_workers(size: tuple[int, int]) -> None:
    async with on_screen(FakeBox(), size) as pilot:
        await press(pilot, CHANGE)
        await until(pilot, lambda: value(pilot, WORKERS) == 9)
        assert value(pilot, BATCH) == 24
        assert value(pilot, "precision") != "bf16"


async def test_loading_the_preset_again() -> None:
    async with on_screen(FakeBox()) as pilot:
        await press(pilot, RELOAD, "Presets")
        await until(pilot, lambda: preset_shown(pilot) == "cpu")


async def test_training_with_a_script_of_ones_own() -> None:
    box = FakeBox(opened=opened("demo"))
    async with on_screen(box) as pilot:
        edit, command, accept, train, start = OWN_SCRIPT.keys
        await pilot.press(edit)
        await until(pilot, lambda: dialog(pilot) == "Job")
        await pilot.press(command)
        await until(pilot, lambda: pilot.app.focused is not None and pilot.app.focused.id == "job-command")
        await pilot.press(*"python", "space", *"sft.py")
        await pilot.press(accept)
        await until(pilot, lambda: dialog(pilot) == "")
        await pilot.press(train)
        await until(pilot, lambda: dialog(pilot) == "Train")
        await pilot.press(start)
        await until(pilot, lambda: len(box.launched) == 1)
        job = box.launched[0].job
        assert isinstance(job, CommandJob)
        assert job.command == ("python", "sft.py")


async def test_out_of_memory_to_the_remedy_and_back() -> None:
    async with on_screen(failed_box()) as pilot:
        assert "The GPU ran out of memory" in screen_text(pilot.app)
        apply, undo = FIX.keys
        await pilot.press(apply)
        await until(pilot, lambda: (value(pilot, BATCH), value(pilot, "gradient_accumulation_steps")) == (8, 8))
        assert "Applied. t tries it; u undoes it." in said(pilot)
        await pilot.press(undo)
        await until(pilot, lambda: (value(pilot, BATCH), value(pilot, "gradient_accumulation_steps")) == (16, 4))


async def test_finding_the_loader_that_starves_the_training() -> None:
    async with on_screen(busy_box(), (80, 24)) as pilot:
        assert "The GPU waits for data for 31 % of each step" in screen_text(pilot.app)
        await press(pilot, STARVED, "Why")
        assert "1 of 8 workers is busy, the others are idle" in screen_text(pilot.app)


async def test_going_back_to_a_run() -> None:
    async with on_screen(FakeBox(runs=RUNS)) as pilot:
        await press(pilot, REATTACH, "Runs")
        await until(pilot, lambda: app_of(pilot).session.state.folder == Path("/runs/r007"))


async def test_comparing_two_runs() -> None:
    box = busy_box(runs=RUNS)
    async with on_screen(box) as pilot:
        await press(pilot, COMPARE, "Compare r007 with")
        await until(pilot, lambda: isinstance(pilot.app.screen, CompareScreen))
        assert box.compared_runs == [("r007", "r008")]


async def test_tuning() -> None:
    box = FakeBox()
    async with on_screen(box) as pilot:
        await press(pilot, TUNE, "Tune")
        await until(pilot, lambda: isinstance(pilot.app.screen, TuneScreen))
        assert box.tuner.asked == [("start", "llama-1b-sft")]


async def test_watching_the_machine() -> None:
    async with on_screen(busy_box(), (80, 24)) as pilot:
        live, output = WATCH.keys
        await pilot.press(live)
        await until(pilot, lambda: "61/80 GiB" in screen_text(pilot.app) and "RAM" in screen_text(pilot.app))
        await pilot.press(output)
        await until(pilot, lambda: "learning_rate" in screen_text(pilot.app))


async def test_finding_out_what_a_setting_means() -> None:
    async with on_screen(FakeBox(), (80, 24)) as pilot:
        search, accept = MEANING.keys
        await pilot.press(search, *"warmup", accept)
        shown = app_of(pilot).main.query_one(FieldHelp)
        await until(pilot, lambda: shown.shown.facts.startswith("warmup_steps"))
        assert shown.shown.sentence


async def test_stopping_with_a_checkpoint() -> None:
    box = busy_box()
    async with on_screen(box) as pilot:
        await pilot.press(STOP.keys[0])
        await until(pilot, lambda: dialog(pilot) == "Stop")
        assert "saves a checkpoint" in screen_text(pilot.app)
        await pilot.press(STOP.keys[1])
        await until(pilot, lambda: box.orders == [("r007", "stop")])
