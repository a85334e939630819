"""`tuner-tui queue`: the runs that wait for a free GPU, and why each waits."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tuner_tui.cli.console import ExitCode, print_note, print_report
from tuner_tui.cli.options import AsJson
from tuner_tui.core.text import format_table, hanging_lines, single_line
from tuner_tui.core.units import format_rough_duration
from tuner_tui.view.cells import shorten

if TYPE_CHECKING:
    from tuner_tui.runs.queue.listing import QueueLine

HEADINGS = ("RUN", "STATE", "GPUS", "WAITING", "COMMAND")
MAX_TITLE = 60


def queue(
    restart: Annotated[
        bool, typer.Option("--restart", help="Queue runs again that were waiting before a reboot, in this environment.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """List the runs that wait for a GPU, and why.

    `run --when-free` adds one, `stop RUN` removes one.
    """
    from tuner_tui.runs.queue.listing import list_queue
    from tuner_tui.runs.store.folder import runs_dir

    root = runs_dir()
    failed = restart and not _restart(root)
    wake_waiter(root)
    lines = list_queue(root)
    empty = ["The queue is empty. `tuner-tui run --when-free ...` adds a run."]
    print_report(lines, as_json, queue_report(lines, time.time()) if lines else empty)
    if failed:
        raise typer.Exit(ExitCode.FAILED)


def queue_report(lines: Sequence[QueueLine], now: float) -> list[str]:
    """Return a table of the runs; below each one, why it waits."""
    rows = [
        (
            line.run,
            line.state,
            "" if line.gpus is None else str(line.gpus),
            "" if line.submitted_t is None else format_rough_duration(max(0.0, now - line.submitted_t)),
            shorten(single_line(line.title), MAX_TITLE),
        )
        for line in lines
    ]
    heading, *table = format_table([HEADINGS, *rows])
    report = [heading]
    for text, line in zip(table, lines, strict=True):
        report += [text, *hanging_lines("      ", line.reason)]
    return report


def _restart(root: Path) -> bool:
    """Queue the runs again that were waiting before a reboot; return whether all could be."""
    from tuner_tui.runs.launch.command import LaunchError
    from tuner_tui.runs.queue.listing import list_queue
    from tuner_tui.runs.queue.submission import queue_again, waiting_request
    from tuner_tui.runs.store.folder import RunFolder
    from tuner_tui.runs.store.record import RecordError

    complete = True
    for line in list_queue(root):
        if line.state != "was-waiting":
            continue
        folder = RunFolder(Path(line.path))
        try:
            queue_again(folder, waiting_request(folder, dict(os.environ)))
            print_note(f"{folder.id} waits again.")
        except (LaunchError, RecordError) as error:
            complete = False
            print_note(f"{folder.id}: {error}")
    return complete


def wake_waiter(root: Path) -> None:
    """Start the process again that starts waiting runs, if it was killed."""
    from tuner_tui.runs.queue.queued_run import revive_waiter

    try:
        revive_waiter(root)
    except OSError as error:
        print_note(f"Waiting runs cannot be started: {error.strerror} ({error.filename}).")
