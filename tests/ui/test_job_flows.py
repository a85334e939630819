"""Edit the job, see its command before it starts, restart a run."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from textual.events import Key
from textual.widgets import Input, Label

from tests.ui.fakes import FakeBox, busy_box, opened
from tests.ui.pilots import ScreenPilot, app_of, dialog, on_screen, said, until
from tuner_tui.settings.job import BuiltinJob, CommandJob, Job
from tuner_tui.settings.origin import Origin, OriginKind
from tuner_tui.ui.services import Opened, RestartOffer, ServiceError
from tuner_tui.ui.state import dirty
from tuner_tui.ui.widgets.choice import Choice

COMMAND_JOB = CommandJob(command=("python", "train.py"), apply="inject")


def with_command(job: Job = COMMAND_JOB) -> Opened:
    return replace(opened(per_device_train_batch_size=16), job=job)


def job_of(pilot: ScreenPilot) -> Job:
    now = app_of(pilot).state.opened
    assert now is not None
    return now.job


async def test_the_command_is_edited() -> None:
    async with on_screen(FakeBox(opened=with_command())) as pilot:
        await pilot.press("e")
        await until(pilot, lambda: dialog(pilot) == "Job")
        await pilot.press("end", "space", *"--x")
        await pilot.press("down", *"out")
        await pilot.press("enter")
        await until(pilot, lambda: dialog(pilot) == "")
        assert job_of(pilot) == CommandJob(command=("python", "train.py", "--x"), apply="inject", cwd="out")
        assert dirty(app_of(pilot).state)
        assert str(app_of(pilot).main.query_one("#settings").border_title).startswith("Settings · llama-1b-sft*")


async def test_the_command_tells_how_settings_reach_it_and_enter_does_not_overtake_what_is_typed() -> None:
    async with on_screen(FakeBox(opened=with_command())) as pilot:
        await pilot.press("e")
        await until(pilot, lambda: dialog(pilot) == "Job")
        way = pilot.app.screen.query_one("#job-apply", Choice)
        command = pilot.app.screen.query_one("#job-command", Input)
        command.value = "python train.py {learning_rate}"
        await until(pilot, lambda: way.value == "placeholders")
        command.value = "python train.py '"
        command.cursor_position = len(command.value)
        for key in ("x", "'", "enter"):
            pilot.app.post_message(Key(key, key if len(key) == 1 else None))
        await until(pilot, lambda: dialog(pilot) == "")
        assert job_of(pilot) == CommandJob(command=("python", "train.py", "x"), apply="inject")


async def test_what_is_wrong_is_said_and_the_cursor_goes_there() -> None:
    async with on_screen(FakeBox(opened=with_command())) as pilot:
        await pilot.press("e")
        await until(pilot, lambda: dialog(pilot) == "Job")
        pilot.app.screen.query_one("#job-env", Input).value = "nonsense"
        await pilot.press("enter")
        await until(pilot, lambda: pilot.app.focused is not None and pilot.app.focused.id == "job-env")
        await until(pilot, lambda: "NAME=value" in str(pilot.app.screen.query_one("#said", Label).content))
        await pilot.press("escape")
        await until(pilot, lambda: dialog(pilot) == "")
        assert job_of(pilot) == COMMAND_JOB
        assert not dirty(app_of(pilot).state)


async def test_from_the_built_in_job_to_a_command_only_what_was_chosen_goes_along() -> None:
    first = opened(per_device_train_batch_size=16, seed=7)
    recommended = {**first.resolved.origins, "seed": Origin(OriginKind.RECOMMENDED, "a reason")}
    box = FakeBox(opened=replace(first, resolved=replace(first.resolved, origins=recommended)))
    async with on_screen(box) as pilot:
        await pilot.press("e")
        await until(pilot, lambda: dialog(pilot) == "Job")
        await pilot.press("up", "up", "right")
        await until(pilot, lambda: bool(pilot.app.screen.query("#job-command")))
        await pilot.press("enter")
        await until(pilot, lambda: dialog(pilot) == "")
        assert isinstance(job_of(pilot), CommandJob)
        editing = app_of(pilot).state.editing
        assert editing is not None
        assert editing.current.chosen == {"per_device_train_batch_size"}
        assert editing.current.settings.seed == 42


async def test_the_built_in_job_is_edited_too() -> None:
    async with on_screen(FakeBox()) as pilot:
        await pilot.press("e")
        await until(pilot, lambda: dialog(pilot) == "Job")
        pilot.app.screen.query_one("#job-model", Input).value = "gpt2"
        await pilot.press("up", "right", "enter")
        await until(pilot, lambda: dialog(pilot) == "")
        assert job_of(pilot) == BuiltinJob(task="causal-lm", model="gpt2")


async def test_a_command_is_shown_before_it_starts() -> None:
    box = FakeBox(opened=with_command())
    async with on_screen(box) as pilot:
        await pilot.press("t")
        await until(pilot, lambda: dialog(pilot) == "Train")
        assert not box.launched
        await pilot.press("escape")
        await until(pilot, lambda: dialog(pilot) == "")
        assert not box.launched
        await pilot.press("t")
        await until(pilot, lambda: dialog(pilot) == "Train")
        await pilot.press("enter")
        await until(pilot, lambda: len(box.launched) == 1)
        await until(pilot, lambda: app_of(pilot).state.folder == Path("/runs/r001"))


async def test_r_restarts_the_run_after_a_yes() -> None:
    box = busy_box()
    async with on_screen(box) as pilot:
        await pilot.press("R")
        await until(pilot, lambda: dialog(pilot) == "Restart")
        await pilot.press("y")
        await until(pilot, lambda: app_of(pilot).state.folder == Path("/runs/r008"))
        [(name, preset)] = box.restarted
        assert name == "r007"
        assert preset is not None
        assert preset.resolved == box.opened.resolved


async def test_a_restart_that_cannot_be_says_why_and_stops_nothing() -> None:
    box = busy_box()

    def refuse(folder: Path, preset: Opened | None) -> RestartOffer:
        raise ServiceError("Run r007 cannot resume from a checkpoint.")

    async with on_screen(box, services=replace(box.services(), restart=refuse)) as pilot:
        await pilot.press("R")
        await until(pilot, lambda: "cannot resume" in said(pilot))
        assert not box.orders


async def test_without_a_run_there_is_nothing_to_restart() -> None:
    async with on_screen(FakeBox()) as pilot:
        await pilot.press("R")
        await until(pilot, lambda: "No run" in said(pilot))


async def test_another_interpreter_is_asked_as_soon_as_the_job_names_it() -> None:
    async with on_screen(FakeBox(opened=with_command())) as pilot:
        shown = app_of(pilot).main
        assert shown.interpreter is not None
        assert shown.interpreter.path == "/opt/train/bin/python"
        await pilot.press("e")
        await until(pilot, lambda: dialog(pilot) == "Job")
        pilot.app.screen.query_one("#job-interpreter", Input).value = "/other/bin/python"
        await pilot.press("enter")
        await until(pilot, lambda: shown.interpreter is not None and shown.interpreter.path == "/other/bin/python")
        assert app_of(pilot).state.interpreter == shown.interpreter
