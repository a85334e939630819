"""Runs as the real program lists, reads and orders them. Imports of weight stand inside the calls."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tuner_tui.ui.services import RunLine
from tuner_tui.ui.spoken import spoken

if TYPE_CHECKING:
    from tuner_tui.runs.control import Order
    from tuner_tui.runs.folder import RunFolder
    from tuner_tui.runs.status import RunStatus
    from tuner_tui.ui.services import Log, RunFollower

MOST_LISTED = 200


def runs() -> Sequence[RunLine]:
    """The newest runs, newest first."""
    from tuner_tui.runs.folder import list_runs, runs_dir
    from tuner_tui.runs.status import status

    with spoken():
        folders = list_runs(runs_dir())[:MOST_LISTED]
        return [_line(folder, status(folder)) for folder in folders]


def _line(folder: RunFolder, now: RunStatus) -> RunLine:
    from tuner_tui.runs.record import RecordError, read_record

    try:
        trains = read_record(folder).what
    except RecordError:
        trains = ""
    return RunLine(folder.id, folder.path, now.outcome or now.kind, now.sentence, trains)


def follow(folder: Path) -> RunFollower:
    """Reads the run in `folder`, from where it left off."""
    from tuner_tui.runs.folder import RunFolder
    from tuner_tui.runs.reader import RunReader

    return RunReader(RunFolder(folder))


def open_log(folder: Path) -> Log:
    """Windows on what the run printed."""
    from tuner_tui.runs.folder import RunFolder
    from tuner_tui.runs.log import LogReader

    return LogReader(RunFolder(folder).output_log)


def order(folder: Path, order: Order) -> None:
    """Asks something of the run; raises `ServiceError`."""
    from tuner_tui.runs.control import give_order
    from tuner_tui.runs.folder import RunFolder

    with spoken():
        give_order(RunFolder(folder), order)


def adopt(folder: Path) -> None:
    """Gives a run whose supervisor died a new one while its training lives; raises `ServiceError`."""
    from tuner_tui.runs.folder import RunFolder
    from tuner_tui.runs.status import status

    now = status(RunFolder(folder))
    if now.kind == "lost" and now.training_alive:
        from tuner_tui.runs.launch import adopt

        with spoken():
            adopt(RunFolder(folder))
