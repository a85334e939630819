"""The supervisor's patience, by a clock that nobody sets."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tuner_tui.runs.append import Appender
from tuner_tui.runs.codec import encode
from tuner_tui.runs.control import Order, write_order
from tuner_tui.runs.events import Phase, Plan
from tuner_tui.runs.folder import RunFolder, create_folder
from tuner_tui.runs.journal import Journal
from tuner_tui.runs.ladder import Patience
from tuner_tui.runs.moment import Moment
from tuner_tui.runs.processes import ProcessId, identify, this_machine
from tuner_tui.runs.supervision import Supervision
from tuner_tui.runs.training import AdoptedTraining
from tuner_tui.runs.watch import Watch

START_T = 1_700_000_000.0
HOUR_S = 3600.0
PATIENCE = Patience(stop_s=60.0, kill_s=10.0, saving_s=300.0)


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


def watched(folder: RunFolder, child: subprocess.Popen[bytes], order: Order, *events: Plan | Phase) -> Watch:
    """A watch over `child`, which was given an order and has told of `events`."""
    appender = Appender(folder.events)
    for event in events:
        appender.append(encode(event))
    appender.close()
    write_order(folder.control, order)
    process = identify(child.pid)
    assert process is not None
    journal = Journal(folder, Supervision(this_machine(), ProcessId(1, 0), START_T, process, child.pid))
    return Watch(folder, AdoptedTraining(process, child.pid), journal, PATIENCE)


def looks(watch: Watch, *moments: tuple[float, float]) -> None:
    """One look at each moment: seconds after the start by the clock of the day, and by the one that goes on."""
    for after_t, s in moments:
        watch.done(Moment(START_T + after_t, s))


def test_a_clock_set_forward_ends_no_grace(folder: RunFolder, child: subprocess.Popen[bytes]) -> None:
    watch = watched(folder, child, "stop", Plan(t=START_T, obeys=True))
    looks(watch, (0, 0), (HOUR_S, 1), (HOUR_S, 59))
    child.kill()
    assert child.wait(60) == -signal.SIGKILL  # no SIGTERM came before


def test_a_clock_set_back_prolongs_none(folder: RunFolder, child: subprocess.Popen[bytes]) -> None:
    watch = watched(folder, child, "stop", Plan(t=START_T, obeys=True))
    looks(watch, (0, 0), (-HOUR_S, 61))
    assert child.wait(60) == -signal.SIGTERM


def test_no_checkpoint_is_cut_short_by_a_clock(folder: RunFolder, child: subprocess.Popen[bytes]) -> None:
    watch = watched(folder, child, "terminate", Phase(t=START_T, phase="saving"))
    looks(watch, (1, 1), (HOUR_S, 2), (HOUR_S, 299))
    child.kill()
    assert child.wait(60) == -signal.SIGKILL


def test_a_hung_save_is_waited_for_no_longer(folder: RunFolder, child: subprocess.Popen[bytes]) -> None:
    watch = watched(folder, child, "terminate", Phase(t=START_T, phase="saving"))
    looks(watch, (1, 1), (-HOUR_S, 302))
    assert child.wait(60) == -signal.SIGTERM


def test_this_moment() -> None:
    before = time.time(), time.monotonic()
    now = Moment.now()
    assert (now.t, now.s) >= before


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
    assert child.wait(60) == -signal.SIGKILL
    assert watch.done(Moment(START_T + 2, 2)) is True
    assert [path.name for path in folder.path.iterdir()] == ["control"]
