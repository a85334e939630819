"""The detached process that restarts a run after out of memory: `python -m tuner_tui.tuning.fallback_process DIR`."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import TypeAdapter, ValidationError

from tuner_tui.core.line_files import LineAppender
from tuner_tui.core.locks import acquire_lock, is_locked, wait_unlocked
from tuner_tui.runs.events.types import FallbackEnded, FellBack
from tuner_tui.runs.launch.command import LaunchError
from tuner_tui.runs.store.codec import encode_event
from tuner_tui.runs.store.folder import RunFolder
from tuner_tui.settings.job import Job
from tuner_tui.tuning.detached_process import detach, start_detached

if TYPE_CHECKING:
    from tuner_tui.runs.launch.prepare import LaunchRequest
    from tuner_tui.tuning.fallback import FallbackStep

MODULE = "tuner_tui.tuning.fallback_process"


@dataclass(frozen=True, slots=True)
class FallbackSpec:
    """What the process is handed on its standard input, secrets and all: written nowhere.

    `job` as it was launched, which says how often; `environ` the environment of whoever launched it.
    """

    job: Job
    environ: Mapping[str, str] = field(default_factory=dict)

    def dump(self) -> bytes:
        """As JSON."""
        job = self.job.model_dump(mode="json")
        return json.dumps({"job": job, "environ": dict(self.environ)}).encode("ascii")

    @staticmethod
    def load(data: bytes) -> FallbackSpec:
        """From JSON. Raises `ValueError`."""
        values = json.loads(data)
        try:
            job: Job = TypeAdapter(Job).validate_python(values["job"])
            return FallbackSpec(job, values["environ"])
        except (KeyError, TypeError, ValidationError) as error:
            raise ValueError(f"The orders are damaged: {error}") from error


def attach_fallback(folder: RunFolder, request: LaunchRequest) -> RunFolder:
    """Watch over the run just launched from `request` where its job asks for it; returns its folder.

    Raises `LaunchError` where the watcher does not come up; the run goes on without it.
    """
    if request.job.fallback:
        start_fallback_process(folder, FallbackSpec(request.job, request.environ))
    return folder


def start_fallback_process(folder: RunFolder, orders: FallbackSpec) -> None:
    """Have the run in `folder` continued should it run out of memory; returns once the process is at its post.

    Raises `LaunchError` where it does not come up.
    """
    start_detached(MODULE, folder.path, orders.dump(), folder.supervisor_log, "The automatic fallback")


def main(argv: list[str]) -> None:
    """Watch over the run in the folder `argv[0]`; says `ok` or one sentence, then lets go of whoever started it."""
    folder = RunFolder(Path(argv[0]))
    orders, lock = detach(lambda data: (FallbackSpec.load(data), acquire_lock(folder.fallback_lock)))
    _follow_attempts(folder, orders, lock)


def _follow_attempts(folder: RunFolder, orders: FallbackSpec, lock: int) -> None:
    """One attempt after another; whoever reads of the next one finds that its lock is held already."""
    for used in range(orders.job.fallback + 1):
        wait_until_ended(folder)
        told = continue_run(folder, orders, used)
        following = RunFolder(folder.path.with_name(told.into)) if isinstance(told, FellBack) else None
        next_lock = None if following is None else acquire_lock(following.fallback_lock)
        if told is not None:
            append_event(folder, told)
        os.close(lock)
        if following is None or next_lock is None:
            return
        folder, lock = following, next_lock


def wait_until_ended(folder: RunFolder) -> None:
    """Block until the run has ended; a training that lost its supervisor meanwhile gets another one."""
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
            if not is_locked(folder.lock):  # else somebody else was faster
                raise


def continue_run(folder: RunFolder, orders: FallbackSpec, used: int) -> FellBack | FallbackEnded | None:
    """Decide on the ended run in `folder` and carry it out. Returns what is to be told; None for another end.

    Everything of weight is imported here, so that the wait before, which may take days, is that of a small process.
    """
    from tuner_tui.advice.situation import situation_of_run
    from tuner_tui.runs.read.reader import RunReader
    from tuner_tui.tuning.fallback import Fallback, FallbackStep

    view = RunReader(folder).poll()
    if view.record is None:
        return None
    unreachable = frozenset((*view.record.not_applied, *view.state.not_injected))
    situation = situation_of_run(folder, view)
    decided = Fallback(orders.job.fallback, used).decide(situation, view.record.resolved, unreachable)
    if decided is None:
        return None
    if not isinstance(decided, FallbackStep):
        return FallbackEnded(t=time.time(), sentence=decided.sentence)
    try:
        following, step = launch_step(folder, decided, orders)
    except LaunchError as error:
        return FallbackEnded(t=time.time(), sentence=f"{decided.sentence}. It could not be launched: {error}")
    return _fell_back(decided, following, step, orders.job.fallback)


def launch_step(folder: RunFolder, decided: FallbackStep, orders: FallbackSpec) -> tuple[RunFolder, int]:
    """The run that goes on after the one in `folder`, and the step it begins at. Raises `LaunchError`."""
    from tuner_tui.runs.launch.restart import plan_restart, restart

    plan = plan_restart(
        folder, resolved=decided.resolved, job=orders.job, environ=orders.environ, allow_from_scratch=True
    )
    lost = decided.change.keys() & set(plan.prepared.applied.not_applied)
    if lost:
        raise LaunchError(f"{', '.join(sorted(lost))} cannot be handed to this command.")
    return restart(plan), 0 if plan.checkpoint is None else plan.checkpoint.step


def _fell_back(decided: FallbackStep, following: RunFolder, step: int, most: int) -> FellBack:
    start = f"goes on as {following.id} from the checkpoint of step {step:,}"
    anew = f"starts again as {following.id} from step 0, for there is no complete checkpoint"
    return FellBack(
        t=time.time(),
        into=following.id,
        number=decided.number,
        most=most,
        sentence=f"{decided.sentence}; {start if step else anew}.",
        change=decided.change,
        step=step,
    )


def append_event(folder: RunFolder, event: FellBack | FallbackEnded) -> None:
    """Add to the story of an ended run. A disk that is full takes it not, and keeps nobody from going on."""
    try:
        file = LineAppender(folder.events)
    except OSError:
        return
    try:
        file.append(encode_event(event))
    except OSError as error:
        sys.stderr.write(f"{folder.events}: {error.strerror}\n")
    finally:
        file.close()


if __name__ == "__main__":
    main(sys.argv[1:])
