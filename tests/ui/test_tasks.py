"""What users come for takes a few keys: each task from the keys pressed to what is then shown or done."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest
from msgspec.structs import replace

from tests.fakes.ui_backend import FakeBox, busy_box, ended, failed_box, listed, opened
from tests.ui.pilots import (
    ScreenPilot,
    app_of,
    dialog,
    notes,
    on_screen,
    preset_shown,
    press_until,
    screen_text,
    until,
    value,
)
from tests.ui.test_comparison_requests import RUNS
from tuner_tui.settings.job import CommandJob
from tuner_tui.ui.keys import KEYS
from tuner_tui.ui.panels.bars import KeyFooter
from tuner_tui.ui.panels.output import OutputPanel
from tuner_tui.ui.run_requests import RunRequests
from tuner_tui.ui.screens.compare import CompareScreen
from tuner_tui.ui.screens.tune import TuneScreen
from tuner_tui.ui.settings_requests import SettingsRequests
from tuner_tui.ui.tuning_requests import TuningRequests

MOST_KEYS = 6
BATCH, WORKERS = "per_device_train_batch_size", "dataloader_num_workers"


@dataclass(frozen=True)
class Task:
    """What a user wants, and the keys that do it: `=Job` waits for that dialog, `"text` is typed and not counted.

    `done` says whether the keys have done it.
    """

    purpose: str
    keys: str
    done: Callable[[ScreenPilot, FakeBox], object]
    box: Callable[[], FakeBox] = FakeBox
    size: tuple[int, int] = (120, 40)


def demo() -> FakeBox:
    return FakeBox(opened=opened("demo"))


def script() -> FakeBox:
    return FakeBox(opened=replace(opened(None), job=CommandJob(command=("python", "sft.py"))))


def processes(_: ScreenPilot, box: FakeBox) -> object:
    """Whether the training that was launched has two processes, started by torchrun."""
    return [(config.job.launcher, config.job.processes) for config in box.launched] == [("torchrun", 2)]


def launched(box: FakeBox) -> tuple[str | None, tuple[str, ...]]:
    """Preset and command of the training that was launched."""
    [config] = box.launched or [opened(None)]
    return config.preset, config.job.command if isinstance(config.job, CommandJob) else ()


def batch(pilot: ScreenPilot) -> tuple[int, int]:
    return value(pilot, BATCH), value(pilot, "gradient_accumulation_steps")


def changed(pilot: ScreenPilot, _: FakeBox) -> object:
    return value(pilot, WORKERS) == 9 and value(pilot, BATCH) == 24 and value(pilot, "precision") != "bf16"


def lost_box() -> FakeBox:
    """A machine where the run failed, and printed much after it."""
    lines = [
        "step 1",
        "Traceback (most recent call last):",
        "ValueError: 3 labels",
        *(f"saved part {n}" for n in range(99)),
    ]
    box = failed_box()
    box.output = tuple(lines)
    return box


def stopped() -> FakeBox:
    """A machine where a run was stopped."""
    return FakeBox(view=ended("stopped", "Stopped at step 1,240."))


def at_the_error(pilot: ScreenPilot, _: FakeBox) -> object:
    return "ValueError: 3 labels" in screen_text(pilot.app)


TASKS = (
    Task(
        "train the demo",
        "t =Train enter",
        lambda pilot, box: app_of(pilot).main.run_name and launched(box) == ("demo", ()),
        demo,
    ),
    Task("change batch, precision and workers", "plus down down plus down plus", changed),
    Task(
        "change batch and precision on a small screen",
        "1 plus down down plus",
        lambda pilot, box: value(pilot, BATCH) == 24 and value(pilot, "precision") != "bf16",
        size=(80, 24),
    ),
    Task("load the preset again", "p =Presets enter", lambda pilot, box: preset_shown(pilot) == "cpu"),
    Task(
        "train with a script of one's own, after the demo",
        'e =Job right =command "python_sft.py enter = t =Train enter',
        lambda pilot, box: launched(box) == (None, ("python", "sft.py")) and not box.launched[0].resolved.given,
        demo,
    ),
    Task(
        "type a command where the dialog opens",
        'e =Job "python_sft.py enter = t =Train enter',
        lambda pilot, box: launched(box) == (None, ("python", "sft.py")),
        demo,
        (80, 24),
    ),
    Task("out of memory: apply the remedy", "a", lambda pilot, box: batch(pilot) == (8, 8), failed_box),
    Task(
        "undo a remedy",
        "a u",
        lambda pilot, box: batch(pilot) == (16, 4) and "Applied. t tries it; u undoes it." in notes(pilot),
        failed_box,
    ),
    Task(
        "find the loader that starves the training",
        "w =Why",
        lambda pilot, box: "1 of 8 workers is busy, the others are idle" in screen_text(pilot.app),
        busy_box,
        (80, 24),
    ),
    Task(
        "go back to the run of yesterday",
        "r =Runs down enter",
        lambda pilot, box: app_of(pilot).main.run_name == "r007",
        lambda: FakeBox(runs=RUNS),
    ),
    Task(
        "compare two runs",
        "v =Compare_r007_with enter",
        lambda pilot, box: isinstance(pilot.app.screen, CompareScreen) and box.compared_runs == [("r007", "r008")],
        lambda: busy_box(runs=RUNS),
    ),
    Task("tune the settings", "o =Tune enter", lambda pilot, box: isinstance(pilot.app.screen, TuneScreen)),
    Task(
        "watch the machine",
        "2",
        lambda pilot, box: all(text in screen_text(pilot.app) for text in ("61/80 GiB", "RAM")),
        busy_box,
        (80, 24),
    ),
    Task(
        "see why it is slow, and go back to the live figures",
        "2 w =Why escape",
        lambda pilot, box: "RAM" in screen_text(pilot.app),
        busy_box,
        (80, 24),
    ),
    Task("watch the output", "4", lambda pilot, box: "learning_rate" in screen_text(pilot.app), busy_box, (80, 24)),
    Task(
        "find out what a setting means",
        '1 slash "warmup enter',
        lambda pilot, box: "warmup_steps" in screen_text(pilot.app),
        size=(80, 24),
    ),
    Task(
        "fit the batch",
        "f",
        lambda pilot, box: batch(pilot) == (16, 4) and "16 is the largest that fits and keeps it" in notes(pilot),
    ),
    Task(
        "fit the batch after a smaller one was tried",
        "minus f",
        lambda pilot, box: value(pilot, BATCH) > 8 and "the effective batch stays" in notes(pilot),
    ),
    Task(
        "start on 2 GPUs",
        "t =Train 2 enter",
        processes,
        demo,
    ),
    Task(
        "start on 2 GPUs by the key in the bar",
        "g t =Train enter",
        processes,
        demo,
    ),
    Task(
        "start a script of one's own on 2 GPUs",
        "t =Train 2 enter",
        processes,
        script,
    ),
    Task(
        "load the best preset for this GPU",
        "p =Presets enter",
        lambda pilot, box: preset_shown(pilot) == "large",
        lambda: FakeBox(presets=[listed("large", "For large GPUs", suits=True), listed("other", "For others")]),
    ),
    Task(
        "find an action by its name",
        'ctrl+p =Commands "memory enter',
        lambda pilot, box: dialog(pilot).startswith("Memory"),
    ),
    Task(
        "see what the machine can do",
        "i",
        lambda pilot, box: dialog(pilot).startswith("Machine"),
        busy_box,
        (80, 24),
    ),
    Task("open the log at the error", "E", at_the_error, lost_box, (80, 24)),
    Task("share the result", "x =Share enter", lambda pilot, box: box.reports == [("r007", "r007.html")], stopped),
    Task("resume", "R =Resume enter", lambda pilot, box: [name for name, _ in box.restarted] == ["r007"], stopped),
    Task("stop with a checkpoint", "s =Stop y", lambda pilot, box: box.orders == [("r007", "stop")], busy_box),
)


@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.purpose)
async def test_a_task_takes_few_keys(task: Task) -> None:
    words, box = task.keys.split(), task.box()
    assert sum(word[0] not in '="' for word in words) <= MOST_KEYS
    async with on_screen(box, task.size) as pilot:
        for word in words:
            text = word[1:].replace("_", " ")
            if word == "=command":
                await until(pilot, lambda: getattr(pilot.app.focused, "id", "") == "job-command")
            elif word.startswith("="):
                await until(pilot, lambda: dialog(pilot) == text)  # noqa: B023
            else:
                letters = ["space" if letter == " " else letter for letter in text]
                await pilot.press(*(letters if word.startswith('"') else [word]))
        await until(pilot, lambda: task.done(pilot, box))


async def test_escape_leads_back_to_the_result_and_the_key_row_says_so() -> None:
    async with on_screen(lost_box(), (80, 24)) as pilot:
        main = app_of(pilot).main
        keys = main.query_one(KeyFooter)
        await until(pilot, lambda: main.page == "troubles")
        await press_until(pilot, lambda: main.page == "output" and bool(keys.render().plain.startswith(" esc")), "E")
        await press_until(pilot, lambda: main.page == "live", "escape")
        await until(pilot, lambda: "esc Back" not in keys.render().plain)


async def test_a_run_that_ended_without_an_error_is_shown_to_its_end() -> None:
    """As one that was killed: no search for an error is left behind."""
    box = failed_box()
    box.output = tuple(f"step {n}" for n in range(99))
    async with on_screen(box, (80, 24)) as pilot:
        await until(pilot, lambda: app_of(pilot).main.log_window is not None)
        await press_until(pilot, lambda: "The output contains no error; this is its end." in notes(pilot), "E")
        assert app_of(pilot).main.query_one(OutputPanel).following
        assert "“" not in screen_text(pilot.app)


async def test_a_search_in_the_log_of_no_run_finds_no_output() -> None:
    async with on_screen(FakeBox(), (80, 24)) as pilot:
        await pilot.press("E")
        await until(pilot, lambda: "No output." in screen_text(pilot.app))
        assert "reading …" not in screen_text(pilot.app)


def test_every_key_of_a_request_has_its_method() -> None:
    actions = (binding.action for bindings in KEYS.values() for binding in bindings)
    names = {action[len("app.do('") : -2].replace(" ", "_") for action in actions if action.startswith("app.do(")}
    methods = {name for requests in (RunRequests, SettingsRequests, TuningRequests) for name in vars(requests)}
    assert len(names) > 20
    assert {f"action_{name}" for name in names} == {name for name in methods if name.startswith("action_")}
