"""Launching and restarting for the screen: what would start, in words, and the calls that do it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from tuner_tui.ui.services import RestartOffer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tuner_tui.runs.launch.prepare import LaunchRequest
    from tuner_tui.runs.launch.restart import RestartPlan
    from tuner_tui.runs.store.record import RunRecord
    from tuner_tui.settings.origin import Resolved
    from tuner_tui.ui.services import Opened
    from tuner_tui.ui.wiring import Wishes


def launch_request(opened: Opened, wishes: Wishes) -> LaunchRequest:
    """The launch of what the screen shows."""
    from tuner_tui.runs.launch.prepare import LaunchRequest

    return LaunchRequest(
        job=opened.job,
        resolved=opened.resolved,
        preset=opened.preset,
        memory_limit_bytes=opened.memory_limit_bytes or wishes.memory_limit_bytes,
    )


def preview_of(opened: Opened, wishes: Wishes) -> Sequence[tuple[str, str]]:
    """What launching it would start, line by line. Raises `LaunchError`."""
    from tuner_tui.runs.launch.prepare import preview
    from tuner_tui.runs.launch.summary import launch_summary

    return launch_summary(preview(launch_request(opened, wishes)))


def restart_offer(folder: Path, opened: Opened | None) -> RestartOffer:
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
    changes = changed_words(record, plan.request.resolved)
    return RestartOffer(question(plan, changes), lambda: attach_fallback(restart(plan), plan.request).path)


def question(plan: RestartPlan, changes: Sequence[str]) -> str:
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


def changed_words(record: RunRecord, resolved: Resolved) -> list[str]:
    """`micro batch 8 → 4` for each setting that the restart changes."""
    from tuner_tui.settings.fields import FIELDS, format_value

    before, after = record.resolved.settings, resolved.settings
    return [
        f"{spec.label} {format_value(name, getattr(before, name)) or 'none'} → "
        f"{format_value(name, getattr(after, name)) or 'none'}"
        for name, spec in FIELDS.items()
        if getattr(before, name) != getattr(after, name)
    ]
