"""Runs that ended out of memory, as states and situations."""

from __future__ import annotations

from typing import Any

from tests.fakes.situations import box
from tuner_tui.advice.situation import Situation
from tuner_tui.runs.events.run_state import RunState
from tuner_tui.runs.events.types import Exited, Finished, OutOfMemory
from tuner_tui.settings.job import BuiltinJob, CommandJob
from tuner_tui.settings.model import Origin, OriginKind, Resolved, Settings
from tuner_tui.tuning.store import TuningRecord

CUDA = "CUDA out of memory. Tried to allocate 2.00 GiB."
SCRIPT = CommandJob(command=("python", "train.py"), apply="inject")


def resolved(**values: Any) -> Resolved:
    """Settings of a preset, every value chosen."""
    return Resolved(Settings(**values), dict.fromkeys(values, Origin(OriginKind.PRESET, "mine")))


def tuning_record(start: Resolved | None = None, **changes: Any) -> TuningRecord:
    """The record of a tuning of `SCRIPT` from `start`."""
    record: dict[str, Any] = {"job": SCRIPT, "cwd": "/", "most_minutes": 9.0, **changes}
    return TuningRecord(id="t001", title="x", created_t=1.0, resolved=start or resolved(), **record)


def oom_state(where: str | None = "training", message: str = CUDA, **changes: Any) -> RunState:
    """A run that ended out of memory at step 7."""
    fields: dict[str, Any] = {
        "step": 7,
        "launched_t": 1.0,
        "accepts_orders": True,
        "exited": Exited(t=9.0, exit_code=1),
        "finished": Finished(t=9.0, outcome="out-of-memory"),
        "out_of_memory": OutOfMemory(t=8.0, message=message, where=where, step=7),
    }
    return RunState(**{**fields, **changes})


def oom_situation(
    settings: Resolved, state: RunState | None = None, job: BuiltinJob | CommandJob | None = None
) -> Situation:
    """The situation of such a run on a machine without a GPU."""
    return Situation(state or oom_state(), 10.0, settings.settings, box(), job=job or BuiltinJob())
