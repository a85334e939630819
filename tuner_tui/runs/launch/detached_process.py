"""Starting a detached process that receives its input, secrets included, on standard input.

The process outlives the terminal and the screen. Its input is written to no file. It answers `ok` or an error message.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Self

from msgspec import Struct, field, structs, to_builtins

from tuner_tui.core.checked_types import WORD
from tuner_tui.core.procfs import end_group
from tuner_tui.runs.launch.command import LaunchError
from tuner_tui.runs.supervise.run_processes import START_TIMEOUT_S, finish_start, open_detached
from tuner_tui.settings.job import Job, job_from_json


class ProcessSpec(Struct, frozen=True):
    """The input of a detached process: the job with its secrets, and the environment to launch it in."""

    job: Job
    environ: Mapping[str, str] = field(default_factory=dict)

    def dump(self) -> bytes:
        """Return the spec as JSON, in ASCII because environment variables may hold any bytes."""
        return json.dumps({**structs.asdict(self), "job": to_builtins(self.job)}, default=dict).encode("ascii")

    @classmethod
    def load(cls, data: bytes) -> Self:
        """Return the spec from JSON. Raises `ValueError`."""
        try:
            values = json.loads(data)
            if not all(WORD.accepts(word) for pair in values["environ"].items() for word in pair):
                raise ValueError("environ is not an environment")
            return cls(**{**values, "job": job_from_json(values["job"])})
        except (AttributeError, KeyError, TypeError, ValueError, RecursionError) as error:
            raise ValueError(f"The input of the process is damaged: {error}") from error


def start_detached(module: str, folder: Path, spec: ProcessSpec, log: Path, name: str) -> None:
    """Run `python -m module folder` with `spec` as its input; return once it answers that it is ready.

    Raises `LaunchError` with `name` and the answer if it does not start.
    """
    answer = ask_detached(module, [str(folder)], spec.dump(), log, START_TIMEOUT_S)
    if answer != "ok":
        raise LaunchError(f"{name} did not start: {answer or f'see {log}'}.")


def ask_detached(module: str, arguments: Sequence[str], data: bytes, log: Path, timeout_s: float) -> str:
    """Start `python -m module` in a session of its own, which gets `data` on standard input, and return its answer.

    The answer is what it writes to standard output until it closes it. A process that gives none within `timeout_s`
    seconds is ended. Raises `LaunchError` if `log`, its standard error, cannot be written.
    """
    try:
        child = open_detached(module, arguments, log, subprocess.PIPE, subprocess.PIPE)
    except OSError as error:
        raise LaunchError(f"{module} cannot be started: {error.strerror} ({error.filename}).") from error
    answer = finish_start(child, data, timeout_s).decode("utf-8", "replace").strip()
    if not answer:  # it must not start the training later
        end_group(child.pid)
    return answer
