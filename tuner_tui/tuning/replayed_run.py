"""Trains the steps before a loss that is not finite again, to see which operator it comes from.

The run of its own lies in `replay/` of the run's folder, and saves nothing: see the observer's `finite_check`.
"""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable
from typing import Any

from msgspec import structs
from msgspec.structs import replace

from tuner_tui.core.files import write_atomic
from tuner_tui.core.json_struct import to_json
from tuner_tui.core.procfs import identify_process
from tuner_tui.inspection.first_non_finite import Replay, judge_replay
from tuner_tui.inspection.suspect_batches import find_suspects
from tuner_tui.runs.launch.command import LaunchError
from tuner_tui.runs.launch.prepare import LaunchRequest, prepare
from tuner_tui.runs.launch.start import launch
from tuner_tui.runs.read.checkpoints import lineage_checkpoint
from tuner_tui.runs.read.reader import RunReader
from tuner_tui.runs.read.recorded_batches import read_batches, read_rank_reports
from tuner_tui.runs.read.status import read_status
from tuner_tui.runs.store.folder import RunFolder, list_runs, wait_supervisor_ended
from tuner_tui.tuning.trial_runner import POLL_S, TRACKING_DISABLED, end_run

VARIABLE = "TUNER_REPLAY"
WAIT_FOR_RANKS_S = 10.0
"""From the first report: what is not finite on one rank soon is so on all."""
WAIT_FOR_LOSSES_S = 3.0
"""Ranks write their losses every second."""
MAX_ROWS = 32
"""Rows of a step whose text is read."""
STEPS_TOO_FAR = 30
"""Steps after the one that is looked for; a process that checks has ended long before."""


def replay_run(folder: RunFolder, step: int | None = None, tell: Callable[[str], None] = lambda _: None) -> Replay:
    """Train again from the newest checkpoint before `step`, by default the first whose loss is not finite.

    The result is saved in the folder. `tell` receives what is done meanwhile. Raises `LaunchError` where it cannot be
    started.
    """
    view, batches = RunReader(folder).poll(), read_batches(folder)
    if view.record is None:
        raise LaunchError(view.record_problem or f"The record of {folder.id} cannot be read.")
    if view.status.live:
        raise LaunchError(f"{folder.id} is still running: stop it first. {view.status.sentence}")
    if step is None:
        first = find_suspects(batches, failed=False).of_kind("not finite")
        if not first:
            replay = f"`tuner-tui replay {folder.id} --step N` replays a step all the same"
            raise LaunchError(f"All recorded losses of {folder.id} are finite. {replay}.")
        step = first[0].batch.step
    request = replace(
        LaunchRequest.resume(folder, view.record),
        job=structs.replace(view.record.job, fallback=0),
        before_step=step,
        root=folder.path / "replay",
        ends_with=identify_process(os.getpid()),
        stop_after_s=None,
    )
    saved = lineage_checkpoint(folder, step)
    rows: dict[int, list[int]] = {}
    for batch in reversed(batches):  # of the step, and of the one before it, from which its parameters may have come
        if step - 1 <= batch.step <= step:
            rows.setdefault(batch.rank, []).extend(batch.rows_of(None)[:MAX_ROWS])
    question = {"step": step, "rows": rows}
    run, resumed_at = _start(request, question, 0 if saved is None else saved.step)
    start = f"step {resumed_at:,}" if resumed_at else "the start"
    tell(f"training again from {start} to step {step:,}, in {run.path}")
    try:
        _wait(run, step)
    finally:
        end_run(run)
        for older in list_runs(run.path.parent)[1:]:  # the newest first
            if not read_status(older).live:
                shutil.rmtree(older.path, ignore_errors=True)
    result = judge_replay(step, resumed_at, read_rank_reports(run), batches, read_batches(run))
    if result.report is None:
        ended = read_status(run).sentence
        result = replace(result, problem=f"Unknown: the replay did not reach step {step:,}. {ended}")
    write_atomic(folder.replay, json.dumps(to_json(result)) + "\n")
    return result


def _start(request: LaunchRequest, question: dict[str, Any], checkpoint_step: int) -> tuple[RunFolder, int]:
    """Start the run; return its folder and the step that it begins at, 0 where the checkpoint cannot be taken."""
    try:
        prepared = prepare(request)
    except LaunchError:
        prepared = prepare(replace(request, from_scratch=True))
    resumed_at = 0 if prepared.checkpoint is None else checkpoint_step
    variables = {**TRACKING_DISABLED, VARIABLE: json.dumps({**question, "first_step": resumed_at})}
    environ = {**prepared.request.environ, **variables}
    return launch(replace(prepared, request=replace(prepared.request, environ=environ))), resumed_at


def _wait(run: RunFolder, step: int) -> None:
    """Wait until the run has ended, or each rank has reported, or none will."""
    reader, reported_s = RunReader(run), None
    while not wait_supervisor_ended(run, POLL_S):
        reader.events()
        reports = len(read_rank_reports(run))
        if reports and reported_s is None:
            reported_s = time.monotonic()
        patience_s = WAIT_FOR_LOSSES_S if reports >= len(reader.state.ranks) else WAIT_FOR_RANKS_S
        late = reported_s is not None and time.monotonic() - reported_s > patience_s
        if late or (reader.state.step or 0) > step + STEPS_TOO_FAR:
            return
