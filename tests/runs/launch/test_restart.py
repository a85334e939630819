"""Restarting a run: the plan, refusals before anything is stopped, and real restarts."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path

import pytest
from msgspec.structs import replace

from tests.runs.sandbox import QUICK_STOP, Fifo, Sandbox, supervisor_state, wait_ended
from tuner_tui.core.redaction import HIDDEN
from tuner_tui.runs.events.types import Event, Plan, Steps
from tuner_tui.runs.launch.command import LaunchError
from tuner_tui.runs.launch.prepare import NoCheckpointError
from tuner_tui.runs.launch.restart import plan_restart, restart
from tuner_tui.runs.read.status import read_status
from tuner_tui.runs.store.codec import encode_event
from tuner_tui.runs.store.folder import RunFolder, read_order, send_order
from tuner_tui.runs.store.record import read_record
from tuner_tui.settings.job import CommandJob
from tuner_tui.settings.model import Origin, OriginKind

TRAINER = """
    import json, os, signal, sys
    out, fifo = sys.argv[1], sys.argv[2]
    resumed = sys.argv[4] if len(sys.argv) > 4 else "nothing"
    def say(word):
        with open(fifo, "w") as file:
            file.write(word + "\\n")
    def save(*_):
        path = os.path.join(out, "checkpoint-7")
        os.makedirs(path, exist_ok=True)
        for name in ("model.safetensors", "optimizer.pt"):
            open(os.path.join(path, name), "w").write("x")
        with open(os.path.join(path, "trainer_state.json"), "w") as file:
            json.dump({"global_step": 7}, file)
        say("saved")
        sys.exit(0)
    signal.signal(signal.SIGTERM, save)
    say(resumed)
    while True:
        signal.pause()
"""
"""Saves when it is terminated, as a Trainer with enable_jit_checkpoint does, and says what it resumes from."""


def trainer(box: Sandbox, fifo: Fifo, *words: str) -> RunFolder:
    return box.launch(TRAINER, "{output_dir}", str(fifo.path), *words)


def tell(folder: RunFolder, *events: Event) -> None:
    with folder.events.open("ab") as file:
        file.write(b"".join(map(encode_event, events)))


def seen_to_train(folder: RunFolder) -> None:
    """What the observer tells of a Trainer at step 5."""
    now = time.time()
    tell(
        folder, Plan(t=now, rank=0, total_steps=10, obeys=True), Steps(t=now, rank=0, step=5, own_steps=5, train_s=1.0)
    )


def test_a_running_trainer_saves_ends_and_goes_on(box: Sandbox, fifo: Fifo) -> None:
    folder = trainer(box, fifo, "--resume", "{checkpoint}")
    assert fifo.word() == "nothing"
    seen_to_train(folder)
    before = read_record(folder).resolved
    second = replace(
        before,
        settings=before.settings.changed(seed=7),
        origins={"seed": Origin(OriginKind.REMEDY, "test")},
    )
    plan = plan_restart(folder, resolved=second, stop_timeouts=QUICK_STOP)
    assert (plan.live, plan.saves, plan.step, plan.lost_steps) == (True, True, 5, 0)
    assert read_status(folder).kind == "running"
    new = restart(plan)
    box.folders.append(new)
    checkpoint = folder.output / "checkpoint-7"
    words = fifo.word().split()
    assert (words if len(words) == 2 else [*words, fifo.word()]) == ["saved", str(checkpoint)]
    assert read_status(folder).outcome == "stopped"
    record = read_record(new)
    assert (record.parent, record.lineage, record.resumed_from) == (folder.id, (folder.id,), str(checkpoint))
    assert record.resolved == second
    send_order(new, "terminate")
    assert wait_ended(new).outcome == "stopped"


def test_what_cannot_be_restarted_is_found_before_the_run_is_stopped(box: Sandbox, fifo: Fifo) -> None:
    folder = trainer(box, fifo)
    fifo.word()
    with pytest.raises(NoCheckpointError, match="no complete checkpoint"):
        plan_restart(folder)
    with pytest.raises(LaunchError, match="secret"):
        plan_restart(folder, job=CommandJob(command=("x",), env={"HF_TOKEN": HIDDEN}))
    path = folder.output / "checkpoint-3"
    path.mkdir()
    for name in ("model.safetensors", "optimizer.pt"):
        (path / name).write_text("x")
    (path / "trainer_state.json").write_text(json.dumps({"global_step": 3}))
    with pytest.raises(LaunchError, match=r"put \{checkpoint\}"):
        plan_restart(folder)
    seen_to_train(folder)
    with pytest.raises(LaunchError, match="not found"):
        plan_restart(folder, job=CommandJob(command=("no-such-program", "{checkpoint}")))
    assert read_status(folder).kind == "running"
    assert read_order(folder.control) is None
    send_order(folder, "kill")
    wait_ended(folder)


def test_a_run_deaf_to_the_order_is_not_doubled(box: Sandbox, fifo: Fifo) -> None:
    deaf = "import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
    say = "import sys\nopen(sys.argv[1], 'w').write('up')\nwhile True: signal.pause()\n"
    folder = box.launch(deaf + say, str(fifo.path))
    fifo.word()
    seen_to_train(folder)
    runs = len(list(folder.path.parent.iterdir()))
    with pytest.raises(LaunchError, match="did not save and stop"):
        restart(plan_restart(folder, job=CommandJob(command=("true", "{checkpoint}"))), timeout_s=0.5)
    assert len(list(folder.path.parent.iterdir())) == runs
    training = supervisor_state(folder).training
    assert training is not None
    os.kill(training.pid, signal.SIGKILL)
    wait_ended(folder)


def test_a_folder_without_a_record(tmp_path: Path) -> None:
    with pytest.raises(LaunchError):
        plan_restart(RunFolder(tmp_path / "r009"))
