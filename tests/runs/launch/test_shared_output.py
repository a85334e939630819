"""Live runs that write to one folder."""

from __future__ import annotations

import sys
import time

from tests.runs.sandbox import Fifo, Sandbox, supervisor_state, wait_gone
from tuner_tui.advice.diagnose import diagnose
from tuner_tui.advice.situation import situation_of_run
from tuner_tui.runs.events.types import Saved
from tuner_tui.runs.launch.prepare import launch_summary, prepare
from tuner_tui.runs.launch.start import launch
from tuner_tui.runs.store.codec import encode_event
from tuner_tui.runs.store.record import read_record
from tuner_tui.settings.job import CommandJob

WAITS = """
    import signal, sys
    open(sys.argv[1], "w").write("up\\n")
    signal.pause()
"""


def job(box: Sandbox, fifo: Fifo, *words: str) -> CommandJob:
    return CommandJob(command=(sys.executable, "train.py", str(fifo.path), *words))


def test_a_folder_that_both_commands_name(box: Sandbox, fifo: Fifo) -> None:
    first = box.launch(WAITS, job=job(box, fifo, "--output_dir", "out"))
    fifo.word()
    second = prepare(box.request(WAITS, job=job(box, fifo, f"--out-dir={box.root}/x/../out")))
    warning = f"run {first.id} writes to {box.root}/out too"
    assert second.shared_outputs == (warning,)
    assert ("Warning", f"{warning}: checkpoints overwrite each other") in launch_summary(second)
    folder = launch(second)
    box.folders.append(folder)
    [finding] = [finding for finding in diagnose(situation_of_run(folder)) if finding.cause == "shared-output"]
    assert warning in finding.sentence
    assert prepare(box.request(WAITS, job=job(box, fifo, "--output_dir", "other"))).shared_outputs == ()
    box.close()
    for ended in (first, folder):
        training = supervisor_state(ended).training
        assert training is not None
        wait_gone(training)
    third = launch(second)
    box.folders.append(third)
    assert read_record(third).shared_outputs == (), "the first has ended since"


def test_a_file_that_the_script_always_saves(box: Sandbox, fifo: Fifo) -> None:
    first = box.launch(WAITS, job=job(box, fifo, "1"))
    fifo.word()
    again = box.request(WAITS, job=job(box, fifo, "2"))
    assert prepare(again).shared_outputs == (), "it has saved nothing yet"
    path = str(box.root / "checkpoint.pth.tar")
    with first.events.open("ab") as file:
        file.write(encode_event(Saved(t=time.time(), rank=0, step=3, path=path)))
    assert prepare(again).shared_outputs == (f"run {first.id} writes to {path} too",)
