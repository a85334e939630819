"""Restarting a run from its newest checkpoint, with other settings where wanted: save, end, wait, launch again.

Two halves, so that somebody can be asked between them: `plan_restart` works out what would happen and stops nothing;
`restart` does it. The screen, the command line and the automatic fallback all go through here.
"""

from __future__ import annotations

import os
import select
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from tuner_tui.core.procfs import is_alive
from tuner_tui.core.redaction import HIDDEN
from tuner_tui.runs.launch.command import LaunchError
from tuner_tui.runs.launch.prepare import LaunchRequest, preview
from tuner_tui.runs.launch.resume import accepts_checkpoint
from tuner_tui.runs.launch.start import adopt, launch
from tuner_tui.runs.read.checkpoints import FoundCheckpoint, lineage_checkpoint
from tuner_tui.runs.read.reader import RunReader, RunView
from tuner_tui.runs.read.status import read_status
from tuner_tui.runs.store.control import send_order
from tuner_tui.runs.store.folder import RunFolder
from tuner_tui.runs.store.record import RunRecord
from tuner_tui.runs.store.supervisor_state import read_supervisor_state
from tuner_tui.runs.supervise.stop_escalation import DEFAULT_TIMEOUTS, StopTimeouts
from tuner_tui.settings.job import BuiltinJob, CommandJob, Job
from tuner_tui.settings.origin import Resolved

STOP_TIMEOUT_S = 900.0
"""A run that was asked to save and end gets this long; then the restart gives up, and the run is as it was asked to be:
ending."""


class NoCheckpointError(LaunchError):
    """There is nothing to resume from: the run has to be started anew, from step 0."""


@dataclass(frozen=True, slots=True)
class RestartPlan:
    """What a restart would do. `request` resumes the lineage of `folder`.

    `live`: the run has to be ended first. `saves`: it saves a checkpoint when asked to, so that no step is lost; else
    it goes on from `checkpoint`. `step` is where the run is now. Unknown is None.
    """

    folder: RunFolder
    request: LaunchRequest
    live: bool
    saves: bool
    step: int | None = None
    checkpoint: FoundCheckpoint | None = None

    @property
    def lost_steps(self) -> int | None:
        """Steps that are done again; None where that is not known."""
        if self.saves:
            return 0
        return None if self.step is None or self.checkpoint is None else max(0, self.step - self.checkpoint.step)


def plan_restart(
    folder: RunFolder,
    *,
    resolved: Resolved | None = None,
    job: Job | None = None,
    environ: Mapping[str, str] | None = None,
    patience: StopTimeouts = DEFAULT_TIMEOUTS,
    or_anew: bool = False,
) -> RestartPlan:
    """What restarting the run in `folder`, alive or ended, would do; nothing is stopped or started by this.

    `resolved` and `job` are what it goes on with; None stands for what it had. Give `job` where the command holds
    secrets, which the record hides. With `or_anew` a run that cannot resume from a checkpoint starts from nothing,
    in the same lineage; else that raises `NoCheckpointError`. Raises `LaunchError` with one sentence where it cannot be
    restarted for another reason; a command line that could not be launched again is found here, before anything was
    stopped.
    """
    view = RunReader(folder).poll()
    record = _record(view)
    request = LaunchRequest(
        job=job or record.job,
        resolved=resolved or record.resolved,
        interpreter=Path(record.interpreter),
        cwd=Path(record.cwd),
        preset=record.preset,
        memory_limit_bytes=record.memory_limit_bytes,
        parent=folder,
        environ=dict(os.environ) if environ is None else environ,
        root=folder.path.parent,
        patience=patience,
    )
    _refuse_hidden(request.job)
    found = lineage_checkpoint(folder)
    live = view.status.live
    plan = RestartPlan(folder, request, live, live and _saves_on_stop(view, record), view.state.step, found)
    plan = _anew_if_needed(plan) if or_anew else plan
    _refuse_without_checkpoint(plan)
    preview(plan.request if found is not None else replace(request, parent=None))
    return plan


def restart(plan: RestartPlan, ends_within_s: float = STOP_TIMEOUT_S) -> RunFolder:
    """Do it: ask a living run to save and end, wait for its end, launch its successor; returns the new run's folder.

    Blocks for as long as the run takes to end, at most `ends_within_s` seconds. Raises `LaunchError` where the run does
    not end in time, trained to its end meanwhile, or its successor cannot be launched; nothing runs twice.
    """
    if plan.live:
        _stop(plan, ends_within_s)
        after = read_status(plan.folder)
        if after.outcome == "completed":
            raise LaunchError(f"Run {plan.folder.id} completed before it could be restarted.")
    return launch(plan.request)


def _record(view: RunView) -> RunRecord:
    if view.record is None:
        raise LaunchError(view.record_problem or "The run's record cannot be read.")
    if view.status.kind in ("foreign", "broken", "starting"):
        raise LaunchError(view.status.sentence)
    return view.record


def _refuse_hidden(job: Job) -> None:
    values = (*job.command, *job.env.values()) if isinstance(job, CommandJob) else ()
    if any(HIDDEN in value for value in values):
        raise LaunchError("A secret of this command was hidden in its record; start it again with its full command.")


def _saves_on_stop(view: RunView, record: RunRecord) -> bool:
    """Whether the run saves when it is asked to end: a Trainer that the observer sees, once it trains."""
    trains = any(rank.latest is not None and rank.latest.own_steps > 0 for rank in view.state.ranks.values())
    return trains and (isinstance(record.job, BuiltinJob) or view.state.takes_orders)


def _anew_if_needed(plan: RestartPlan) -> RestartPlan:
    try:
        _refuse_without_checkpoint(plan)
    except LaunchError:
        return replace(plan, request=replace(plan.request, anew=True), checkpoint=None)
    return plan


def _refuse_without_checkpoint(plan: RestartPlan) -> None:
    if plan.request.anew:
        return
    name = plan.folder.id
    if plan.checkpoint is None and not plan.saves:
        why = "saves none when asked to and has no complete one" if plan.live else "has no complete one"
        raise NoCheckpointError(f"Run {name} cannot resume from a checkpoint: it {why}. It would start at step 0.")
    by_trainer = plan.saves or (plan.checkpoint is not None and plan.checkpoint.by_trainer)
    if not by_trainer and not accepts_checkpoint(plan.request.job):
        raise LaunchError(
            f"Run {name} has a checkpoint, but its command cannot be told: write {{checkpoint}} where its path goes."
        )


def _stop(plan: RestartPlan, within_s: float) -> None:
    """Save and end, and wait until its supervisor has written down how. Raises `LaunchError`."""
    folder = plan.folder
    try:
        if read_status(folder).kind == "lost":
            adopt(folder)
        send_order(folder, "stop")
    except OSError as error:
        raise LaunchError(f"Run {folder.id} cannot be asked to end: {error.strerror}.") from error
    if not wait_supervisor_ended(folder, within_s):
        raise LaunchError(f"Run {folder.id} was asked to save and end, and has not ended in {within_s:.0f} s.")


def wait_supervisor_ended(folder: RunFolder, within_s: float) -> bool:
    """Wait for the run's supervisor to end, `within_s` seconds at most; whether it has, or never was."""
    known = read_supervisor_state(folder.state)
    if known is None:
        return True
    try:
        descriptor = os.pidfd_open(known.supervisor.pid)
    except ProcessLookupError:
        return True
    try:
        return not is_alive(known.supervisor) or bool(select.select([descriptor], [], [], within_s)[0])
    finally:
        os.close(descriptor)
