"""Lists and compares runs, and offers to restart one."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tuner_tui.ui.backend.records import ComparedRuns, RestartOffer, translate_errors

if TYPE_CHECKING:
    from tuner_tui.hardware.inventory import Inventory
    from tuner_tui.runs.launch.prepare import LaunchRequest
    from tuner_tui.runs.launch.restart import RestartPlan
    from tuner_tui.runs.read.reader import RunRow, RunView
    from tuner_tui.runs.store.record import RunRecord
    from tuner_tui.settings.model import Resolved
    from tuner_tui.ui.backend.records import TrainingConfig

MAX_LISTED_RUNS = 200


@translate_errors()
def list_newest_runs() -> Sequence[RunRow]:
    """Return the newest runs, newest first."""
    from tuner_tui.runs.read.reader import list_run_or_damage
    from tuner_tui.runs.store.folder import list_runs, runs_dir
    from tuner_tui.runs.supervise.run_processes import ProcessSnapshot

    snapshot, now_s = ProcessSnapshot(), time.time()
    return [list_run_or_damage(folder, now_s, snapshot) for folder in list_runs(runs_dir())[:MAX_LISTED_RUNS]]


def launch_request(config: TrainingConfig) -> LaunchRequest:
    from tuner_tui.runs.launch.prepare import LaunchRequest

    return LaunchRequest(
        job=config.job,
        resolved=config.resolved,
        preset=config.preset,
        memory_limit_bytes=config.memory_limit_bytes,
    )


def expected_time(config: TrainingConfig, inventory: Inventory | None) -> list[tuple[str, str]]:
    """The line of the expected time; none where neither earlier runs nor the notes tell it."""
    from tuner_tui.advice.recommend.duration_estimate import describe_duration, expected_duration
    from tuner_tui.advice.recommend.target import target_of
    from tuner_tui.runs.store.folder import runs_dir

    if inventory is None:
        return []
    settings, target = config.resolved.settings, target_of(inventory, None, config.job)
    cards = [card.name for card in target.cards]
    found = expected_duration(config.job, settings, target.replicas, cards, runs_dir())
    return [] if found is None else [("Expected time", describe_duration(found, settings.num_train_epochs))]


@translate_errors()
def offer_restart(folder: Path, config: TrainingConfig | None) -> RestartOffer:
    """Plan a restart of the run, with the settings of `config` if it trains the same job.

    Raises `BackendError` if the run cannot be restarted.
    """
    from tuner_tui.runs.launch.restart import plan_restart
    from tuner_tui.runs.store.folder import RunFolder
    from tuner_tui.runs.store.record import read_record, redact_job
    from tuner_tui.settings.job import same_training
    from tuner_tui.tuning.launching import restart_run

    run = RunFolder(folder)
    record = read_record(run)
    same = config is not None and same_training(redact_job(config.job), record.job)
    plan = plan_restart(run, resolved=config.resolved, job=config.job) if config and same else plan_restart(run)
    changes = changed_settings(record, plan.request.resolved)
    go: Callable[[], Path] = translate_errors()(lambda: restart_run(plan).path)
    return RestartOffer(restart_question(plan, changes), go)


def restart_question(plan: RestartPlan, changes: Sequence[str]) -> str:
    """Return the question to ask before the restart."""
    name, lost = plan.folder.id, plan.lost_steps
    if plan.saves:
        begin = f"{name} saves a checkpoint and stops; a new run continues from there"
    else:
        assert plan.checkpoint is not None
        begin = f"a new run continues from the checkpoint of {name} at step {plan.checkpoint.step:,}"
        begin = f"{name} stops; {begin}" if plan.live else f"A{begin[1:]}"
    if lost:
        begin += f"; {lost:,} step{'s are' if lost > 1 else ' is'} repeated"
    what = f"with {', '.join(changes)}" if changes else "with the same settings"
    return f"{begin}, {what}."


def changed_settings(record: RunRecord, resolved: Resolved) -> list[str]:
    """Return texts such as `micro batch 8 → 4`, one for each setting that changes."""
    from tuner_tui.settings.model import FIELDS, format_value

    before, after = record.resolved.settings, resolved.settings
    return [
        f"{spec.label} {format_value(name, getattr(before, name)) or 'none'} → "
        f"{format_value(name, getattr(after, name)) or 'none'}"
        for name, spec in FIELDS.items()
        if getattr(before, name) != getattr(after, name)
    ]


def compare_runs(first: Path, second: Path) -> Iterator[ComparedRuns]:
    """Yield the comparison of two runs, one per read, until neither of them is live. Raises `OSError`."""
    from tuner_tui.runs.read.reader import RunReader
    from tuner_tui.runs.store.folder import RunFolder

    readers = [RunReader(RunFolder(folder)) for folder in (first, second)]
    live = True
    while live:
        views = [(reader.folder.id, reader.poll()) for reader in readers]
        (name, one), (other_name, other) = sorted(views, key=lambda view: _start_time_s(view[1]))
        compared = compare_views((name, other_name), one, other)
        live = compared.live
        yield compared


def compare_views(names: tuple[str, str], one: RunView, other: RunView) -> ComparedRuns:
    """Compare `one` with the later run `other`."""
    from tuner_tui.runs.read.comparison import compare, over_samples

    return ComparedRuns(
        names,
        (_status_sentence(one), _status_sentence(other)),
        compare(one, other),
        (tuple(over_samples(one, one.history.loss)), tuple(over_samples(other, other.history.loss))),
        one.status.live or other.status.live,
    )


def _status_sentence(view: RunView) -> str:
    from tuner_tui.ui.drawing.run_rows import outcome_sentence

    limit_bytes = None if view.record is None else view.record.memory_limit_bytes
    return outcome_sentence(view.state, limit_bytes) or view.status.sentence


def _start_time_s(view: RunView) -> float:
    return view.record.created_t if view.record is not None else view.state.launched_t or 0.0
