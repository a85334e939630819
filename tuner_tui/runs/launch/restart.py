"""Restarts a run from its newest checkpoint, optionally with other settings: save, stop, wait, launch again.

`plan_restart` works out what would happen and stops nothing, so that the user can be asked; `restart` does it. The
screen, the command line and the automatic fallback all use these two functions.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping

from msgspec import Struct
from msgspec.structs import replace

from tuner_tui.core.redaction import HIDDEN
from tuner_tui.runs.launch.command import LaunchError
from tuner_tui.runs.launch.orders import give_order
from tuner_tui.runs.launch.prepare import LaunchRequest, NoCheckpointError, PreparedLaunch, prepare
from tuner_tui.runs.launch.start import launch
from tuner_tui.runs.read.checkpoints import SavedCheckpoint, lineage_checkpoint
from tuner_tui.runs.read.reader import RunReader
from tuner_tui.runs.read.status import read_status
from tuner_tui.runs.store.folder import RunFolder, wait_supervisor_ended
from tuner_tui.runs.supervise.training_process import DEFAULT_TIMEOUTS, LaunchSpec, StopTimeouts
from tuner_tui.settings.job import BuiltinJob, CommandJob, Job
from tuner_tui.settings.model import Resolved

STOP_TIMEOUT_S = 900.0
"""Seconds to wait for a run to save and stop. After that the restart fails; the run keeps stopping."""


class RestartPlan(Struct, frozen=True):
    """What restarting the run in `folder` would do: stop it if it is `live`, then launch `prepared`.

    `stopping`: it was asked to stop before.

    `saves`: the run saves a checkpoint when it is stopped, so that no step is lost; otherwise the new run continues
    from `checkpoint`. `step` is the current optimizer step; None where unknown.
    """

    folder: RunFolder
    request: LaunchRequest
    prepared: PreparedLaunch
    live: bool
    stopping: bool
    saves: bool
    step: int | None = None
    checkpoint: SavedCheckpoint | None = None
    unusable: SavedCheckpoint | None = None
    """A checkpoint that the command has no known way to load."""

    @property
    def lost_steps(self) -> int | None:
        """Steps to repeat; None where unknown."""
        if self.saves:
            return 0
        return None if self.step is None or self.checkpoint is None else max(0, self.step - self.checkpoint.step)


def plan_restart(
    folder: RunFolder,
    *,
    resolved: Resolved | None = None,
    job: Job | None = None,
    environ: Mapping[str, str] | None = None,
    stop_timeouts: StopTimeouts = DEFAULT_TIMEOUTS,
    allow_from_scratch: bool = False,
) -> RestartPlan:
    """Work out what restarting the run in `folder`, live or ended, would do; nothing is stopped or started.

    `resolved` and `job` replace the settings and the job of the run. Pass `job` where the command holds secrets, which
    the record hides. With `allow_from_scratch` a run without a usable checkpoint starts at step 0 in the same lineage;
    otherwise that raises `NoCheckpointError`. Raises `LaunchError` where the run cannot be restarted, including a
    command that could not be launched: that is found before anything is stopped.
    """
    view = RunReader(folder).poll()
    record = view.record
    if record is None:
        raise LaunchError(view.record_problem or "The run's record cannot be read.")
    if view.status.kind in ("foreign", "broken", "starting", "waiting", "pending"):
        raise LaunchError(view.status.sentence)
    if record.nodes is not None and "SLURM_JOB_ID" not in (os.environ if environ is None else environ):
        raise LaunchError(
            f"{folder.id} runs in Slurm; `tuner-tui slurm submit --resume {folder.argument}` continues it."
        )
    request = replace(
        LaunchRequest.resume(folder, record, environ),
        job=job or record.job,
        resolved=resolved or record.resolved,
        root=folder.path.parent,
        stop_timeouts=stop_timeouts,
    )
    if isinstance(request.job, CommandJob) and any(
        HIDDEN in value for value in (*request.job.command, *request.job.env.values())
    ):
        raise LaunchError("The record hides a secret of this command; start it again with the full command.")
    checkpoint = lineage_checkpoint(folder)
    live = view.status.live
    # It saves when it is stopped if it is a Trainer that the observer sees, after its first step.
    trains, stopping = (
        any(counters.own_steps > 0 for counters in view.state.counters),
        view.state.stop_requested is not None,
    )
    saves = live and trains and (isinstance(record.job, BuiltinJob) or view.state.accepts_orders)
    try:
        # Before a run without checkpoint has saved one, its command can only be checked as that of a fresh start.
        will_save_first = saves and checkpoint is None
        prepared = prepare(replace(request, parent=None) if will_save_first else request)
    except NoCheckpointError:
        if saves or not allow_from_scratch:
            raise
        request = replace(request, from_scratch=True)
        plan = RestartPlan(folder, request, prepare(request), live, stopping, saves, view.state.step)
        return replace(plan, unusable=checkpoint)
    return RestartPlan(folder, request, prepared, live, stopping, saves, view.state.step, checkpoint)


def restart(
    plan: RestartPlan, timeout_s: float = STOP_TIMEOUT_S, start: Callable[[RunFolder, LaunchSpec], None] | None = None
) -> RunFolder:
    """Ask a live run to save and stop, wait for its end, and launch the new run; return the folder of the new run.

    Blocks until the run has ended, at most `timeout_s` seconds. Raises `LaunchError` if it does not end in time or
    completed meanwhile, or if the new run cannot be launched; the training never runs twice. `start` as of `launch`.
    """
    if plan.live:
        _stop(plan, timeout_s)
        if read_status(plan.folder).outcome == "completed":
            raise LaunchError(f"Run {plan.folder.id} completed before it could be restarted.")
    resumes_as_prepared = not plan.live and plan.prepared.request == plan.request
    # A live run has saved a newer checkpoint since the launch was prepared.
    prepared = plan.prepared if resumes_as_prepared else prepare(plan.request, plan.prepared.interpreter)
    return launch(prepared, start=start)


def _stop(plan: RestartPlan, timeout_s: float) -> None:
    """Ask the run to save and stop, and wait until its supervisor has recorded the outcome. Raises `LaunchError`."""
    folder = plan.folder
    try:
        give_order(folder, "stop")
    except OSError as error:
        raise LaunchError(f"Run {folder.id} cannot be stopped: {error.strerror}.") from error
    if not wait_supervisor_ended(folder, timeout_s):
        raise LaunchError(f"Run {folder.id} did not save and stop within {timeout_s:.0f} s.")
