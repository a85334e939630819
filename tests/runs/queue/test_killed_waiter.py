"""The waiter and supervisors are killed at any moment: each run starts once, on GPUs that nobody else has."""

from __future__ import annotations

import json
import os
import random
import signal
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.fakes.nvml.scenario import FakeGpu, Scenario, Wave
from tests.runs.queue.queue_box import QueueBox, eventually, fake_gpus
from tuner_tui.core.procfs import all_processes, read_command_line
from tuner_tui.runs.queue.queued_run import read_queued, revive_waiter
from tuner_tui.runs.store.folder import RunFolder, list_runs, read_supervisor_state

TRAINING = """
import fcntl, os, pathlib, sys, time
places = pathlib.Path(sys.argv[1])
run, GPU = pathlib.Path(os.environ["TUNER_RUN_DIR"]).name, os.environ["CUDA_VISIBLE_DEVICES"]
with (places / GPU).open("w") as lock:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        word = "alone"
    except BlockingIOError:
        word = "clash"
    with (places / "starts").open("a") as starts:
        starts.write(f"{run} {GPU} {word} {sys.argv[2]}\\n")
    time.sleep(1.0)
"""
"""A training that holds its GPU for a second, and says whether somebody else has it."""
RUNS, KILLS = 14, 9


@pytest.mark.full
def test_a_sweep_survives_kills_of_the_waiter_and_of_supervisors(
    box: QueueBox, tmp_path: Path, nvml_library: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    idle = FakeGpu(memory_used=Wave(0), processes=())
    for name, value in Scenario((idle, idle)).environment(nvml_library, tmp_path).items():
        monkeypatch.setenv(name, value)
    script, places = tmp_path / "train.py", tmp_path / "places"
    script.write_text(TRAINING)
    places.mkdir()
    sweep = "seed=" + ",".join(map(str, range(RUNS)))
    command = (sys.executable, str(script), str(places), "{seed}")
    box.tuner("run", "--when-free", "--sweep", sweep, "--", *command)
    chance, killed = random.Random(1), {"waiter": 0, "supervisor": 0}

    def starts() -> list[list[str]]:
        path = places / "starts"
        return [line.split() for line in path.read_text().splitlines()] if path.exists() else []

    def kill_one() -> bool:
        """Kill the waiter or a supervisor of a running training; True once as many were killed as planned."""
        waiters = list(processes_of("tuner_tui.runs.queue.waiter", box.root))
        supervisors = list(supervisors_with_training(box.root))
        kind = chance.choice(["waiter", "supervisor"])
        victims = waiters if kind == "waiter" else supervisors
        if victims:
            with suppress(ProcessLookupError):  # it may have ended since it was listed
                os.kill(chance.choice(victims), signal.SIGKILL)
                killed[kind] += 1
        revive_waiter(box.root)  # what `ps`, `queue` and the screen do
        return sum(killed.values()) >= KILLS or len(starts()) == RUNS

    def all_started() -> bool:
        revive_waiter(box.root)  # again and again: a killed waiter holds its lock until the kernel has ended it
        return len(starts()) == RUNS

    eventually(kill_one, pause_s=0.5)
    eventually(all_started, pause_s=0.5)
    assert sorted(int(seed) for *_, seed in starts()) == list(range(RUNS))  # none lost, none twice
    assert {word for _, _, word, _ in starts()} == {"alone"}
    for run, gpu, _, _ in starts():
        queued = read_queued(RunFolder(box.root / run))
        assert queued is not None
        assert queued.gpu_uuids == (gpu,)
    assert {gpu for _, gpu, _, _ in starts()} == set(fake_gpus(2))
    print(f"killed: {killed}, of {RUNS} runs on 2 GPUs")
    assert sum(killed.values()) >= KILLS
    eventually(lambda: not any(processes_of(str(box.root))) and not any(processes_of(str(places))))
    assert json.loads(box.tuner("queue", "--json")) == []


def processes_of(*words: object) -> Iterator[int]:
    """The processes whose command contains all `words`."""
    for process in all_processes():
        command = " ".join(read_command_line(process.pid))
        if process.pid != os.getpid() and all(str(word) in command for word in words):
            yield process.pid


def supervisors_with_training(root: Path) -> Iterator[int]:
    for folder in list_runs(root):
        state = read_supervisor_state(folder.state)
        if state is not None and state.training is not None and state.outcome is None:
            yield from processes_of("runs.supervise.supervisor", folder.path)
