"""One tuning at a time on a machine, however closely two of them begin: real processes."""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path

import pytest

from tests.tuning.builders import resolved
from tuner_tui.core.files import acquire_lock, wait_unlocked
from tuner_tui.runs.launch.prepare import LaunchRequest
from tuner_tui.settings.job import CommandJob
from tuner_tui.tuning.create import TunerSpec, create_tuning, start_tuning
from tuner_tui.tuning.store import AlreadyTuningError, TuningFolder, TuningOptions, list_tunings, tunings_dir

WAITS = "import signal\nwhile True: signal.pause()"


class State:
    """A state directory, and the tunings of a command that waits for ever."""

    def __init__(self, root: Path) -> None:
        self.environ = {**os.environ, "TUNER_STATE_DIR": str(root), "OMP_NUM_THREADS": "1"}
        self.root = tunings_dir(self.environ)
        self.job = CommandJob(command=(sys.executable, "-c", WAITS), apply="inject")
        self._request = LaunchRequest(
            job=self.job, resolved=resolved(), interpreter=sys.executable, cwd=root, environ=self.environ
        )

    def new(self) -> TuningFolder:
        return create_tuning(self._request, TuningOptions())

    def start(self, folder: TuningFolder) -> None:
        start_tuning(folder, TunerSpec(self.job, self.environ))


@pytest.fixture
def state(tmp_path: Path) -> State:
    return State(tmp_path)


@pytest.mark.full
def test_of_two_that_begin_in_the_same_moment_one_tunes_and_nothing_of_the_other_is_left(state: State) -> None:
    folders = [state.new(), state.new()]
    both = threading.Barrier(2)
    refused: list[TuningFolder] = []

    def begin(folder: TuningFolder) -> None:
        both.wait()
        try:
            state.start(folder)
        except AlreadyTuningError:
            refused.append(folder)

    threads = [threading.Thread(target=begin, args=(folder,)) for folder in folders]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    live = [folder for folder in folders if folder not in refused]
    try:
        assert len(refused) == 1
        assert [folder.live for folder in live] == [True]
        assert list_tunings(state.root) == live
    finally:
        for folder in live:
            folder.abort()
            wait_unlocked(folder.lock)


def test_a_box_whose_turn_is_taken_is_told_so(state: State) -> None:
    folder = state.new()
    turn = acquire_lock(folder.machine_lock)
    with pytest.raises(AlreadyTuningError, match="starting on this machine"):
        state.start(folder)
    os.close(turn)
    assert list_tunings(state.root) == []


def test_a_tuning_that_has_trials_stays_where_it_may_not_go_on_now(state: State) -> None:
    folder = state.new()
    folder.trials.write_bytes(b"")
    turn = acquire_lock(folder.machine_lock)
    with pytest.raises(AlreadyTuningError):
        state.start(folder)
    os.close(turn)
    assert list_tunings(state.root) == [folder]
