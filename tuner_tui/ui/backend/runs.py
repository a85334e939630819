"""Lists, follows, launches, restarts, controls and compares runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from tuner_tui.ui.backend.interface import RestartOffer, RunListing, translate_errors

if TYPE_CHECKING:
    from tuner_tui.runs.launch.prepare import LaunchRequest
    from tuner_tui.runs.launch.restart import RestartPlan
    from tuner_tui.runs.read.comparison import Comparison
    from tuner_tui.runs.read.reader import RunView
    from tuner_tui.runs.read.status import RunStatus
    from tuner_tui.runs.store.control import Order
    from tuner_tui.runs.store.folder import RunFolder
    from tuner_tui.runs.store.record import RunRecord
    from tuner_tui.settings.origin import Resolved
    from tuner_tui.ui.backend.interface import Log, RunFollower, TrainingConfig
    from tuner_tui.ui.backend.local import CliOverrides


MAX_LISTED_RUNS = 200


def list_run_folders() -> Sequence[RunListing]:
    """The newest runs, newest first."""
    from tuner_tui.runs.read.status import read_status
    from tuner_tui.runs.store.folder import list_runs, runs_dir

    with translate_errors():
        folders = list_runs(runs_dir())[:MAX_LISTED_RUNS]
        return [_listing(folder, read_status(folder)) for folder in folders]


def _listing(folder: RunFolder, now: RunStatus) -> RunListing:
    from tuner_tui.runs.store.record import RecordError, read_record

    try:
        trains = read_record(folder).what
    except RecordError:
        trains = ""
    return RunListing(folder.id, folder.path, now.outcome or now.kind, now.sentence, trains)


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


def send_order(folder: Path, order: Order) -> None:
    """Asks something of the run; raises `ServiceError`."""
    from tuner_tui.runs.store.control import send_order
    from tuner_tui.runs.store.folder import RunFolder

    with translate_errors():
        send_order(RunFolder(folder), order)


def adopt(folder: Path) -> None:
    """Gives a run whose supervisor died a new one while its training lives; raises `ServiceError`."""
    from tuner_tui.runs.read.status import read_status
    from tuner_tui.runs.store.folder import RunFolder

    now = read_status(RunFolder(folder))
    if now.kind == "lost" and now.training_alive:
        from tuner_tui.runs.launch.start import adopt

        with translate_errors():
            adopt(RunFolder(folder))


def launch_request(opened: TrainingConfig, wishes: CliOverrides) -> LaunchRequest:
    """The launch of what the screen shows."""
    from tuner_tui.runs.launch.prepare import LaunchRequest

    return LaunchRequest(
        job=opened.job,
        resolved=opened.resolved,
        preset=opened.preset,
        memory_limit_bytes=opened.memory_limit_bytes or wishes.memory_limit_bytes,
    )


def launch_preview(opened: TrainingConfig, wishes: CliOverrides) -> Sequence[tuple[str, str]]:
    """What launching it would start, line by line. Raises `LaunchError`."""
    from tuner_tui.runs.launch.prepare import prepare
    from tuner_tui.runs.launch.summary import launch_summary

    return launch_summary(prepare(launch_request(opened, wishes)))


def restart_offer(folder: Path, opened: TrainingConfig | None) -> RestartOffer:
    """What restarting the run would do. It goes on with the settings shown, where they are those of its job.

    Raises `LaunchError` where it cannot be restarted.
    """
    from tuner_tui.runs.launch.command import redact_job
    from tuner_tui.runs.launch.restart import plan_restart, restart
    from tuner_tui.runs.store.folder import RunFolder
    from tuner_tui.runs.store.record import read_record
    from tuner_tui.settings.job import same_training
    from tuner_tui.tuning.fallback_process import attach_fallback

    run = RunFolder(folder)
    record = read_record(run)
    shown = opened if opened is not None and same_training(redact_job(opened.job), record.job) else None
    plan = plan_restart(run) if shown is None else plan_restart(run, resolved=shown.resolved, job=shown.job)
    changes = changed_settings(record, plan.request.resolved)
    return RestartOffer(restart_question(plan, changes), lambda: attach_fallback(restart(plan), plan.request).path)


def restart_question(plan: RestartPlan, changes: Sequence[str]) -> str:
    """What is asked before a restart."""
    name, lost = plan.folder.id, plan.lost_steps
    if plan.saves:
        begin = f"{name} saves a checkpoint, ends, and goes on from there as a new run"
    else:
        assert plan.checkpoint is not None
        end = f"{name} is ended and" if plan.live else name
        begin = f"{end} goes on from its checkpoint at step {plan.checkpoint.step:,} as a new run"
    if lost:
        begin += f"; {lost:,} step{'s are' if lost > 1 else ' is'} done again"
    what = f"with {', '.join(changes)}" if changes else "with the settings it has"
    return f"{begin}, {what}."


def changed_settings(record: RunRecord, resolved: Resolved) -> list[str]:
    """`micro batch 8 → 4` for each setting that the restart changes."""
    from tuner_tui.settings.fields import FIELDS, format_value

    before, after = record.resolved.settings, resolved.settings
    return [
        f"{spec.label} {format_value(name, getattr(before, name)) or 'none'} → "
        f"{format_value(name, getattr(after, name)) or 'none'}"
        for name, spec in FIELDS.items()
        if getattr(before, name) != getattr(after, name)
    ]


LossCurve = tuple[tuple[float, float], ...]
"""Losses over samples seen."""


@dataclass(frozen=True, slots=True)
class ComparedRuns:
    """Two runs at one look: their names, how each stands in a sentence, what differs, the loss of each."""

    names: tuple[str, str]
    said: tuple[str, str]
    found: Comparison
    curves: tuple[LossCurve, LossCurve]
    live: bool = False


class ComparisonReader(Protocol):
    """Reads two runs."""

    def look(self) -> ComparedRuns:
        """Both as they are now. Touches files: not for an event loop."""


class RunPairReader:
    """Follows the runs in two folders, the older one first: a ratio then says what came of the later one."""

    def __init__(self, first: Path, second: Path) -> None:
        from tuner_tui.runs.read.reader import RunReader
        from tuner_tui.runs.store.folder import RunFolder

        self._readers = [RunReader(RunFolder(folder)) for folder in (first, second)]

    def look(self) -> ComparedRuns:
        """Both as they are now. Raises `OSError`."""
        pairs = [(reader.folder.id, reader.poll()) for reader in self._readers]
        (name, one), (other_name, other) = sorted(pairs, key=lambda pair: _start_time_s(pair[1]))
        return compare_views((name, other_name), one, other)


def compare_views(names: tuple[str, str], one: RunView, other: RunView) -> ComparedRuns:
    """What differs between two views."""
    from tuner_tui.runs.read.comparison import compare, over_samples

    return ComparedRuns(
        names,
        (_status_sentence(one), _status_sentence(other)),
        compare(one, other),
        (tuple(over_samples(one, one.history.loss)), tuple(over_samples(other, other.history.loss))),
        one.status.live or other.status.live,
    )


def _status_sentence(view: RunView) -> str:
    """How a run stands, in a sentence short enough for a line."""
    from tuner_tui.ui.drawing.run_rows import outcome_sentence

    limit_bytes = None if view.record is None else view.record.memory_limit_bytes
    return outcome_sentence(view.state, limit_bytes) or view.status.sentence


def _start_time_s(view: RunView) -> float:
    return view.record.created_t if view.record is not None else view.state.launched_t or 0.0
