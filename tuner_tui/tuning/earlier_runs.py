"""The length of a trial by earlier trials of the same job."""

from __future__ import annotations

import statistics
from itertools import islice
from pathlib import Path

from tuner_tui.runs.read.reader import RunReader
from tuner_tui.runs.store.folder import list_runs
from tuner_tui.runs.store.record import readable_record, redact_job
from tuner_tui.settings.job import Job, same_training

MAX_LISTED = 60
"""Newest runs that are looked at."""
MAX_READ = 8
"""Newest trials of the same job that are read."""


def expected_trial_s(job: Job, root: Path) -> float | None:
    """Return the usual seconds of the newest trials of `job` in `root`; None if there are none. Reads files."""
    redacted = redact_job(job)
    records = ((folder, readable_record(folder)) for folder in list_runs(root)[:MAX_LISTED])
    trials = (
        folder
        for folder, record in records
        if record is not None and record.tuning is not None and same_training(record.job, redacted)
    )
    lengths = []
    for folder in islice(trials, MAX_READ):
        state = RunReader(folder).poll().state
        if state.launched_t is not None and state.finished is not None and state.step:
            lengths.append(max(0.0, state.finished.t - state.launched_t))
    return statistics.median(lengths) if lengths else None
