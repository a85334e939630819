"""`tuner-tui ps` lists the runs; `tuner-tui attach` follows one as plain text."""

from __future__ import annotations

import math
import time
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from tuner_tui.cli.completion import complete_run
from tuner_tui.cli.console import print_json, print_note
from tuner_tui.cli.run_lookup import find_run_or_exit
from tuner_tui.runs.store.folder import RunFolder, list_runs, runs_dir

if TYPE_CHECKING:
    from tuner_tui.runs.read.reader import RunView
    from tuner_tui.runs.supervise.orphans import ProcessSnapshot

HEADINGS = ("RUN", "STATUS", "STEP", "LEFT", "STARTED", "WHAT")


def register(app: typer.Typer) -> None:
    """Add the commands `ps` and `attach`."""
    app.command("ps")(ps)
    app.command("attach")(attach)


@dataclass(frozen=True, slots=True)
class RunRow:
    """One run of the list. `created_t` is in seconds since the epoch; `tuning` is the tuning whose trial it is.

    `damage` says which file of the run cannot be read; empty if all can.
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
    damage: str = ""


def ps(as_json: Annotated[bool, typer.Option("--json", help="One JSON document on standard output.")] = False) -> None:
    """List the runs, newest first."""
    now = time.time()
    from tuner_tui.runs.supervise.orphans import ProcessSnapshot

    snapshot = ProcessSnapshot()
    rows = (list_run_or_damage(folder, now, snapshot) for folder in list_runs(runs_dir()))
    if as_json:
        print_json([asdict(row) for row in rows])
        return
    from tuner_tui.cli.render.text import format_table

    cells = [_cells(row) for row in rows]
    if cells:
        typer.echo("\n".join(format_table([HEADINGS, *cells], indent="")))
    else:
        typer.echo("No run was started yet.")


def attach(
    run: Annotated[
        str, typer.Argument(metavar="RUN", autocompletion=complete_run, help="The run's name, such as r007")
    ],
    as_json: Annotated[bool, typer.Option("--json", help="Events as JSON lines on standard output.")] = False,
) -> None:
    """Follow a run as plain text until it ends. Ctrl-C leaves it alone; the screen is `tuner-tui RUN`."""
    from tuner_tui.cli.run_follower import follow_run

    folder = find_run_or_exit(run)
    _supervise_again(folder)
    raise typer.Exit(follow_run(folder, as_json, on_interrupt="leave"))


def _supervise_again(folder: RunFolder) -> None:
    """Start a new supervisor for a training that has lost its own, so that its end is recorded."""
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


def list_run_or_damage(folder: RunFolder, now: float, snapshot: ProcessSnapshot | None = None) -> RunRow:
    """Return the row of a run; of one that cannot be read, a row that says so."""
    try:
        return list_run(folder, now, snapshot)
    except Exception as error:  # noqa: BLE001  whatever is wrong with one run, the others are listed
        problem = f"{type(error).__name__}: {error}"
        return RunRow(folder.id, "broken", problem, str(folder.path), damage=damage_line(folder, problem))


def damage_line(folder: RunFolder, problem: str) -> str:
    """Return the sentence that names a damaged run."""
    return f"{folder.id} is damaged: {problem.removeprefix(f'{folder.path}/')}"


def _damage(folder: RunFolder, view: RunView) -> str:
    """Return a sentence about files of the run that cannot be read; empty if all can."""
    irregular = folder.irregular_file()
    if irregular is not None:
        return damage_line(folder, f"{irregular} is not a regular file.")
    if view.status.kind == "broken":
        return damage_line(folder, view.status.sentence)
    starting = view.status.kind == "starting"
    return "" if view.record_problem is None or starting else damage_line(folder, view.record_problem)


def list_run(folder: RunFolder, now: float, snapshot: ProcessSnapshot | None = None) -> RunRow:
    """Return the row of a run at `now`, in seconds since the epoch."""
    from tuner_tui.runs.events.progress import eta, phase_at
    from tuner_tui.runs.read.reader import read_brief

    view = read_brief(folder, snapshot)
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
        loss=state.loss if state.loss is not None and math.isfinite(state.loss) else None,
        created_t=None if record is None else record.created_t,
        preset=None if record is None else record.preset,
        command=() if record is None else record.argv,
        parent=None if record is None else record.parent,
        tuning=None if record is None else record.tuning,
        what="" if record is None else record.title,
        damage=_damage(folder, view),
    )


def _cells(row: RunRow) -> tuple[str, str, str, str, str, str]:
    from tuner_tui.cli.render.text import format_steps, replace_unprintable
    from tuner_tui.core.units import format_rough_duration

    started = time.strftime("%Y-%m-%d %H:%M", time.localtime(row.created_t)) if row.created_t else ""
    left = "" if row.eta_s is None else format_rough_duration(row.eta_s)
    unsupervised = row.status == "lost" and row.pid is not None
    # A command may hold a whole script, with line ends and escape sequences.
    text = row.damage or (f"{row.what}: {row.sentence}" if unsupervised else row.what or row.sentence)
    what = " ".join(replace_unprintable(text).split())
    state = row.outcome or (row.phase if row.status == "running" or unsupervised else None) or row.status
    step = format_steps(row.step, row.total_steps)
    return (row.run, state, step, left, started, what if unsupervised or row.damage else what[:60])
