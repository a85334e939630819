"""The whole program on a real training: from the command line to the last event, and through a killed screen."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path

import pytest

from tests.benchmarks.screen.terminal import Terminal
from tests.runs.sandbox import wait_gone
from tuner_tui.runs.events.types import Steps
from tuner_tui.runs.read.reader import RunReader
from tuner_tui.runs.store.folder import RunFolder, list_runs, read_supervisor_state

pytestmark = pytest.mark.train
PROGRAM = [sys.executable, "-m", "tuner_tui"]
SHORT = ["--set", "max_steps=16", "--set", "eval_steps=8", "--set", "save_steps=8"]
LONGER = ["--set", "max_steps=40", "--set", "eval_steps=20", "--set", "save_steps=20"]
"""It still trains when its screen has been killed."""
PATIENCE_S = 240.0


def test_a_run_trains_every_step_it_was_asked_for(tmp_path: Path, repository: Path) -> None:
    preset = tmp_path / "short.yaml"
    demo = (repository / "presets" / "demo.yaml").read_text()
    preset.write_text(demo.replace("max_samples: 8000", "max_samples: 800"))
    command = [*PROGRAM, "run", "--preset", str(preset), *SHORT, "--json"]
    result = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=PATIENCE_S)
    assert result.returncode == 0, result.stderr
    events = [json.loads(line) for line in result.stdout.splitlines()]
    last = events[-1]
    assert (last["kind"], last["outcome"]) == ("finished", "completed")
    assert last["step"] == last["total_steps"] == 16
    losses = [event["loss"] for event in events if event["kind"] == "metrics"]
    assert losses[-1] < losses[0]
    assert [event["step"] for event in events if event["kind"] == "evaluated"] == [8, 16]
    assert [event["step"] for event in events if event["kind"] == "checkpoint"] == [8, 16]


@pytest.mark.full
def test_the_built_in_job_trains_in_two_ranks(tmp_path: Path) -> None:
    words = ["--launcher", "torchrun", "--processes", "2", "--set", "max_steps=6", "--set", "eval_steps=6"]
    command = [*PROGRAM, "run", "--preset", "demo", *words, "--set", "save_steps=6", "--json"]
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"}
    result = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False, timeout=PATIENCE_S
    )
    assert result.returncode == 0, result.stderr
    events = [json.loads(line) for line in result.stdout.splitlines()]
    assert (events[-1]["outcome"], events[-1]["step"]) == ("completed", 6)
    last = {event["rank"]: event for event in events if event["kind"] == "steps"}
    assert {rank: (event["own_steps"], event["samples"]) for rank, event in last.items()} == {0: (6, 192), 1: (6, 192)}
    assert len([event for event in events if event["kind"] == "checkpoint"]) == 1


def test_a_training_outlives_the_screen_that_started_it(tmp_path: Path) -> None:
    state = tmp_path / "state"
    threads = {"OMP_NUM_THREADS": "1"}  # several wait for each other at each operation where the machine is busy
    environment = {**os.environ, **threads, "TUNER_STATE_DIR": str(state), "TERM": "xterm-256color"}
    with Terminal([*PROGRAM, "screen", "demo", *LONGER], environment, tmp_path) as terminal:
        until(terminal, b"Train")
        terminal.press(b"t")
        until(terminal, b"start")
        terminal.press(b"\r")
        folder = first_run(terminal, state / "runs")
        reader = RunReader(folder)
        while not (reader.poll().state.step or 0) >= 3:
            watched(terminal)
        os.kill(terminal.pid, signal.SIGKILL)
    supervision = read_supervisor_state(folder.state)
    assert supervision is not None
    assert supervision.outcome is None, "the training was to be running when the screen was killed"
    wait_gone(supervision.supervisor, PATIENCE_S)
    view = RunReader(folder).poll()
    assert view.state.outcome == "completed"
    assert view.state.step == view.state.total_steps == 40
    steps = [event for event in RunReader(folder).events() if isinstance(event, Steps)]
    assert all(later.t - earlier.t < 60 for earlier, later in pairwise(steps))
    losses = view.history.loss.xs  # at most one per second is reported, and always the last
    assert losses[0] <= 16
    assert losses[-1] == 40
    assert [each.step for each in view.state.evaluations] == [20, 40]


def until(terminal: Terminal, words: bytes) -> None:
    """Read the screen until `words` were drawn."""
    seen = b""
    while words not in seen:
        seen += watched(terminal)


def first_run(terminal: Terminal, runs: Path) -> RunFolder:
    """The run that the screen starts."""
    while True:
        folders = [folder for folder in list_runs(runs) if read_supervisor_state(folder.state) is not None]
        if folders:
            return folders[0]
        watched(terminal)


def watched(terminal: Terminal) -> bytes:
    """What the screen draws next; fails where it has ended or too long passed since it was opened."""
    assert not terminal.ended, "the screen ended"
    assert time.perf_counter() - terminal.started_s < PATIENCE_S
    return terminal.read(0.5)
