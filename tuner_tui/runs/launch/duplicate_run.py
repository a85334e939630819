"""Finds a live run of the same training, so that it is not started twice by mistake."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tuner_tui.core.files import LockedError, acquire_lock
from tuner_tui.runs.launch.command import LaunchError
from tuner_tui.runs.launch.prepare import LaunchRequest, working_folder
from tuner_tui.runs.read.status import read_status
from tuner_tui.runs.store.folder import RunFolder, list_runs, runs_dir
from tuner_tui.runs.store.record import RecordError, read_record, redact_job
from tuner_tui.runs.supervise.orphans import ProcessSnapshot
from tuner_tui.settings.job import same_training

LAUNCH_LOCK = "launch.lock"
LOCK_TIMEOUT_S = 30.0
"""A launch holds the lock while it looks for a duplicate and writes its folder: a fraction of a second."""


class DuplicateRunError(LaunchError):
    """The same training already runs."""

    def __init__(self, duplicate: RunFolder) -> None:
        super().__init__(
            f"This training is already running as {duplicate.id}; `tuner-tui attach {duplicate.id}` follows it."
        )


@contextmanager
def exclusive_launch(root: Path) -> Iterator[None]:
    """Let one launch at a time look for a duplicate and write its folder, so that none misses the other.

    Raises `LaunchError` where another launch takes too long, and `OSError`.
    """
    root.mkdir(parents=True, exist_ok=True, mode=0o700)
    try:
        lock = acquire_lock(root / LAUNCH_LOCK, LOCK_TIMEOUT_S)
    except LockedError as error:
        raise LaunchError("Another launch is taking too long; try again later.") from error
    try:
        yield
    finally:
        os.close(lock)


def find_duplicate_run(request: LaunchRequest) -> RunFolder | None:
    """A live run of the same job, chosen settings and folder; or the run to resume, if it is still live."""
    snapshot = ProcessSnapshot()
    for folder in list_runs(request.root or runs_dir(request.environ)):
        if read_status(folder, snapshot=snapshot).live and (_same(folder, request) or _is_parent(folder, request)):
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
