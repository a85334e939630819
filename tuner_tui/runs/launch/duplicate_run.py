"""Finds a live run of the same training, so that it is not started twice by mistake."""

from __future__ import annotations

from tuner_tui.runs.launch.prepare import LaunchRequest, working_folder
from tuner_tui.runs.read.status import read_status
from tuner_tui.runs.store.folder import RunFolder, list_runs, runs_dir
from tuner_tui.runs.store.record import RecordError, read_record, redact_job
from tuner_tui.settings.job import same_training


def find_duplicate_run(request: LaunchRequest) -> RunFolder | None:
    """A live run of the same job, chosen settings and folder; or the run to resume, if it is still live."""
    for folder in list_runs(request.root or runs_dir(request.environ)):
        if read_status(folder).live and (_same(folder, request) or _is_parent(folder, request)):
            return folder
    return None


def _same(folder: RunFolder, request: LaunchRequest) -> bool:
    try:
        record = read_record(folder)
    except RecordError:
        return False
    # What is recommended may differ from one minute to the next: the living run itself holds memory of the card.
    return same_training(record.job, redact_job(request.job)) and (record.resolved.given, record.cwd) == (
        request.resolved.given,
        str(working_folder(request)),
    )


def _is_parent(folder: RunFolder, request: LaunchRequest) -> bool:
    return request.parent is not None and request.parent.path == folder.path
