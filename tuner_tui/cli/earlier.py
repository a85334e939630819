"""The runs of this box that tell how fast a job goes."""

from __future__ import annotations

from pathlib import Path

from tuner_tui.advice.recommend.duration_estimate import EarlierRun, earlier_run
from tuner_tui.runs.read.reader import RunReader
from tuner_tui.runs.store.folder import RunFolder, list_runs
from tuner_tui.runs.store.record import RecordError, read_record
from tuner_tui.settings.job import BuiltinJob, CommandJob, same_training

MOST_LOOKED_AT = 50
MOST_READ = 8


def earlier_runs(job: BuiltinJob | CommandJob, root: Path) -> tuple[EarlierRun, ...]:
    """Runs of the same job, newest first; a run whose record cannot be read is passed over."""
    same = [folder for folder in list_runs(root)[:MOST_LOOKED_AT] if _trains(folder, job)][:MOST_READ]
    found = (earlier_run(RunReader(folder).poll()) for folder in same)
    return tuple(one for one in found if one is not None)


def _trains(folder: RunFolder, job: BuiltinJob | CommandJob) -> bool:
    try:
        return same_training(read_record(folder).job, job)
    except RecordError:
        return False
