"""Timeouts of the supervisor use the monotonic clock."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.runs.sandbox import wait_gone
from tuner_tui.core.clock import ClockReading
from tuner_tui.core.line_files import LineAppender
from tuner_tui.core.procfs import ProcessId, identify_process, this_machine
from tuner_tui.runs.events.types import Event, Finished, Phase, Plan, Steps
from tuner_tui.runs.read.reader import RunReader
from tuner_tui.runs.store.codec import encode_event
from tuner_tui.runs.store.folder import Order, RunFolder, SupervisorState, create_folder, write_order
from tuner_tui.runs.supervise.monitor import RunWriter, TrainingMonitor
from tuner_tui.runs.supervise.training_process import StopTimeouts, SupervisedTraining

START_T = 1_700_000_000.0
HOUR_S = 3600.0
PATIENCE = StopTimeouts(stop_s=60.0, kill_s=10.0, saving_s=300.0)


@pytest.fixture
def child() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(
        [sys.executable, "-S", "-c", "import signal\nwhile True: signal.pause()"], start_new_session=True
    ) as started:
        yield started
        started.kill()


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    return create_folder(tmp_path)


def watched(folder: RunFolder, child: subprocess.Popen[bytes], order: Order, *events: Event) -> TrainingMonitor:
    """Return a monitor of `child`, which was given an order and has written `events`."""
    appender = LineAppender(folder.events)
    for event in events:
        appender.append(encode_event(event))
    appender.close()
    write_order(folder.control, order)
    process = identify_process(child.pid)
    assert process is not None
    journal = RunWriter(folder, SupervisorState(this_machine(), ProcessId(1, 0), START_T, process))
    return TrainingMonitor(folder, SupervisedTraining(process), journal, PATIENCE)


def looks(watch: TrainingMonitor, *moments: tuple[float, float]) -> None:
    """One look at each moment: seconds after the start by the clock of the day, and by the one that goes on."""
    for after_t, s in moments:
        watch.done(ClockReading(START_T + after_t, s))


STOP, SAVE = Plan(t=START_T, obeys=True), Phase(t=START_T, phase="saving")


@pytest.mark.parametrize(
    ("order", "event", "moments", "ended_by"),
    [
        ("stop", STOP, [(HOUR_S, 1), (HOUR_S, 59)], signal.SIGKILL),  # a clock set forward ends no grace
        ("stop", STOP, [(-HOUR_S, 61)], signal.SIGTERM),  # one that is set back prolongs none
        ("terminate", SAVE, [(HOUR_S, 2), (HOUR_S, 299)], signal.SIGKILL),  # no checkpoint is cut short
        ("terminate", SAVE, [(-HOUR_S, 302)], signal.SIGTERM),  # a hung save is waited for no longer
    ],
)
def test_a_clock_that_is_set_changes_no_timeout(
    folder: RunFolder,
    child: subprocess.Popen[bytes],
    order: Order,
    event: Plan | Phase,
    moments: list[tuple[float, float]],
    ended_by: signal.Signals,
) -> None:
    watch = watched(folder, child, order, event)
    looks(watch, (1, 1), *moments)
    if ended_by == signal.SIGKILL:
        child.kill()  # no SIGTERM came before
    assert child.wait(300) == -ended_by


TRAINER_WITH_WORKER = """
import os, signal, sys
if os.fork() == 0:
    with open("/proc/self/comm", "w") as file:
        file.write("pt_data_worker")
    print(os.getpid(), flush=True)
while True: signal.pause()
"""


def test_loader_workers_end_with_their_trainer(folder: RunFolder) -> None:
    """Without waiting for the five seconds after which torch's workers notice that it is gone."""
    command = [sys.executable, "-S", "-c", TRAINER_WITH_WORKER]
    environ = {"TUNER_RUN_DIR": str(folder.path)}
    with subprocess.Popen(command, start_new_session=True, stdout=subprocess.PIPE, env=environ) as trainer:
        assert trainer.stdout is not None
        worker = identify_process(int(trainer.stdout.readline()))
        assert worker is not None
        monitor = watched(folder, trainer, "stop")
        looks(monitor, (0, 0))
        assert trainer.wait(300) == -signal.SIGTERM
        looks(monitor, (0, 0.1))
        wait_gone(worker)
        assert monitor.done(ClockReading(START_T, 0.2)) is True


def test_a_run_whose_folder_was_deleted_leaves_the_next_of_its_name_alone(
    folder: RunFolder, child: subprocess.Popen[bytes]
) -> None:
    watch = watched(folder, child, "checkpoint")
    looks(watch, (0, 0))
    shutil.rmtree(folder.path)
    assert create_folder(folder.path.parent) == folder
    write_order(folder.control, "kill")  # the other run's
    looks(watch, (1, 1))
    child.kill()
    assert child.wait(300) == -signal.SIGKILL
    assert watch.done(ClockReading(START_T + 2, 2)) is True
    assert [path.name for path in folder.path.iterdir()] == ["control"]


def test_the_end_names_the_loss_that_the_last_line_says(folder: RunFolder, child: subprocess.Popen[bytes]) -> None:
    watch = watched(folder, child, "checkpoint", Steps(t=START_T, rank=0, step=40, own_steps=40, train_s=4.0))
    looks(watch, (0, 0))
    folder.output_log.write_text("step 38 loss 0.5000\nstep 40 loss 0.2500\n")
    child.kill()
    assert child.wait(300) == -signal.SIGKILL
    assert watch.done(ClockReading(START_T + 0.5, 0.5)) is True
    assert [event.loss for event in RunReader(folder).events() if isinstance(event, Finished)] == [0.25]
