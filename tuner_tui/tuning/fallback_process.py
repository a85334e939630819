"""The detached process that restarts a run after out of memory: `python -m tuner_tui.tuning.fallback_process DIR`.

It waits for the end of the run in DIR. If the run is out of memory, it launches the next attempt, which resumes the
lineage, records this in the events of the ended run, and waits for the next attempt in turn. It holds `fallback.lock`
until it has decided, so that followers know that the run may continue.
"""

from __future__ import annotations

import os
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from tuner_tui.core.files import LineAppender, acquire_lock, is_locked, wait_unlocked
from tuner_tui.core.redaction import redact_text
from tuner_tui.runs.events.types import FallbackEnded, FellBack
from tuner_tui.runs.launch.command import LaunchError
from tuner_tui.runs.store.codec import encode_event
from tuner_tui.runs.store.folder import RunFolder
from tuner_tui.tuning.detached_process import ProcessSpec, detach, start_detached

if TYPE_CHECKING:
    from tuner_tui.runs.launch.prepare import LaunchRequest
    from tuner_tui.tuning.fallback import FallbackStep

MODULE = "tuner_tui.tuning.fallback_process"


def attach_fallback(folder: RunFolder, request: LaunchRequest) -> RunFolder:
    """Start the fallback process for the run just launched from `request`, if its job asks for it. Return its folder.

    Raises `LaunchError` if the process does not start; the run continues without it.
    """
    if request.job.fallback:
        start_fallback_process(folder, ProcessSpec(request.job, request.environ))
    return folder


def start_fallback_process(folder: RunFolder, spec: ProcessSpec) -> None:
    """Start the process for the run in `folder` and return once it is ready. Raises `LaunchError` if it fails."""
    start_detached(MODULE, folder.path, spec, folder.supervisor_log, "The OOM retry")


def main(argv: list[str]) -> None:
    """Watch the run in the folder `argv[0]`."""
    folder = RunFolder(Path(argv[0]))
    spec, lock = detach(lambda data: (ProcessSpec.load(data), acquire_lock(folder.fallback_lock)))
    _follow_attempts(folder, spec, lock)


def _follow_attempts(folder: RunFolder, spec: ProcessSpec, lock: int) -> None:
    # The lock of the next attempt is taken before the event that names it, so that followers find it held.
    for used in range(spec.job.fallback + 1):
        wait_until_ended(folder)
        event = continue_run(folder, spec, used)
        following = RunFolder(folder.path.with_name(event.into)) if isinstance(event, FellBack) else None
        next_lock = None if following is None else acquire_lock(following.fallback_lock)
        if event is not None:
            append_event(folder, event)
        os.close(lock)
        if following is None or next_lock is None:
            return
        folder, lock = following, next_lock


def wait_until_ended(folder: RunFolder) -> None:
    """Block until the run has ended. A training whose supervisor was killed gets a new one."""
    from tuner_tui.runs.launch.start import adopt
    from tuner_tui.runs.read.status import read_status

    while True:
        wait_unlocked(folder.lock)
        found = read_status(folder)
        if not (found.kind == "lost" and found.training_alive):
            return
        try:
            adopt(folder)
        except LaunchError:
            if not is_locked(folder.lock):  # another process may have adopted it first
                raise


def continue_run(folder: RunFolder, spec: ProcessSpec, used: int) -> FellBack | FallbackEnded | None:
    """Restart the ended run in `folder` if it is out of memory. Return the event to record, None for any other end."""
    # Imported now, to keep the process small while it waits, which may take days.
    from tuner_tui.advice.settings_check import unreachable_settings
    from tuner_tui.advice.situation import situation_of_run
    from tuner_tui.runs.read.reader import RunReader
    from tuner_tui.tuning.fallback import FallbackStep, decide_fallback

    view = RunReader(folder).poll()
    if view.record is None:
        return None
    situation = situation_of_run(folder, view)
    unreachable = unreachable_settings(situation)
    decided = decide_fallback(situation, view.record.resolved, spec.job.fallback, used, unreachable)
    if decided is None:
        return None
    if not isinstance(decided, FallbackStep):
        return FallbackEnded(t=time.time(), sentence=decided.sentence)
    try:
        following, step = launch_step(folder, decided, spec)
    except LaunchError as error:
        return FallbackEnded(t=time.time(), sentence=f"{decided.sentence}. The retry could not be launched: {error}")
    return _fell_back(decided, following, step, spec.job.fallback)


def launch_step(folder: RunFolder, decided: FallbackStep, spec: ProcessSpec) -> tuple[RunFolder, int]:
    """Launch the next attempt. Return its folder and the step at which it starts. Raises `LaunchError`."""
    from tuner_tui.runs.launch.restart import plan_restart, restart

    plan = plan_restart(folder, resolved=decided.resolved, job=spec.job, environ=spec.environ, allow_from_scratch=True)
    not_applied = decided.change.keys() & set(plan.prepared.applied.not_applied)
    if not_applied:
        raise LaunchError(f"{', '.join(sorted(not_applied))} cannot be passed to this command.")
    return restart(plan), 0 if plan.checkpoint is None else plan.checkpoint.step


def _fell_back(decided: FallbackStep, following: RunFolder, step: int, max_steps: int) -> FellBack:
    resumed = f"continues as {following.id} from the checkpoint of step {step:,}"
    restarted = f"starts again as {following.id} from step 0, because there is no complete checkpoint"
    return FellBack(
        t=time.time(),
        into=following.id,
        number=decided.number,
        most=max_steps,
        sentence=f"{decided.sentence}; {resumed if step else restarted}.",
        change=decided.change,
        step=step,
    )


def append_event(folder: RunFolder, event: FellBack | FallbackEnded) -> None:
    """Append to the events of an ended run, without secrets.

    Write errors, such as a full disk, do not stop the next attempt.
    """
    try:
        file = LineAppender(folder.events)
    except OSError:
        return
    try:
        file.append(encode_event(replace(event, sentence=redact_text(event.sentence))))
    except OSError as error:
        sys.stderr.write(f"{folder.events}: {error.strerror}\n")
    finally:
        file.close()


if __name__ == "__main__":
    main(sys.argv[1:])
