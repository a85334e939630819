"""Launches small scripts as real trainings, and waits for what they do."""

from __future__ import annotations

import os
import select
import signal
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from tuner_tui.core.procfs import ProcessId, identify_process, is_alive
from tuner_tui.runs.launch.prepare import LaunchRequest, prepare
from tuner_tui.runs.launch.start import launch
from tuner_tui.runs.store.folder import RunFolder, SupervisorState, read_supervisor_state
from tuner_tui.runs.supervise.training_process import StopTimeouts
from tuner_tui.settings.job import CommandJob
from tuner_tui.settings.model import Resolved, Settings

TIMEOUT_S = 400.0
"""A longer wait means that the event will not happen. On a busy machine two ranks take minutes to import."""
QUICK_STOP = StopTimeouts(stop_s=0.2, kill_s=0.2, saving_s=30.0, orphan_s=0.5)


class Sandbox:
    """Launches scripts in a temporary folder and kills what is left at the end."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.folders: list[RunFolder] = []

    def request(
        self, script: str, *words: str, memory_limit_bytes: int | None = None, job: CommandJob | None = None
    ) -> LaunchRequest:
        """A request that runs `script`, written to `train.py`, with this Python and `words`, or by `job`."""
        path = self.root / "train.py"
        path.write_text(textwrap.dedent(script))
        return LaunchRequest(
            job=job or CommandJob(command=(sys.executable, str(path), *words)),
            resolved=Resolved(Settings()),
            interpreter=sys.executable,
            cwd=self.root,
            memory_limit_bytes=memory_limit_bytes,
            root=self.root / "runs",
            stop_timeouts=QUICK_STOP,
        )

    def launch(
        self, script: str, *words: str, memory_limit_bytes: int | None = None, job: CommandJob | None = None
    ) -> RunFolder:
        folder = launch(prepare(self.request(script, *words, memory_limit_bytes=memory_limit_bytes, job=job)))
        self.folders.append(folder)
        return folder

    def close(self) -> None:
        """Kill what a failed test left running."""
        for folder in self.folders:
            supervision = read_supervisor_state(folder.state)
            if supervision is not None and supervision.outcome is None:
                for process in (supervision.training, supervision.supervisor):
                    if process is not None and is_alive(process):
                        os.kill(process.pid, signal.SIGKILL)


@pytest.fixture
def box(tmp_path: Path) -> Iterator[Sandbox]:
    made = Sandbox(tmp_path)
    yield made
    made.close()


def supervisor_state(folder: RunFolder) -> SupervisorState:
    supervision = read_supervisor_state(folder.state)
    assert supervision is not None
    return supervision


def wait_gone(process: ProcessId, timeout_s: float = TIMEOUT_S) -> None:
    """Block until the process has ended with all of its threads, and so its locks are free."""
    try:
        descriptor = os.pidfd_open(process.pid)
    except ProcessLookupError:
        return
    try:
        if identify_process(process.pid) == process:  # also a zombie, whose threads may still be ending
            assert select.select([descriptor], [], [], timeout_s)[0], f"{process} did not end"
    finally:
        os.close(descriptor)


def wait_ended(folder: RunFolder) -> SupervisorState:
    """Block until the run's supervisor has ended; return its last state."""
    wait_gone(supervisor_state(folder).supervisor)
    return supervisor_state(folder)


class Fifo:
    """The reading end of a named pipe to which a script writes words."""

    def __init__(self, path: Path) -> None:
        os.mkfifo(path)
        self.path = path
        self._descriptor = os.open(path, os.O_RDWR)  # so that neither end ever sees the other missing

    def word(self) -> str:
        """The next word."""
        assert select.select([self._descriptor], [], [], TIMEOUT_S)[0], "nobody wrote"
        return os.read(self._descriptor, 4096).decode().strip()

    def close(self) -> None:
        os.close(self._descriptor)


@pytest.fixture
def fifo(tmp_path: Path) -> Iterator[Fifo]:
    made = Fifo(tmp_path / "fifo")
    yield made
    made.close()
