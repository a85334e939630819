"""Following a training by its output: the events made of it, and when they are released."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.runs.sandbox import Sandbox, wait_ended
from tuner_tui.runs.events.fold import fold_all
from tuner_tui.runs.events.run_state import RunState
from tuner_tui.runs.events.types import Evaluated, Event, Metrics, Plan, Steps
from tuner_tui.runs.log_parsing.log_follower import LogEventBuilder, LogOnlyFollower, find_tool_files, read_tool_file
from tuner_tui.runs.log_parsing.progress_lines import ProgressRecord, parse_output
from tuner_tui.runs.read.reader import RunReader
from tuner_tui.settings.job import CommandJob


def followed(*pieces: str) -> tuple[RunState, list[Event]]:
    """The state after the pieces, each of which came a second later than the one before."""
    story = LogEventBuilder()
    events = [event for t, piece in enumerate(pieces) for event in story.events(list(parse_output(piece)), 100.0 + t)]
    return fold_all(RunState(), events), events


def bar(done: int, total: int, elapsed_s: int = 0, name: str = "") -> str:
    return f"{name}{100 * done // total:3d}%|##   | {done}/{total} [00:{elapsed_s:02d}<00:09, 1.0it/s]"


def of(events: Sequence[Event], kind: type[Event]) -> list[Event]:
    return [event for event in events if isinstance(event, kind)]


def test_a_trainers_bar_and_its_dictionaries() -> None:
    state, events = followed(
        bar(0, 50), bar(10, 50, 5), bar(20, 50, 10), "{'loss': '0.5', 'learning_rate': '1e-05', 'epoch': '1'}"
    )
    assert (state.step, state.total_steps, state.loss, state.source, state.phase) == (
        20,
        50,
        0.5,
        "progress bar",
        "training",
    )
    assert state.rates.step_time_s == 0.5
    assert [event.step for event in events if isinstance(event, Metrics)] == [20]
    assert not state.accepts_orders


def test_an_evaluation_between_is_no_step() -> None:
    state, events = followed(bar(10, 50, 5), bar(1, 4), bar(4, 4, 2), "{'eval_loss': '0.5', 'epoch': '1'}")
    assert (state.step, state.total_steps, state.phase) == (10, 50, "evaluating")
    assert [event.step for event in events if isinstance(event, Evaluated)] == [10]
    state, _ = followed(bar(10, 50, 5), bar(1, 4), bar(11, 50, 8))
    assert (state.step, state.phase) == (11, "training")


def test_epochs_that_begin_anew_add_up() -> None:
    state, _ = followed(bar(10, 10, 20), bar(0, 10), bar(5, 10, 10))
    assert (state.step, state.total_steps) == (15, 20)
    latest = state.ranks[0].latest
    assert latest is not None
    assert latest.train_s == 30.0
    state, _ = followed(bar(10, 10, 20, "Epoch 1/3: "), bar(5, 10, 10, "Epoch 2/3: "))
    assert (state.step, state.total_steps) == (15, 30)


def test_a_bar_of_epochs_around_bars_of_steps() -> None:
    state, _ = followed(bar(0, 3), bar(1, 200, 1), bar(2, 200, 2), bar(1, 3, 9), bar(7, 200, 7))
    assert (state.step, state.total_steps) == (7, 600)


def test_lines_with_a_step_take_their_time_from_the_clock() -> None:
    state, events = followed("iter 0: loss 4.0", "iter 10: loss 3.5", "iter 20: loss 3.0")
    assert (state.step, state.total_steps, state.loss) == (20, None, 3.0)
    assert state.rates.step_time_s == 0.1
    assert len(of(events, Steps)) == 3


def step_numbers(events: list[Event]) -> list[int]:
    return [event.step for event in events if isinstance(event, Steps)]


def look(tmp_path: Path) -> LogOnlyFollower:
    return LogOnlyFollower(tmp_path / "output.log", (tmp_path,), 0.0)


def say(tmp_path: Path, text: str) -> None:
    with (tmp_path / "output.log").open("a") as file:
        file.write(text)


def test_it_waits_for_the_observer_to_speak_first(tmp_path: Path) -> None:
    seen = look(tmp_path)
    assert seen.events(100.0, over=False) == []
    say(tmp_path, "\r  1%|  | 1/100 [00:01<01:39,  1.0it/s]")
    assert seen.events(101.0, over=False) == []
    say(tmp_path, "\r  3%|  | 3/100 [00:03<01:37,  1.0it/s]")
    assert seen.events(103.0, over=False) == []
    assert step_numbers(seen.events(104.1, over=False)) == [1, 3]
    say(tmp_path, "\r  5%|  | 5/100 [00:05<01:35,  1.0it/s]")
    assert step_numbers(seen.events(105.0, over=False)) == [5]


def keras(done: int, total: int, rest: str) -> str:
    """A bar as Keras 3 draws it, over what it drew before."""
    bars = f"\x1b[32m{'━' * 20}\x1b[0m\x1b[37m\x1b[0m"
    return "\b" * 40 + f"\r\x1b[1m{done}/{total}\x1b[0m {bars} \x1b[1m1s\x1b[0m 46ms/step - {rest}"


def test_the_bars_of_keras() -> None:
    state, _ = followed(
        "Epoch 1/3\n",
        keras(17, 18, "accuracy: 0.43 - loss: 1.57"),
        keras(18, 18, "accuracy: 0.43 - loss: 1.56 - val_accuracy: 0.46 - val_loss: 1.47") + "\n",
        "Epoch 2/3\n",
        keras(4, 18, "accuracy: 0.5 - loss: 1.25"),
    )
    assert (state.step, state.total_steps, state.loss) == (22, 54, 1.25)
    assert state.evaluations[-1].metrics["eval_loss"] == 1.47
    old, _ = followed("Epoch 1/2\n", "50/94 [==============>...............] - ETA: 1s - loss: 0.5 - accuracy: 0.7")
    assert (old.step, old.total_steps, old.loss) == (50, 188, 0.5)


def test_a_bar_before_the_observers_first_step_is_not_taken_for_the_training(tmp_path: Path) -> None:
    log = tmp_path / "output.log"
    log.write_text(bar(24, 24, 1) + "\r")
    follower = LogOnlyFollower(log, (tmp_path,), 0.0)
    assert follower.events(1000.0, over=False, observed=True) == []
    assert follower.events(1030.0, over=False, observed=True) == []
    assert follower.events(1060.0, over=False, observed=True)


def test_the_observer_replaces_the_total_of_a_bar() -> None:
    state, _ = followed(bar(24, 24, 1))
    assert (state.step, state.total_steps) == (24, 24)
    state = fold_all(state, [Plan(t=200.0, rank=0, total_steps=6, guessed=True)])
    assert state.total_steps == 6
    state = fold_all(state, [Steps(t=201.0, rank=0, step=1, own_steps=1, train_s=1.0)])
    assert (state.step, state.total_steps, state.total_guessed) == (1, 6, True)
    without_plan = fold_all(followed(bar(24, 24, 1))[0], [Steps(t=201.0, rank=0, step=1, own_steps=1, train_s=1.0)])
    assert (without_plan.step, without_plan.total_steps) == (1, None)


def test_of_a_long_log_only_the_end_is_read(tmp_path: Path) -> None:
    with (tmp_path / "output.log").open("wb") as file:
        file.truncate(1 << 30)
        file.seek(0, 2)
        file.write(b"\r 90%|  | 90/100 [00:90<00:10,  1.0it/s]")
    began = time.monotonic()
    assert step_numbers(look(tmp_path).events(100.0, over=True)) == [90]
    assert time.monotonic() - began < 5.0


def test_the_files_of_a_tool_where_the_output_says_nothing(tmp_path: Path) -> None:
    say(tmp_path, "hello\n")
    log = tmp_path / "trainer_log.jsonl"
    log.write_text('{"current_steps": 10, "total_steps": 100, "loss": 1.5, "elapsed_time": "0:00:20"}\n')
    seen = look(tmp_path)
    assert step_numbers(seen.events(100.0, over=False)) == []
    with log.open("a") as file:
        file.write('{"current_steps": 20, "total_steps": 100, "loss": 1.2, "elapsed_time": "0:00:40"}\n')
    events = seen.events(106.0, over=False)
    assert step_numbers(events) == [10, 20]
    assert {event.source for event in events} == {"trainer_log.jsonl"}


ISOLATED = """
import sys
for step in range(1, 31):
    sys.stderr.write(f"\\r{step * 100 // 30:3d}%|##  | {step}/30 [00:{step:02d}<00:00,  1.00it/s]")
print("{'loss': '0.25', 'learning_rate': '1e-05', 'epoch': '1'}", flush=True)
"""


def test_an_isolated_interpreter_is_seen_from_outside(box: Sandbox) -> None:
    job = CommandJob(command=(sys.executable, "-I", "train.py"))
    folder = box.launch(ISOLATED, job=job)
    wait_ended(folder)
    view = RunReader(folder).poll()
    assert (view.state.step, view.state.total_steps, view.state.loss) == (30, 30, 0.25)
    assert view.state.source == "progress bar"
    assert view.state.outcome == "completed"
    assert view.history.loss.ys == (0.25,)


FILES = {
    "trainer_log.jsonl": (
        '{"current_steps": 10, "total_steps": 100, "loss": 1.5, "lr": 0.0001, "epoch": 0.1, "percentage": 10.0, '
        '"elapsed_time": "0:00:20", "remaining_time": "0:03:00"}\n{"current_st',
        ProgressRecord("trainer_log.jsonl", 10, 100, 20.0, 1.5, 1e-4, None, 0.1),
    ),
    "logging.jsonl": (
        '{"loss": 1.5, "grad_norm": 0.5, "learning_rate": 0.0001, "epoch": 0.1, "global_step/max_steps": "10/100", '
        '"elapsed_time": "20s"}\n',
        ProgressRecord("logging.jsonl", 10, 100, 20.0, 1.5, 1e-4, 0.5, 0.1),
    ),
    "metrics.csv": (
        "epoch,lr-AdamW,step,train_loss,val_loss\n0,0.0001,9,1.5,\n",
        ProgressRecord("metrics.csv", 10, None, None, 1.5, 1e-4, None, 0.0),
    ),
    "trainer_state.json": (
        json.dumps({"max_steps": 100, "log_history": [{"step": 10, "loss": 1.5, "learning_rate": 1e-4, "epoch": 0.1}]}),
        ProgressRecord("trainer_state.json", 10, 100, None, 1.5, 1e-4, None, 0.1),
    ),
}


@pytest.mark.parametrize("name", FILES)
def test_what_each_file_tells(tmp_path: Path, name: str) -> None:
    text, record = FILES[name]
    (tmp_path / name).write_text(text)
    assert read_tool_file(tmp_path / name) == [record]


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("text", ["", "\x00\x01", "{", "[1, 2]", "null", "a,b\n1"])
def test_a_file_that_makes_no_sense_tells_nothing_of_steps(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text)
    assert [record for record in read_tool_file(tmp_path / name) if record.step is not None] == []


def test_only_files_of_this_run_the_newest_last(tmp_path: Path) -> None:
    for place, t in (
        ("logging.jsonl", 50.0),
        ("lightning_logs/version_1/metrics.csv", 200.0),
        ("v0/logging.jsonl", 300.0),
    ):
        path = tmp_path / place
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("")
        os.utime(path, (t, t))
    found = find_tool_files((tmp_path, tmp_path / "none"), 100.0)
    assert [str(path.relative_to(tmp_path)) for path in found] == [
        "lightning_logs/version_1/metrics.csv",
        "v0/logging.jsonl",
    ]
