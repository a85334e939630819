"""The length of a trial by earlier runs of the same job."""

from __future__ import annotations

import statistics
from pathlib import Path

from tuner_tui.runs.events.run_state import RunState
from tuner_tui.runs.read.reader import RunReader
from tuner_tui.runs.store.folder import list_runs
from tuner_tui.runs.store.record import readable_record, redact_job
from tuner_tui.settings.job import Job, same_training

MAX_LISTED = 60
"""Newest runs that are looked at."""
MAX_READ = 8
"""Trials, and whole runs, of the same job that are read."""
MEASURED_S = 3.0
"""Typical seconds from the first step of a trial to its end,"""
MEASURED_STEPS = 5
"""and the least number of steps in them."""


def expected_trial_s(job: Job, root: Path) -> float | None:
    """Return the seconds that a trial of `job` takes by the newest runs in `root`; None if none tells. Reads files.

    As trials did, else by the start-up and step time of whole runs.
    """
    trials, whole = _runs_of(job, root)
    lengths = [seconds for state in trials if (seconds := _trial_s(state)) is not None]
    lengths = lengths or [seconds for state in whole if (seconds := _shortest_s(state)) is not None]
    return statistics.median(lengths) if lengths else None


def _runs_of(job: Job, root: Path) -> tuple[list[RunState], list[RunState]]:
    """The newest trials and the newest whole runs of `job`."""
    redacted = redact_job(job)
    trials: list[RunState] = []
    whole: list[RunState] = []
    for folder in list_runs(root)[:MAX_LISTED]:
        record = readable_record(folder)
        if record is None or not same_training(record.job, redacted):
            continue
        kind = whole if record.tuning is None else trials
        if len(kind) < MAX_READ:
            kind.append(RunReader(folder).poll().state)
    return trials, whole


def _trial_s(state: RunState) -> float | None:
    """Seconds of a trial that took steps, from its launch to its end."""
    if state.launched_t is None or state.finished is None or not state.step:
        return None
    return max(0.0, state.finished.t - state.launched_t)


def _shortest_s(state: RunState) -> float | None:
    """Seconds that a trial of a whole run's training takes: its start-up, and some steps."""
    if state.launched_t is None or state.training_since_t is None:
        return None
    steps_s = MEASURED_STEPS * (state.rates.step_time_s or 0.0)
    return max(0.0, state.training_since_t - state.launched_t) + max(MEASURED_S, steps_s)
