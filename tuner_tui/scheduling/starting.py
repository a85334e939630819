"""Starts the run of an entry exactly once, whenever the dispatcher may be killed.

The entry is marked `starting` on disk before anything is done, and the run carries the entry's token in its record.
Whoever finds an entry so marked looks for a run with its token: there is one, and the entry is running; or there is
none, and it waits again. A folder whose supervisor never came up is locked, so that none comes up late, and removed.
"""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from tuner_tui.core.files import LockedError, acquire_lock
from tuner_tui.runs.launch.command import LaunchError
from tuner_tui.runs.launch.prepare import LaunchRequest, prepare
from tuner_tui.runs.launch.restart import plan_restart
from tuner_tui.runs.launch.start import DuplicateRunError
from tuner_tui.runs.read.status import read_status
from tuner_tui.runs.store.folder import RunFolder, list_runs
from tuner_tui.runs.store.record import RecordError, parse_record
from tuner_tui.runs.store.supervisor_state import read_supervisor_state
from tuner_tui.scheduling.entry import EntryError, QueueEntry
from tuner_tui.scheduling.occupancy import HOST
from tuner_tui.scheduling.queue_store import Queue, QueueError
from tuner_tui.tuning.launching import start_run
from tuner_tui.tuning.parallel.trial_share import CARDS_VARIABLE, THREADS_VARIABLE, with_environment

FULL_DISK = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
SEARCHED_RUNS = 200

Launch = Callable[[LaunchRequest], RunFolder]


@dataclass(frozen=True, slots=True)
class Attempt:
    """The result of an attempt to start: the run, or why there is none and whether the reason is temporary."""

    run: RunFolder | None = None
    sentence: str = ""
    transient: bool = False


def launch_request(request: LaunchRequest) -> RunFolder:
    """Prepare and start a launch. Raises `LaunchError` and `RecordError`."""
    return start_run(prepare(request), refuse_duplicate=True)


def start_entry(
    queue: Queue, entry: QueueEntry, keys: tuple[str, ...], promised_bytes: int | None, launch: Launch
) -> Attempt:
    """Start the run of a waiting entry on the places `keys`, and record it. Raises nothing but programming errors."""
    try:
        with queue.locked():
            now = queue.read().find(entry.id)
            if now is None or now.progress.state != "waiting" or now.progress.held is not None:
                return Attempt(sentence="It was changed at this moment.", transient=True)
            marked = now.changed(state="starting", keys=keys, promised_bytes=promised_bytes)
            queue.write(marked)
    except QueueError as error:
        return Attempt(sentence=str(error), transient=True)
    # The queue is not locked meanwhile: a launch takes seconds, and orders must not wait for it.
    attempt = _attempt(queue, marked, keys, launch)
    settled = settle_start(queue, marked, attempt.run)
    return Attempt(settled) if settled is not None else attempt


def _attempt(queue: Queue, entry: QueueEntry, keys: tuple[str, ...], launch: Launch) -> Attempt:
    try:
        request = bind(queue.complete_request(entry), entry, keys)
        return Attempt(launch(request))
    except (EntryError, RecordError) as error:
        return Attempt(sentence=str(error))
    except DuplicateRunError as error:
        return Attempt(sentence=f"{error}".partition(";")[0] + ".", transient=True)
    except LaunchError as error:
        cause = error.__cause__
        return Attempt(sentence=str(error), transient=isinstance(cause, OSError) and cause.errno in FULL_DISK)
    except OSError as error:  # the folder, interpreter or program went away at this moment
        return Attempt(sentence=f"It cannot be started: {error.strerror} ({error.filename}).")


def bind(request: LaunchRequest, entry: QueueEntry, keys: tuple[str, ...]) -> LaunchRequest:
    """The request on the cards `keys`, or on no card, marked with the entry's token.

    An entry that comes back goes on from the checkpoint of its run, else it starts again in the same lineage. Raises
    `LaunchError`.
    """
    bound = {CARDS_VARIABLE: "" if keys == (HOST,) else ",".join(keys)}
    if entry.cores is not None and entry.gpus == 0:
        bound[THREADS_VARIABLE] = str(max(1, entry.cores // request.job.processes))
    request = with_environment(request, bound)
    before = entry.run_folder
    if before is not None and before.record.exists():
        restart = plan_restart(
            before, resolved=request.resolved, job=request.job, environ=request.environ, allow_from_scratch=True
        ).request
        request = replace(request, parent=restart.parent, from_scratch=restart.from_scratch)
    return replace(request, queued_as=entry.token)


def settle_start(queue: Queue, entry: QueueEntry, run: RunFolder | None = None) -> RunFolder | None:
    """Find out whether the `starting` entry has a run, and record it; without one, it waits again.

    Returns the run. Where the disk is full the entry stays marked, and is settled later.
    """
    found = run or find_run_of(entry)
    if found is not None and run is None and _never_started(found):
        found = None
    try:
        if found is not None:
            queue.update(entry.id, state="running", run=str(found.path))
        elif not _still_starting(entry):
            queue.update(entry.id, state="waiting", keys=(), promised_bytes=None)
    except QueueError:
        return found
    return found


def find_run_of(entry: QueueEntry) -> RunFolder | None:
    """Return the newest run with the entry's token, other than the one that it resumes."""
    for folder in list_runs(entry.request.runs_root)[:SEARCHED_RUNS]:
        if str(folder.path) == entry.progress.run:
            return None  # those before it are older
        try:
            if parse_record(folder.record).get("queued_as") == entry.token:
                return folder
        except RecordError:
            continue
    return None


def _still_starting(entry: QueueEntry) -> bool:
    """Whether the supervisor of the entry's run may still be starting."""
    found = find_run_of(entry)
    return found is not None and read_status(found).kind == "starting"


def _never_started(folder: RunFolder) -> bool:
    """Whether the supervisor of the run did not come up; its folder is then removed, so that it never will.

    Only the process that starts runs asks, when no launch of its own is under way.
    """
    if read_supervisor_state(folder.state) is not None:
        return False
    status = read_status(folder)
    if status.outcome is not None or status.training_alive:
        return False
    if status.kind == "starting":
        return True
    try:
        # Its supervisor takes this lock first of all. Who holds it here keeps a late supervisor from coming up.
        lock = acquire_lock(folder.lock, timeout_s=0.0)
    except LockedError:
        return False
    except OSError:
        return not Path(folder.path).exists()
    try:
        shutil.rmtree(folder.path, ignore_errors=True)
    finally:
        os.close(lock)
    return True
