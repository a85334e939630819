"""A queue in a temporary folder with fake GPUs; what it starts are real processes."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from threading import Event

from tests.runs.sandbox import Sandbox
from tuner_tui.hardware.inventory import Gpu, GpuProcess
from tuner_tui.hardware.sample import GpuSample, HostSample, Sample
from tuner_tui.hardware.sampler import Sampler
from tuner_tui.runs.launch.prepare import prepare
from tuner_tui.runs.queue.queued_run import QueuedRun, memory_folder
from tuner_tui.runs.queue.submission import enqueue
from tuner_tui.runs.queue.waiter import Start, Waiter, start_run
from tuner_tui.runs.store.folder import RunFolder, list_runs
from tuner_tui.settings.job import CommandJob

PATIENCE_S = 300.0
"""A longer wait means that the event will not happen: dozens of processes start on a busy machine."""


def eventually(condition: Callable[[], object], pause_s: float = 0.05) -> None:
    """Wait until the condition holds, by what other processes do."""
    pause, end_s = Event(), time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < end_s, "the condition was never met"
        pause.wait(pause_s)


def fake_gpus(count: int) -> tuple[str, ...]:
    """The UUIDs of so many fake GPUs, as the fake driver has them."""
    return tuple(f"GPU-00000000-0000-0000-0000-{index:012d}" for index in range(count))


class FakeSampler(Sampler):
    """GPUs by their UUIDs, with the processes on them."""

    def __init__(self, uuids: Sequence[str], processes: Mapping[str, GpuProcess] | None = None) -> None:
        self.uuids = uuids
        self.processes = dict(processes or {})
        self.used_bytes = 0

    def gpus(self) -> tuple[Gpu, ...]:
        return tuple(Gpu(index, "Fake", uuid=uuid) for index, uuid in enumerate(self.uuids))

    def sample(self, watched: Sequence[int] = ()) -> Sample:
        figures = tuple(
            GpuSample(
                index,
                "Fake",
                memory_used_bytes=self.used_bytes,
                processes=tuple(process for key, process in self.processes.items() if key == uuid),
            )
            for index, uuid in enumerate(self.uuids)
        )
        return Sample(time.time(), figures, HostSample())


class QueueBox:
    """Run folders, and a waiter that the test steps."""

    def __init__(self, home: Path) -> None:
        home.mkdir(exist_ok=True)
        self.home = home
        self.root = home / "runs"
        self.sandbox = Sandbox(home)
        self.environ = {**os.environ, "TUNER_STATE_DIR": str(home)}

    def add(self, script: str, need: QueuedRun | None = None, command: tuple[str, ...] = ()) -> RunFolder:
        """Queue a training that runs `script` or `command`; it needs one GPU of two, unless `need` says otherwise."""
        request = self.sandbox.request("", job=CommandJob(command=command or (sys.executable, "-c", script)))
        return enqueue(prepare(request), need or QueuedRun(time.time(), 1, fake_gpus(2)))

    def waiter(self, gpus: Sequence[str] | FakeSampler, start: Start = start_run) -> Waiter:
        sampler = gpus if isinstance(gpus, FakeSampler) else FakeSampler(gpus)
        return Waiter(self.root, sampler, start, time.monotonic)

    def folders(self) -> list[RunFolder]:
        """The runs, the oldest first."""
        return list_runs(self.root)[::-1]

    def tuner(self, *words: str) -> str:
        """What a command prints."""
        done = subprocess.run(
            [sys.executable, "-m", "tuner_tui", *words],
            cwd=self.home,
            env={**os.environ, **self.environ},
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def close(self) -> None:
        self.sandbox.folders = self.folders()
        self.sandbox.close()
        shutil.rmtree(memory_folder(self.root), ignore_errors=True)
