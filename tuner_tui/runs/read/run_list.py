"""The list of runs: state, age, duration, speed, last loss and command of each, read from the end of its files."""

from __future__ import annotations

import math
from dataclasses import dataclass

from tuner_tui.runs.events.progress import eta, phase_at
from tuner_tui.runs.events.rates import mean_rates
from tuner_tui.runs.read.reader import RunView, read_brief
from tuner_tui.runs.store.folder import RunFolder
from tuner_tui.runs.supervise.orphans import ProcessSnapshot


@dataclass(frozen=True, slots=True)
class RunRow:
    """One run of the list. `created_t` is in seconds since the epoch; `tuning` is the tuning whose trial it is.

    `age_s` is the time since the run was created, `duration_s` from there to its end or, while it runs, to now.
    `steps_s` is the current speed of a live run, and the mean speed of an ended one. `what` is its preset or command.
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
    age_s: float | None = None
    duration_s: float | None = None
    steps_s: float | None = None
    loss: float | None = None
    created_t: float | None = None
    preset: str | None = None
    command: tuple[str, ...] = ()
    parent: str | None = None
    tuning: str | None = None
    what: str = ""
    damage: str = ""


def list_run_or_damage(folder: RunFolder, now: float, snapshot: ProcessSnapshot | None = None) -> RunRow:
    """Return the row of a run; of one that cannot be read, a row that says so."""
    try:
        return list_run(folder, now, snapshot)
    except Exception as error:  # noqa: BLE001  whatever is wrong with one run, the others are listed
        problem = f"{type(error).__name__}: {error}"
        return RunRow(folder.id, "broken", problem, str(folder.path), damage=damage_line(folder, problem))


def list_run(folder: RunFolder, now: float, snapshot: ProcessSnapshot | None = None) -> RunRow:
    """Return the row of a run at `now`, in seconds since the epoch."""
    view = read_brief(folder, snapshot)
    state, record = view.state, view.record
    left = eta(state, now) if view.status.live else None
    created_t = None if record is None else record.created_t
    rates = state.rates if view.status.live else mean_rates(state.ranks.values())
    end_t = now if view.status.live else None if state.finished is None else state.finished.t
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
        age_s=_span(created_t, now),
        duration_s=_span(created_t, end_t),
        steps_s=rates.steps_s,
        loss=state.loss if state.loss is not None and math.isfinite(state.loss) else None,
        created_t=created_t,
        preset=None if record is None else record.preset,
        command=() if record is None else record.argv,
        parent=None if record is None else record.parent,
        tuning=None if record is None else record.tuning,
        what="" if record is None else record.title,
        damage=_damage(folder, view),
    )


def damage_line(folder: RunFolder, problem: str) -> str:
    """Return the sentence that names a damaged run."""
    return f"{folder.id} is damaged: {problem.removeprefix(f'{folder.path}/')}"


def _span(start_t: float | None, end_t: float | None) -> float | None:
    """Seconds between two times, 0 if a clock was set back; None if either is unknown."""
    return None if start_t is None or end_t is None else max(0.0, end_t - start_t)


def _damage(folder: RunFolder, view: RunView) -> str:
    """Return a sentence about files of the run that cannot be read; empty if all can."""
    irregular = folder.irregular_file()
    if irregular is not None:
        return damage_line(folder, f"{irregular} is not a regular file.")
    if view.status.kind == "broken":
        return damage_line(folder, view.status.sentence)
    starting = view.status.kind == "starting"
    return "" if view.record_problem is None or starting else damage_line(folder, view.record_problem)
