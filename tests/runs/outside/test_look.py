"""Watching from outside: what is read, when it is believed, and when it is left alone."""

from __future__ import annotations

import sys
import time
from pathlib import Path

from tests.runs.processes import Box, box, wait_ended
from tuner_tui.runs.codec import encode
from tuner_tui.runs.events import Event, Steps
from tuner_tui.runs.outside.look import OutsideLook
from tuner_tui.runs.reader import RunReader
from tuner_tui.settings.job import CommandJob

__all__ = ["box"]


def steps(events: list[Event]) -> list[int]:
    return [event.step for event in events if isinstance(event, Steps)]


def look(tmp_path: Path) -> OutsideLook:
    return OutsideLook(tmp_path / "output.log", (tmp_path,), 0.0)


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
    assert steps(seen.events(104.1, over=False)) == [1, 3]
    say(tmp_path, "\r  5%|  | 5/100 [00:05<01:35,  1.0it/s]")
    assert steps(seen.events(105.0, over=False)) == [5]


def test_a_run_that_is_over_has_nobody_to_wait_for(tmp_path: Path) -> None:
    say(tmp_path, "iter 1: loss 2.0\niter 2: loss 1.0")
    assert steps(look(tmp_path).events(100.0, over=True)) == [2]


def test_a_bar_torn_in_the_middle_is_read_whole(tmp_path: Path) -> None:
    seen = look(tmp_path)
    say(tmp_path, "\r  1%|  | 1/10")
    assert seen.events(100.0, over=False) == []
    say(tmp_path, "0 [00:01<01:39,  1.0it/s]")
    seen.events(101.0, over=False)
    assert steps(seen.events(104.0, over=False)) == [1]


def test_of_a_long_log_only_the_end_is_read(tmp_path: Path) -> None:
    with (tmp_path / "output.log").open("wb") as file:
        file.truncate(1 << 30)
        file.seek(0, 2)
        file.write(b"\r 90%|  | 90/100 [00:90<00:10,  1.0it/s]")
    began = time.monotonic()
    assert steps(look(tmp_path).events(100.0, over=True)) == [90]
    assert time.monotonic() - began < 5.0


def test_the_files_of_a_tool_where_the_output_says_nothing(tmp_path: Path) -> None:
    say(tmp_path, "hello\n")
    log = tmp_path / "trainer_log.jsonl"
    log.write_text('{"current_steps": 10, "total_steps": 100, "loss": 1.5, "elapsed_time": "0:00:20"}\n')
    seen = look(tmp_path)
    assert steps(seen.events(100.0, over=False)) == []
    with log.open("a") as file:
        file.write('{"current_steps": 20, "total_steps": 100, "loss": 1.2, "elapsed_time": "0:00:40"}\n')
    events = seen.events(106.0, over=False)
    assert steps(events) == [10, 20]
    assert {event.source for event in events} == {"trainer_log.jsonl"}


ISOLATED = """
import sys
for step in range(1, 31):
    sys.stderr.write(f"\\r{step * 100 // 30:3d}%|##  | {step}/30 [00:{step:02d}<00:00,  1.00it/s]")
print("{'loss': '0.25', 'learning_rate': '1e-05', 'epoch': '1'}", flush=True)
"""


def test_an_isolated_interpreter_is_seen_from_outside(box: Box) -> None:
    job = CommandJob(command=(sys.executable, "-I", "train.py"))
    folder = box.launch(ISOLATED, job=job)
    wait_ended(folder)
    view = RunReader(folder).poll()
    assert (view.state.step, view.state.total_steps, view.state.loss) == (30, 30, 0.25)
    assert view.state.source == "progress bar"
    assert view.state.outcome == "completed"
    assert view.history.loss.ys == (0.25,)


def test_what_the_observer_tells_is_all_that_counts(box: Box) -> None:
    folder = box.launch(ISOLATED)
    wait_ended(folder)
    with folder.events.open("ab") as file:
        file.write(encode(Steps(t=time.time(), rank=0, step=7, own_steps=7, train_s=1.0)))
    state = RunReader(folder).poll().state
    assert (state.step, state.source, state.total_steps) == (7, None, None)
