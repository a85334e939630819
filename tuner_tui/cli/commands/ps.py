"""`tuner-tui ps`: the runs of this machine with their state."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Sequence

from tuner_tui.cli.commands.queue import wake_waiter
from tuner_tui.cli.console import print_report
from tuner_tui.cli.options import AsJson
from tuner_tui.core.text import format_table, single_line
from tuner_tui.core.units import format_rough_duration, format_short_duration
from tuner_tui.hardware.system_info import read_space
from tuner_tui.runs.read.reader import RunRow, list_run_or_damage
from tuner_tui.runs.read.status import await_slurm
from tuner_tui.runs.store.folder import list_runs, runs_dir
from tuner_tui.runs.supervise.run_processes import ProcessSnapshot
from tuner_tui.view.cells import shorten_command

HEADINGS = ("RUN", "STATUS", "STEP", "AGE", "TIME", "LEFT", "STEPS/S", "LOSS")
MIN_COMMAND, MAX_COMMAND = 20, 60


def ps(as_json: AsJson = False) -> None:
    """List runs with their state, age, speed, loss and command."""
    now = time.time()
    snapshot = ProcessSnapshot()
    folders = list_runs(runs_dir())
    await_slurm(folders)
    wake_waiter(runs_dir())
    rows = [list_run_or_damage(folder, now, snapshot) for folder in folders]
    columns = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    space = None if rows else read_space(runs_dir())
    lacks = f"No runs: {runs_dir()} cannot be written to. Set TUNER_STATE_DIR to another folder."
    none_yet = "No runs yet. `tuner-tui run -- COMMAND` starts one." if space is None or space.writable else lacks
    print_report(rows, as_json, list_lines(rows, columns) if rows else [none_yet])


def list_lines(rows: Sequence[RunRow], columns: int | None) -> list[str]:
    """Return the table of the runs. Commands are cut from the left to fit into `columns`, or to `MAX_COMMAND`."""
    table = format_table([HEADINGS, *map(_figures, rows)])
    width = max(map(len, table)) + 2
    room = MAX_COMMAND if columns is None else max(MIN_COMMAND, columns - width)
    ends = ("COMMAND", *(_command(row, room) for row in rows))
    return [f"{line:<{width}}{end}".rstrip() for line, end in zip(table, ends, strict=True)]


def _figures(row: RunRow) -> tuple[str, ...]:
    return (
        row.run,
        row.outcome or (row.phase if row.status == "running" or _is_unsupervised(row) else None) or row.status,
        "" if row.step is None else f"{row.step:,}" + (f"/{row.total_steps:,}" if row.total_steps else ""),
        "" if row.age_s is None else format_short_duration(row.age_s),
        "" if row.duration_s is None else format_short_duration(row.duration_s),
        "" if row.eta_s is None else format_rough_duration(row.eta_s),
        "" if row.steps_s is None else f"{row.steps_s:.3g}",
        "" if row.loss is None else f"{row.loss:.4g}",
    )


def _command(row: RunRow, room: int) -> str:
    unsupervised = _is_unsupervised(row) or row.status in ("waiting", "pending")
    # A command may hold a whole script, with line ends and escape sequences.
    words = single_line(row.damage or (f"{row.label}: {row.sentence}" if unsupervised else row.label or row.sentence))
    return words if unsupervised or row.damage else shorten_command(words, room)


def _is_unsupervised(row: RunRow) -> bool:
    return row.status == "lost" and row.pid is not None
