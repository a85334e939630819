"""A Slurm controller that answers from a table, runs that were submitted to it, and a cluster of this machine."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from tuner_tui.runs.slurm import SEPARATOR, SlurmError, SlurmJob, read_job, write_job


@dataclass
class FakeSlurm:
    """Answers `squeue` with these rows, or not at all."""

    queue: list[tuple[str, ...]] = field(default_factory=list)
    down: bool = False
    calls: list[str] = field(default_factory=list)

    def __call__(self, command: Sequence[str]) -> str:
        self.calls.append(command[0])
        if self.down:
            raise SlurmError("The Slurm controller does not answer squeue.")
        return "\n".join(SEPARATOR.join(row) for row in self.queue)


def submitted(state_dir: Path, number: int) -> SlurmJob:
    """The job of a new run folder; both have this number."""
    run = state_dir / "runs" / f"r{number:03}"
    run.mkdir(parents=True)
    job = SlurmJob(time.time() - 60, str(number))
    write_job(run, job)
    assert read_job(run) == job
    return job


def row(number: int, state: str) -> tuple[str, ...]:
    """A job on node n1, as `squeue` lists it."""
    return (str(number), state, "n1", "N/A", "None")


REQUEST = """#!/bin/sh
env -0 >"$FAKE_SLURM/requests/$$.env"
printf '%s\\0' "$(basename "$0")" "$@" >"$FAKE_SLURM/requests/$$.new"
mv "$FAKE_SLURM/requests/$$.new" "$FAKE_SLURM/requests/$$"
"""
COMMANDS = {
    "sbatch": REQUEST + "echo 7\n",
    "scancel": REQUEST,
    "scontrol": REQUEST,
    "squeue": '#!/bin/sh\ncat "$FAKE_SLURM/queue"\n',
}
"""Commands leave a file and never wait. What they start would end with them, so the cluster starts the job."""


class FakeCluster:
    """A cluster of this one machine that runs one job, number 7, by programs named like those of Slurm in `bin`.

    A context manager: a thread of it starts, requeues and cancels the job as the programs ask.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.bin = folder / "bin"
        self.job: subprocess.Popen[bytes] | None = None
        self.env: dict[str, str] = {}
        self.script = ""
        self.requeued = self.cancelled = False
        self.holds = False
        """Whether a requeued job stays in the queue."""
        self.calls: list[list[str]] = []
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run)
        for name in ("bin", "requests"):
            (folder / name).mkdir()
        for name, text in COMMANDS.items():
            (self.bin / name).write_text(text)
            (self.bin / name).chmod(0o755)
        self._publish("")

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._end.set()
        self._thread.join()
        if self.job is not None:
            with suppress(ProcessLookupError):
                os.killpg(self.job.pid, signal.SIGKILL)
            self.job.wait()

    def send(self, number: signal.Signals) -> None:
        """Signal the script of the job, as Slurm does for `--signal=B:…`."""
        assert self.job is not None
        self.job.send_signal(number)

    def _run(self) -> None:
        while not self._end.wait(0.01):
            for path in sorted(self.folder.glob("requests/*[0-9]")):
                self._take(path)
            if self.job is None:
                continue
            code = self.job.poll()
            if code is not None and self.requeued and not self.cancelled and not self.holds:
                self._start()
            state = "COMPLETING" if self.cancelled or self.requeued else "RUNNING"
            if code is not None:
                state = "CANCELLED" if self.cancelled else "PENDING" if self.requeued else "COMPLETED"
            self._publish(state)

    def _take(self, path: Path) -> None:
        words = path.read_text().split("\0")[:-1]
        path.unlink()
        self.calls.append(words)
        if words[0] == "sbatch":
            entries = path.with_suffix(".env").read_text().split("\0")[:-1]
            self.env = dict(entry.partition("=")[::2] for entry in entries)
            self.script = words[-1]
            self._start()
        elif words[:2] == ["scontrol", "requeue"]:
            self.requeued = True
        elif words[0] == "scancel":
            self.cancelled = True
            if self.job is not None and self.job.poll() is None:
                self.send(signal.SIGTERM)

    def _start(self) -> None:
        self.requeued = False
        with Path(self.script).with_name("slurm.log").open("ab") as log:
            self.job = subprocess.Popen(
                ["sh", self.script],
                env={**self.env, "SLURM_JOB_ID": "7"},
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def _publish(self, state: str) -> None:
        new = self.folder / "queue.new"
        new.write_text(SEPARATOR.join(row(7, state)) + "\n" if state else "")
        new.replace(self.folder / "queue")
