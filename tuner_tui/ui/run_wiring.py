"""Runs as the real program lists, reads and orders them. Imports of weight stand inside the calls."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tuner_tui.ui.services import RunLine
from tuner_tui.ui.spoken import spoken

if TYPE_CHECKING:
    from tuner_tui.runs.read.status import RunStatus
    from tuner_tui.runs.store.control import Order
    from tuner_tui.runs.store.folder import RunFolder
    from tuner_tui.ui.services import Log, RunFollower

MOST_LISTED = 200


def runs() -> Sequence[RunLine]:
    """The newest runs, newest first."""
    from tuner_tui.runs.read.status import read_status
    from tuner_tui.runs.store.folder import list_runs, runs_dir

    with spoken():
        folders = list_runs(runs_dir())[:MOST_LISTED]
        return [_line(folder, read_status(folder)) for folder in folders]


def _line(folder: RunFolder, now: RunStatus) -> RunLine:
    from tuner_tui.runs.store.record import RecordError, read_record

    try:
        trains = read_record(folder).what
    except RecordError:
        trains = ""
    return RunLine(folder.id, folder.path, now.outcome or now.kind, now.sentence, trains)


def follow(folder: Path) -> RunFollower:
    """Reads the run in `folder`, from where it left off."""
    from tuner_tui.runs.read.reader import RunReader
    from tuner_tui.runs.store.folder import RunFolder

    return RunReader(RunFolder(folder))


def open_log(folder: Path) -> Log:
    """Windows on what the run printed."""
    from tuner_tui.runs.read.log_reader import LogReader
    from tuner_tui.runs.store.folder import RunFolder

    return LogReader(RunFolder(folder).output_log)


def order(folder: Path, order: Order) -> None:
    """Asks something of the run; raises `ServiceError`."""
    from tuner_tui.runs.store.control import send_order
    from tuner_tui.runs.store.folder import RunFolder

    with spoken():
        send_order(RunFolder(folder), order)


def adopt(folder: Path) -> None:
    """Gives a run whose supervisor died a new one while its training lives; raises `ServiceError`."""
    from tuner_tui.runs.read.status import read_status
    from tuner_tui.runs.store.folder import RunFolder

    now = read_status(RunFolder(folder))
    if now.kind == "lost" and now.training_alive:
        from tuner_tui.runs.launch.start import adopt

        with spoken():
            adopt(RunFolder(folder))
