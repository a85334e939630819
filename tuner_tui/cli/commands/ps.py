"""`tuner-tui ps` lists the runs; `tuner-tui attach` follows one as plain text."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Annotated

import typer

from tuner_tui.cli.console import print_json, print_note
from tuner_tui.cli.run_lookup import find_run_or_exit
from tuner_tui.runs.store.folder import RunFolder, list_runs, runs_dir


def register(app: typer.Typer) -> None:
    """Adds the commands `ps` and `attach`."""
    app.command("ps")(ps)
    app.command("attach")(attach)


@dataclass(frozen=True, slots=True)
class RunRow:
    """One run in the list. Times are seconds since the epoch, `eta_s` seconds left.

    `tuning` is whose trial it is, `what` says what it trains.
    """

    run: str
    status: str
    sentence: str
    path: str
    outcome: str | None = None
    pid: int | None = None
    phase: str | None = None
    step: int | None = None
    total_steps: int | None = None
    eta_s: float | None = None
    loss: float | None = None
    created_t: float | None = None
    preset: str | None = None
    command: tuple[str, ...] = ()
    parent: str | None = None
    tuning: str | None = None
    what: str = ""


def ps(as_json: Annotated[bool, typer.Option("--json", help="One JSON document on standard output.")] = False) -> None:
    """List the runs, newest first."""
    rows = _rows()
    if as_json:
        print_json([asdict(row) for row in rows])
        return
    shown = [_cells(row) for row in rows]
    if not shown:
        typer.echo("No run was started yet.")
        return
    table = [("RUN", "STATUS", "STEP", "LEFT", "STARTED", "WHAT"), *shown]
    widths = [max(len(cells[column]) for cells in table) for column in range(len(table[0]))]
    for cells in table:
        typer.echo("  ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)).rstrip())


def attach(
    run: Annotated[str, typer.Argument(metavar="RUN", help="The run's name, such as r007")],
    as_json: Annotated[bool, typer.Option("--json", help="Events as JSON lines on standard output.")] = False,
) -> None:
    """Follow a run as plain text until it ends. Ctrl-C leaves it alone; the screen is `tuner-tui RUN`."""
    from tuner_tui.cli.run_follower import follow_run

    folder = find_run_or_exit(run)
    _supervise_again(folder)
    raise typer.Exit(follow_run(folder, as_json, on_interrupt="leave"))


def _supervise_again(folder: RunFolder) -> None:
    """Give a training that has lost its supervisor a new one, so that somebody sees how it ends."""
    from tuner_tui.runs.launch.command import LaunchError
    from tuner_tui.runs.launch.start import adopt
    from tuner_tui.runs.read.status import read_status

    found = read_status(folder)
    if found.kind != "lost" or not found.training_alive:
        return
    print_note(found.sentence)
    try:
        adopt(folder)
    except (LaunchError, OSError) as error:
        print_note(f"It stays without one: {error}")


def _rows() -> Iterator[RunRow]:
    for folder in list_runs(runs_dir()):
        yield list_run(folder, time.time())


def list_run(folder: RunFolder, now: float) -> RunRow:
    """The run in a line. A run that lives is read to its newest event; of others the last word is enough."""
    from tuner_tui.runs.events.progress import eta, phase_at
    from tuner_tui.runs.read.reader import RunReader

    view = RunReader(folder).poll()
    state, record = view.state, view.record
    left = eta(state, now) if view.status.live else None
    return RunRow(
        run=folder.id,
        status=view.status.kind,
        sentence=view.status.sentence,
        path=str(folder.path),
        outcome=view.status.outcome,
        pid=view.status.pid,
        phase=phase_at(state, now) if view.status.live else None,
        step=state.step,
        total_steps=state.total_steps,
        eta_s=None if left is None else left.seconds,
        loss=state.loss if state.loss is None or state.loss == state.loss else None,
        created_t=None if record is None else record.created_t,
        preset=None if record is None else record.preset,
        command=() if record is None else record.argv,
        parent=None if record is None else record.parent,
        tuning=None if record is None else record.tuning,
        what="" if record is None else record.what,
    )


def one_line(text: str) -> str:
    """The text as it fits a table: a command may hold a whole script, with line ends and escape sequences."""
    return " ".join("".join(char if char.isprintable() else " " for char in text).split())


def _cells(row: RunRow) -> tuple[str, str, str, str, str, str]:
    from tuner_tui.core.units import format_rough_duration

    started = time.strftime("%Y-%m-%d %H:%M", time.localtime(row.created_t)) if row.created_t else ""
    step = "" if row.step is None else f"{row.step:,}" + (f"/{row.total_steps:,}" if row.total_steps else "")
    left = "" if row.eta_s is None else format_rough_duration(row.eta_s)
    lone = row.status == "lost" and row.pid is not None
    what = one_line(f"{row.what}: {row.sentence}" if lone else row.what or row.sentence)
    word = row.outcome or (row.phase if row.status == "running" or lone else None) or row.status
    return (row.run, word, step, left, started, what if lone else what[:60])
