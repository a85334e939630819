"""Train, stop, save, follow, leave."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from pathlib import Path
from threading import Event
from typing import TypeVar

import pytest
from msgspec.structs import replace
from textual.events import Key, Paste
from textual.widgets import Input, Label

from tests.fakes import live_run
from tests.fakes.ui_backend import INTERPRETER, FakeBox, FakeSampler, busy_box, ended, opened, presetted
from tests.ui.pilots import (
    ScreenPilot,
    app_of,
    dialog,
    notes,
    on_screen,
    press_to,
    press_until,
    screen_text,
    until,
    value,
)
from tuner_tui.hardware.inventory import Inventory
from tuner_tui.inspection.first_non_finite import Operation, Replay, ReplayReport
from tuner_tui.inspection.hang import Hang
from tuner_tui.inspection.process_dump import ProcessDump, StackFrame, ThreadStack
from tuner_tui.inspection.slow_step import HotLine, judge_step
from tuner_tui.inspection.step_trace import CallTime, PartTime, StepTimes
from tuner_tui.runs.events.types import FellBack
from tuner_tui.runs.read.live_inspection import RankProfile, RunProfile
from tuner_tui.runs.read.reader import RunRow
from tuner_tui.runs.read.status import RunStatus
from tuner_tui.runs.supervise.stall import Inspection
from tuner_tui.settings.job import BuiltinJob, CommandJob, Job
from tuner_tui.settings.model import Origin, OriginKind
from tuner_tui.ui.feeds import BackendError
from tuner_tui.ui.records import LaunchOffer, TrainingConfig
from tuner_tui.ui.screens.dialogs import Choice, ConfirmScreen

T = TypeVar("T")


async def test_two_keys_train_and_the_run_is_followed() -> None:
    box = FakeBox()
    async with on_screen(box) as pilot:
        await press_to(pilot, "Train", "plus", "t")
        await press_until(pilot, lambda: app_of(pilot).main.view is not None, "enter")
        assert box.launched[0].resolved.settings.per_device_train_batch_size == 24
        assert app_of(pilot).session.state.folder == Path("/runs/r001")
        assert app_of(pilot).main.page == "settings"  # it is seen beside the settings
        assert app_of(pilot).main.run_name == "r001"


async def test_a_run_that_loses_its_supervisor_while_it_is_shown_gets_another() -> None:
    box = busy_box()
    async with on_screen(box) as pilot:
        await until(pilot, lambda: box.view is not None and app_of(pilot).session.state.view == box.view)
        adopted = len(box.adopted)
        assert box.view is not None
        lost = RunStatus("lost", "The supervisor has ended.", pid=7, training_alive=True)
        box.view = replace(box.view, status=lost)
        await until(pilot, lambda: len(box.adopted) > adopted)
        assert box.adopted[adopted:] == [app_of(pilot).main.run_name]


async def test_nothing_is_started_or_edited_by_enter_until_the_inventory_is_read() -> None:
    box, read = FakeBox(), Event()

    def late() -> Inventory:
        read.wait()
        return box.inventory

    app = box.app(box.backend(read_inventory=late))
    async with app.run_test(size=(120, 40)) as pilot:
        await press_until(pilot, lambda: dialog(pilot) == "Train", "t")
        await pilot.press("enter", "enter")
        await until(pilot, lambda: app.main.settings_view is not None)
        assert "Reading settings and hardware" in screen_text(app)
        assert not box.launched
        read.set()
        await until(pilot, lambda: "enter start" in screen_text(app))
        await press_until(pilot, lambda: app.main.view is not None, "enter")
        assert len(box.launched) == 1


async def test_a_launch_that_fails_says_why_and_follows_nothing() -> None:
    box = FakeBox(launch_error="There is no command 'trane'.")
    async with on_screen(box) as pilot:
        await press_to(pilot, "Train", "t")
        await press_until(pilot, lambda: "no command 'trane'" in notes(pilot), "enter")
        assert app_of(pilot).session.state.folder is None


async def test_a_second_training_can_wait_in_the_queue_while_one_runs() -> None:
    box = busy_box()
    async with on_screen(box) as pilot:
        await press_to(pilot, "Queue", "t")
        assert "already training" in notes(pilot)
        await press_to(pilot, "", "escape")
        assert not box.launched


async def test_a_start_on_two_gpus_keeps_the_effective_batch_and_so_does_the_next_one() -> None:
    job = BuiltinJob(task="causal-lm", model="meta-llama/Llama-3.2-1B")
    box = FakeBox(opened=replace(presetted(), job=job))
    async with on_screen(box) as pilot:
        await press_to(pilot, "Train", "t")
        await until(pilot, lambda: "64 = 16 × 4" in screen_text(pilot.app))
        await press_until(
            pilot, lambda: "64 = 16 × 2 × 2 processes, as before: accumulation 4 → 2" in screen_text(pilot.app), "2"
        )
        await press_until(pilot, lambda: box.launched, "enter")
        assert box.launched[0].resolved.settings.gradient_accumulation_steps == 2
        await until(pilot, lambda: value(pilot, "gradient_accumulation_steps") == 2)


async def test_stopping_asks_first() -> None:
    box = busy_box()
    async with on_screen(box) as pilot:
        for answer in ("n", "escape", "enter"):
            await press_to(pilot, "Stop", "s")
            assert not box.orders
            await press_to(pilot, "", answer)
        await until(pilot, lambda: box.orders == [("r007", "stop")])


async def test_the_question_whether_to_stop_goes_with_the_run() -> None:
    box = busy_box()
    async with on_screen(box) as pilot:
        await press_to(pilot, "Stop", "s")
        assert box.view is not None
        assert "It saves a checkpoint after this step" in screen_text(pilot.app)
        box.view = replace(box.view, state=replace(box.view.state, accepts_orders=False))
        await until(pilot, lambda: "This training cannot save on request" in screen_text(pilot.app))
        box.view = ended("completed", "Completed.")
        await until(pilot, lambda: dialog(pilot) == "")
        assert "The run has ended meanwhile." in notes(pilot)
        assert not box.orders


async def test_nothing_to_stop_or_save_is_said() -> None:
    async with on_screen(FakeBox()) as pilot:
        for key, sentence in (("s", "Nothing to stop"), ("c", "Nothing to save"), ("R", "No run")):
            await pilot.press(key)
            await until(pilot, lambda sentence=sentence: sentence in notes(pilot))  # type: ignore[misc]


async def test_c_saves_a_checkpoint_and_goes_on() -> None:
    box = busy_box()
    async with on_screen(box) as pilot:
        await press_until(pilot, lambda: box.orders == [("r007", "checkpoint")], "c")
        await until(pilot, lambda: "checkpoint" in notes(pilot))


async def test_a_run_that_falls_back_is_followed_into_the_next() -> None:
    box = busy_box()
    async with on_screen(box) as pilot:
        await until(pilot, lambda: app_of(pilot).main.view is not None)
        out = ended("out-of-memory", "Out of memory.")
        fell = FellBack(t=1.0, into="r008", number=1, most=3, sentence="micro batch 16 → 8; goes on as r008.")
        box.view = replace(out, state=replace(out.state, fell_back=fell))
        await until(pilot, lambda: app_of(pilot).session.state.folder == Path("/runs/r008"))
        assert "Retry 1 of 3 after out of memory. micro batch 16 → 8" in notes(pilot)


async def test_the_end_of_a_run_is_shown_on_a_small_terminal_but_takes_no_key() -> None:
    box = busy_box()
    async with on_screen(box, (80, 24)) as pilot:
        main = app_of(pilot).main
        await press_until(pilot, lambda: main.page == "output", "4", "slash")
        box.view = ended("completed", "Completed.")
        await until(pilot, lambda: main.view is box.view)
        assert main.page == "output", "a word is being typed"
        box.view = busy_box().view
        await press_until(pilot, lambda: main.running, "escape")
        box.view = ended("completed", "Completed.")
        await until(pilot, lambda: main.page == "live")


async def test_a_run_that_fell_back_long_ago_is_shown_as_it_is() -> None:
    out = ended("out-of-memory", "Out of memory.")
    fell = FellBack(t=1.0, into="r008", number=1, most=3, sentence="micro batch 16 → 8; goes on as r008.")
    box = busy_box(view=replace(out, state=replace(out.state, fell_back=fell)))
    async with on_screen(box) as pilot:
        await press_until(pilot, lambda: app_of(pilot).main.view is not None, "5")
        assert app_of(pilot).session.state.folder == Path("/runs/r007")


async def test_q_leaves_without_stopping_and_says_that_the_training_goes_on(
    capsys: pytest.CaptureFixture[str],
) -> None:
    box = busy_box()
    async with on_screen(box) as pilot:
        await press_until(pilot, lambda: not pilot.app.is_running, "q")
    assert not box.orders
    assert pilot.app.return_code == 0
    assert "r007 continues" in capsys.readouterr().err


async def test_fresh_samples_of_the_followed_run_replace_those_of_the_screen() -> None:
    box = busy_box()
    async with on_screen(box) as pilot:
        assert box.view is not None
        fresh = replace(live_run.sample(), time_s=time.time())
        box.view = replace(box.view, sample=fresh)
        await until(pilot, lambda: app_of(pilot).main.sample == fresh)
        assert app_of(pilot).session._hardware.covered_until_s > fresh.time_s


async def test_a_hung_box_delays_no_key() -> None:
    hung = Event()
    box = FakeBox()

    def never(answer: T) -> Callable[..., T]:
        def wait(*_: object) -> T:
            hung.wait()
            return answer

        return wait

    backend = box.backend(
        read_inventory=never(box.inventory),
        open_sampler=never(FakeSampler(box.sample)),
        probe_interpreter=never(INTERPRETER),
        list_runs=never(box.runs),
    )
    app = box.app(backend)
    async with app.run_test(size=(120, 40)) as pilot:
        await until(pilot, lambda: app.main.settings_view is not None)
        await press_until(pilot, lambda: value(pilot, "per_device_train_batch_size") == 24, "r", "plus")
        await press_until(pilot, lambda: not app.is_running, "q")
    hung.set()


async def test_a_service_that_fails_at_the_start_leaves_a_usable_screen() -> None:
    box = FakeBox()

    def broken() -> Inventory:
        raise BackendError("The inventory cannot be read.")

    app = box.app(box.backend(read_inventory=broken))
    async with app.run_test(size=(120, 40)) as pilot:
        await until(pilot, lambda: "inventory cannot be read" in notes(pilot))
        await until(pilot, lambda: app.main.settings_view is not None)


COMMAND_JOB = CommandJob(command=("python", "train.py"), apply="inject")


def with_command(job: Job = COMMAND_JOB) -> TrainingConfig:
    return replace(opened(per_device_train_batch_size=16), job=job)


def job_of(pilot: ScreenPilot) -> Job:
    now = app_of(pilot).session.state.loaded
    assert now is not None
    return now.job


async def test_the_command_is_edited() -> None:
    async with on_screen(FakeBox(opened=with_command())) as pilot:
        await press_to(pilot, "Job", "e")
        await pilot.press("end", "space", *"--x")
        await pilot.press("down", "down", "down", *"out")
        await press_to(pilot, "", "enter")
        assert job_of(pilot) == CommandJob(command=("python", "train.py", "--x"), apply="inject", cwd="out")
        assert app_of(pilot).session.state.dirty
        title = str(app_of(pilot).main.query_one("#settings").border_title)
        assert title.startswith("1 Settings · llama-1b-sft changed")


async def test_a_pasted_command_replaces_the_old_one() -> None:
    async with on_screen(FakeBox(opened=with_command())) as pilot:
        await press_to(pilot, "Job", "e")
        await until(pilot, lambda: "ctrl+u clears it" in screen_text(pilot.app))
        pilot.app.post_message(  # as terminals send the ends of lines
            Paste("python \\\r  ddp.py\r")
        )  # terminals end the lines of a paste as the enter key does
        command = pilot.app.screen.query_one("#job-command", Input)
        await until(pilot, lambda: command.value == "python ddp.py")
        await pilot.press("ctrl+u", *"./a")
        await press_to(pilot, "", "enter")
        assert job_of(pilot) == CommandJob(command=("./a",), apply="inject")


async def test_the_command_tells_how_settings_reach_it_and_enter_does_not_overtake_what_is_typed() -> None:
    async with on_screen(FakeBox(opened=with_command())) as pilot:
        await press_to(pilot, "Job", "e")
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


def preview_of(pilot: ScreenPilot) -> str:
    return str(pilot.app.screen.query_one("#preview", Label).content)


async def test_the_job_editor_shows_what_would_start_and_checks_placeholders_there() -> None:
    async with on_screen(FakeBox(opened=with_command())) as pilot:
        await press_to(pilot, "Job", "e")
        await until(pilot, lambda: preview_of(pilot) == "Starts: python train.py --seed 7\nNot applied: max_length")
        assert pilot.app.focused is pilot.app.screen.query_one("#job-command")
        pilot.app.screen.query_one("#job-command", Input).value = "python train.py {lr}"
        await until(pilot, lambda: preview_of(pilot).startswith("{lr} is not a setting"))
        assert "{learning_rate}" in preview_of(pilot)
        pilot.app.screen.query_one("#job-command", Input).value = "python train.py {learning_rate}"
        await until(pilot, lambda: preview_of(pilot).startswith("Starts: "))


async def test_what_is_wrong_is_said_and_the_cursor_goes_there() -> None:
    async with on_screen(FakeBox(opened=with_command())) as pilot:
        await press_to(pilot, "Job", "e")
        pilot.app.screen.query_one("#job-env", Input).value = "nonsense"
        await pilot.press("enter")
        await until(pilot, lambda: pilot.app.focused is not None and pilot.app.focused.id == "job-env")
        await until(pilot, lambda: "NAME=value" in str(pilot.app.screen.query_one("#message", Label).content))
        await press_to(pilot, "", "escape")
        assert job_of(pilot) == COMMAND_JOB
        assert not app_of(pilot).session.state.dirty


async def test_from_the_built_in_job_to_a_command_only_what_was_chosen_goes_along() -> None:
    first = opened(per_device_train_batch_size=16, seed=7)
    recommended = {**first.resolved.origins, "seed": Origin(OriginKind.RECOMMENDED, "a reason")}
    box = FakeBox(opened=replace(first, resolved=replace(first.resolved, origins=recommended)))
    async with on_screen(box) as pilot:
        await press_to(pilot, "Job", "e")
        await press_until(pilot, lambda: bool(pilot.app.screen.query("#job-command")), "right")
        await press_to(pilot, "", "enter")
        assert isinstance(job_of(pilot), CommandJob)
        editing = app_of(pilot).session.state.editing
        assert editing is not None
        assert editing.current.chosen == {"per_device_train_batch_size"}
        assert editing.current.settings.seed == 42


async def test_a_command_is_shown_before_it_starts() -> None:
    box = FakeBox(opened=with_command())
    async with on_screen(box) as pilot:
        await press_to(pilot, "Train", "t")
        assert not box.launched
        await press_to(pilot, "", "escape")
        assert not box.launched
        await press_to(pilot, "Train", "t")
        await press_until(pilot, lambda: len(box.launched) == 1, "enter")
        await until(pilot, lambda: app_of(pilot).session.state.folder == Path("/runs/r001"))


async def test_r_restarts_the_run_after_a_yes() -> None:
    box = busy_box()
    async with on_screen(box) as pilot:
        await press_to(pilot, "Resume", "R")
        # It starts on as many GPUs as before: a number does nothing.
        await press_until(pilot, lambda: app_of(pilot).session.state.folder == Path("/runs/r008"), "1", "y")
        [(name, preset)] = box.restarted
        assert name == "r007"
        assert preset is not None
        assert preset.resolved == box.opened.resolved


@pytest.mark.parametrize(("parent", "first"), [("r003", "r003"), (None, "r004")])
async def test_the_parent_of_a_run_is_the_first_to_compare_it_with(parent: str | None, first: str) -> None:
    """Without one it is the newest that has trained the same."""
    runs = [
        RunRow("r007", "running", "Trains.", "/runs/r007", title="demo", parent=parent),
        RunRow("r006", "ended", "Completed.", "/runs/r006", outcome="completed", title="other.py", step=9),
        RunRow("r005", "ended", "Failed.", "/runs/r005", outcome="failed", title="demo"),
        RunRow("r004", "ended", "Out of memory.", "/runs/r004", outcome="out-of-memory", title="demo", step=40),
        RunRow("r003", "ended", "Completed.", "/runs/r003", outcome="completed", title="demo", step=60),
    ]
    box = busy_box(runs=runs)
    async with on_screen(box) as pilot:
        await press_to(pilot, "Compare r007 with", "v")
        await press_until(pilot, lambda: box.compared_runs == [("r007", first)], "enter")


async def test_r_in_the_list_resumes_the_run_under_the_cursor_with_its_own_settings() -> None:
    runs = [
        RunRow("r006", "ended", "Stopped at step 40.", "/runs/r006", outcome="stopped", step=40, title="demo"),
        RunRow("r005", "ended", "Completed.", "/runs/r005", outcome="completed", step=400, title="demo"),
    ]
    box = FakeBox(runs=runs)
    async with on_screen(box) as pilot:
        await press_to(pilot, "Runs", "r")
        assert "R resumes the run from its last" in screen_text(pilot.app)
        assert "v compare · R resume" in screen_text(pilot.app)
        await pilot.press("down")
        await until(pilot, lambda: "R resumes the run from its last" not in screen_text(pilot.app))
        await press_to(pilot, "Resume", "up", "R")
        await press_until(pilot, lambda: app_of(pilot).session.state.folder == Path("/runs/r008"), "y")
        assert box.restarted == [("r006", None)]


async def test_t_trains_the_run_that_was_opened_and_only_after_its_start_was_seen() -> None:
    run = RunRow("r006", "ended", "Failed.", "/runs/r006", outcome="failed", title="python train.py")
    box = FakeBox(view=ended("failed", "Failed."), runs=[run])
    prepared = Event()
    offer = box.backend().offer_launch

    def late(config: TrainingConfig) -> LaunchOffer:
        prepared.wait()
        return offer(config)

    async with on_screen(box, backend=box.backend(open_run=lambda *_: with_command(), offer_launch=late)) as pilot:
        await press_to(pilot, "Runs", "r")
        await press_until(pilot, lambda: job_of(pilot) == COMMAND_JOB, "enter")
        assert app_of(pilot).session.state.folder == Path("/runs/r006")
        await until(pilot, lambda: app_of(pilot).main.view is not None)
        await press_until(pilot, lambda: dialog(pilot) == "Train", "t")
        pilot.app.post_message(Key("enter", None))  # typed before the start is described
        prepared.set()
        await until(pilot, lambda: "enter start" in screen_text(pilot.app))
        assert not box.launched
        await press_until(pilot, lambda: len(box.launched) == 1, "enter")
        assert box.launched[0].job == COMMAND_JOB


async def test_the_end_is_shared_with_two_keys_and_its_checkpoint_is_copied() -> None:
    box = FakeBox(view=ended("completed", "Completed."))
    async with on_screen(box, folder=Path("/runs/r007")) as pilot:
        await press_to(pilot, "Share", "x")
        await press_until(pilot, lambda: box.reports == [("r007", "r007.html")], "enter")
        await until(pilot, lambda: "Written to /work/r007.html." in notes(pilot))
        await press_until(pilot, lambda: "/runs/r007" in notes(pilot), "C")
    async with on_screen(busy_box()) as pilot:
        await press_until(pilot, lambda: "There is a report once a run has ended." in notes(pilot), "x")


@pytest.mark.parametrize("name", ["a" * 5000 + ".html", "~nobody-here/r007.html", "a\0b/r007.html"])
async def test_a_name_that_no_file_can_have_is_no_report(name: str) -> None:
    box = FakeBox(view=ended("completed", "Completed."))
    async with on_screen(box, folder=Path("/runs/r007")) as pilot:
        await press_to(pilot, "Share", "x")
        pilot.app.screen.query_one(Input).value = name
        await pilot.press("enter")
        await press_to(pilot, "", "escape")
        assert app_of(pilot).is_running


async def test_trials_stand_below_the_runs() -> None:
    tunings = {"r003": "t001", "r002": None, "r001": "t001"}
    rows = [
        RunRow(name, "completed", "Completed.", f"/runs/{name}", title="train", tuning=tuning)
        for name, tuning in tunings.items()
    ]
    async with on_screen(FakeBox(runs=rows)) as pilot:
        await press_to(pilot, "Runs", "r")
        listed = re.findall(r"Trials|r00\d", screen_text(pilot.app))
        assert listed[-4:] == ["r002", "Trials", "r003", "r001"]


async def test_another_interpreter_is_asked_as_soon_as_the_job_names_it() -> None:
    async with on_screen(FakeBox(opened=with_command())) as pilot:
        shown = app_of(pilot).main
        assert shown.machine[1] is not None
        assert shown.machine[1].path == "/opt/train/bin/python"
        await press_to(pilot, "Job", "e")
        pilot.app.screen.query_one("#job-interpreter", Input).value = "/other/bin/python"
        await pilot.press("enter")
        await until(pilot, lambda: shown.machine[1] is not None and shown.machine[1].path == "/other/bin/python")
        assert app_of(pilot).session.state.interpreter == shown.machine[1]


async def test_where_the_run_is() -> None:
    frame = StackFrame("/home/a/train.py", 12, "read_batch")
    process = ProcessDump(7, 1, "python", "S", 0.0, (ThreadStack((frame,)),), rank=0)
    hang = Hang("data-stuck", "The training waits for its own dataset.")
    async with on_screen(busy_box(inspection=Inspection((process,), hang))) as pilot:
        await press_to(pilot, "Stacks of r007", "W")
        await until(pilot, lambda: "The training waits for its own dataset." in screen_text(pilot.app))
        assert "read_batch (/home/a/train.py:12)" in screen_text(pilot.app)
        await press_to(pilot, "", "escape")


async def test_where_a_loss_that_is_not_finite_comes_from() -> None:
    report = ReplayReport(0, 7, "the loss is nan", Operation("forward", "layers.2", "aten.log"))
    async with on_screen(busy_box(replay=Replay(7, compared=6, report=report))) as pilot:
        await press_to(pilot, "Replay of r007", "P")
        await until(pilot, lambda: "first not finite: layers.2, forward, aten.log." in screen_text(pilot.app))
        await press_to(pilot, "", "escape")


async def test_a_replay_opens_over_nothing_that_the_user_does() -> None:
    box, finished = busy_box(), Event()

    def replay(folder: Path) -> Replay:
        finished.wait()
        return Replay(7, compared=6, report=ReplayReport(0, 7, "the loss is nan"))

    async with on_screen(box, backend=box.backend(replay_run=replay)) as pilot:
        await press_until(pilot, lambda: "Replaying r007 …" in screen_text(pilot.app).splitlines()[0], "P")
        await press_to(pilot, "Runs", "r")
        finished.set()
        await until(pilot, lambda: "Replay of r007 is ready: P shows it while r007 is open." in notes(pilot))
        assert "Replaying" not in app_of(pilot).main.status.request
        assert dialog(pilot) == "Runs"
        await press_to(pilot, "", "escape")
        await press_to(pilot, "Replay of r007", "P")
        await press_to(pilot, "", "escape")


async def test_a_step_is_not_profiled_before_there_was_a_step() -> None:
    box = busy_box()
    assert box.view is not None
    box.view = replace(box.view, state=replace(box.view.state, step=None))
    async with on_screen(box) as pilot:
        await press_until(pilot, lambda: "No step has finished yet; W shows" in notes(pilot), "F")
        assert not app_of(pilot).main.status.request


async def test_what_is_ready_late_takes_no_key_from_the_user() -> None:
    times = StepTimes(10, "cpu", 0.2, 0.21, (PartTime("data", 0.15, 0.0),), (), ())
    profile = RunProfile((RankProfile(0, times, judge_step(times), 0.5, compiled=False),))
    async with on_screen(busy_box(profile=profile)) as pilot:
        app_of(pilot).answer_limit_s = 0.0
        await press_until(pilot, lambda: "Profile of r007 is ready: F shows it" in notes(pilot), "F")
        assert dialog(pilot) == ""
        await press_to(pilot, "Profile of r007", "F")
        await press_to(pilot, "", "escape")


async def test_what_makes_a_step_slow() -> None:
    times = StepTimes(10, "cpu", 0.2, 0.21, (PartTime("data", 0.15, 0.0),), (CallTime("head", 0.02, 1.0),), ())
    line = HotLine("decode (/home/a/train.py:12)", 0.9, "data")
    profile = RunProfile((RankProfile(0, times, judge_step(times, (line,)), 0.5, compiled=False),))
    async with on_screen(busy_box(profile=profile)) as pilot:
        await press_to(pilot, "Profile of r007", "F")
        await until(pilot, lambda: "Input-bound: 75 % of a step waits for the next batch" in screen_text(pilot.app))
        assert "decode (/home/a/train.py:12)" in screen_text(pilot.app)
        await press_to(pilot, "", "escape")


@pytest.mark.parametrize("size", [(80, 24), (120, 40)])
async def test_a_question_longer_than_a_row_is_shown_whole(size: tuple[int, int]) -> None:
    words = [f"word{number:02}" for number in range(30)]
    async with on_screen(FakeBox(), size=size) as pilot:
        pilot.app.push_screen(ConfirmScreen("Stop", " ".join(words), "stop"))
        await until(pilot, lambda: all(word in screen_text(pilot.app) for word in words))
