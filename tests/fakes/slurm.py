"""A Slurm controller that answers from a table, and runs that were submitted to it."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

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
