"""Gives an order to a run and sees that it is obeyed: also on a full disk, and with a supervisor that hangs or is gone.

The supervisor confirms an order in `state.json`. One that does not is ended, and its processes are signalled from here.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from contextlib import suppress

from tuner_tui.core.file_locks import LockedError
from tuner_tui.core.line_files import append_line
from tuner_tui.core.procfs import send_signal, this_machine
from tuner_tui.runs.events.types import Started, StopRequested
from tuner_tui.runs.launch.command import LaunchError, check_unshared
from tuner_tui.runs.launch.start import adopt
from tuner_tui.runs.queue.queued_run import end_waiting
from tuner_tui.runs.read.event_sampling import read_events
from tuner_tui.runs.read.status import read_status
from tuner_tui.runs.slurm import SlurmError, SlurmJob, ask, cancel_job, read_job, read_list, run_slurm
from tuner_tui.runs.store.codec import encode_event
from tuner_tui.runs.store.folder import (
    Order,
    RunFolder,
    SupervisorState,
    read_order,
    read_supervisor_state,
    send_order,
    wait_supervisor_ended,
)
from tuner_tui.runs.supervise.run_processes import RunProcesses, find_processes, find_without_folder, signal_processes
from tuner_tui.runs.supervise.training_process import DEFAULT_TIMEOUTS

PATIENCE_S = 30.0
"""Seconds for the supervisor to confirm an order. It looks once a second; a machine that swaps, or the file server
between two machines, may take far longer."""
POLL_S = 0.1
JOB_END_S = 30.0
"""For a job to end whose run has ended, before it is cancelled; for Slurm to end a cancelled one."""
KILL_MARGIN_S = 5.0
"""Seconds after SIGKILL was due in which the supervisor may still be busy with the end of the run."""


def give_order(folder: RunFolder, order: Order, note: Callable[[str], None] = lambda sentence: None) -> None:
    """Give the order of a person to a live run; `note` gets a sentence where it does not go through the supervisor.

    A job of Slurm is not requeued after it, whatever was ordered before. Blocks until the supervisor has confirmed it,
    or until the processes were signalled without one. Raises `LaunchError`, and `OSError` for a checkpoint that cannot
    be asked for.
    """
    check_unshared(folder.path, folder.state)
    if order != "checkpoint" and read_job(folder.path) is not None:
        cancel_job(folder.path)
    pass_order(folder, order, note)


def pass_order(folder: RunFolder, order: Order, note: Callable[[str], None] = lambda sentence: None) -> None:
    """The same for an order that Slurm gives: its job may be requeued."""
    status, job = read_status(folder), read_job(folder.path)
    if status.kind in ("waiting", "pending") and order == "checkpoint":
        raise LaunchError("The run has not started yet.")
    if status.kind == "waiting":
        try:
            end_waiting(folder, "stopped", "Removed from the queue before it started.")
        except LockedError as error:
            raise LaunchError("The run is just starting; try again.") from error
        return
    if status.kind == "pending":
        _cancel(folder, job)
        return
    problem, hangs = "The supervisor does not respond", True
    try:
        # Before a dead supervisor is replaced: the new one may find that only ranks in sessions of their own are left,
        # which nobody but a stop ends, and record the end of the run at its first look.
        send_order(folder, order)
    except OSError as error:
        if order == "checkpoint":
            raise
        problem, hangs = f"The request cannot be written ({error.strerror})", False
    if status.kind == "lost" and status.training_alive:
        try:
            adopt(folder)
        except (LaunchError, OSError) as error:
            note(f"No new supervisor could be started ({str(error).rstrip('.')}); sending signals instead.")
            _end_directly(folder, order)
            return
    if hangs and _wait_until(lambda: _is_confirmed(folder), PATIENCE_S):
        return
    if order == "checkpoint":
        raise LaunchError(f"{problem}.")
    supervision = read_supervisor_state(folder.state)
    if job is not None and (supervision is None or supervision.machine != this_machine()):
        note(f"{problem}; cancelling the job.")
        _cancel(folder, job)
    elif hangs or supervision is None:
        note(f"{problem}; sending signals to the training instead.")
        _end_directly(folder, order)
    else:
        note(f"{problem}; sending a signal to the supervisor instead.")
        send_signal(supervision.supervisor, signal.SIGTERM)  # which means the order `terminate`
        if order == "kill":
            _kill_later(folder)


def _cancel(folder: RunFolder, job: SlurmJob | None) -> None:
    """Cancel the Slurm job of the run. Raises `LaunchError`."""
    job_id = None if job is None else job.job_id
    if job_id is None:
        raise LaunchError("The id of its Slurm job is still unknown.")
    try:
        run_slurm(["scancel", job_id])
    except SlurmError as error:
        raise LaunchError(str(error)) from error
    ask(folder.path.parent.parent)


def wait_ended(folder: RunFolder, order: Order, note: Callable[[str], None]) -> None:
    """Wait until the run has ended. One that was ordered to be killed and still lives is killed here, and what a run
    left running that ended before it took the order is ended.

    Raises `LaunchError` where processes are left that only another user can end.
    """
    deadline = time.monotonic() + DEFAULT_TIMEOUTS.kill_s + KILL_MARGIN_S
    while (status := read_status(folder)).live:
        if status.kind == "pending":  # its job was cancelled
            ask(folder.path.parent.parent)
        if wait_supervisor_ended(folder, POLL_S * 5):
            time.sleep(POLL_S)
        if order == "kill" and time.monotonic() > deadline:
            if names := _processes(folder).of_others().names():
                raise LaunchError(f"Some processes of the run are left: {names}.")
            note("Some processes of the run are left; sending SIGKILL.")
            _kill(folder)
            deadline = time.monotonic() + KILL_MARGIN_S
    if not _has_taken(read_supervisor_state(folder.state), folder) or order == "kill":
        # The run ended before its supervisor took the order, or before SIGKILL was due for what the training has left.
        end_leftovers(folder, order, note)
    job = read_job(folder.path)
    if job is not None and job.job_id is not None and not job.is_this:
        _wait_gone(folder, job, note)


def _wait_gone(folder: RunFolder, job: SlurmJob, note: Callable[[str], None]) -> None:
    """Wait until Slurm no longer has the job of an ended run, which is cancelled if it would start again.

    Raises `LaunchError` if that takes too long.
    """
    started_s = cancelled_s = time.monotonic()
    while True:
        ask(folder.path.parent.parent)
        listed = read_list(folder.path.parent.parent, job)
        state = listed.find(job)
        if listed.problem:
            note(f"The run has ended; whether its job starts again is unknown: {listed.problem}")
            return
        if state is None or state.ended:
            return
        now = time.monotonic()
        if state.waits or now - cancelled_s > JOB_END_S:
            cancelled_s = now
            _cancel(folder, job)
        if now - started_s > 3 * JOB_END_S:
            raise LaunchError(f"{job.name} has not ended yet: Slurm reports {state.state}.")
        time.sleep(POLL_S * 5)


def end_leftovers(folder: RunFolder, order: Order, note: Callable[[str], None]) -> None:
    """End what an ended run left running: SIGTERM, and SIGKILL later if that was ordered. Waits for it. Raises
    `LaunchError`."""
    check_unshared(folder.path, folder.state)
    remaining = _processes(folder)
    if not remaining.members:
        return
    note(f"The run has ended and left processes running, which get SIGTERM: {remaining.names()}.")
    signal_processes(remaining.members, signal.SIGTERM)
    _wait_until(lambda: not remaining.names(), DEFAULT_TIMEOUTS.kill_s)
    if order == "kill":
        _kill(folder)
    elif remaining.names():
        note(f"Still running: {remaining.names()}. `tuner-tui stop --now {folder.argument}` kills them.")


def _is_confirmed(folder: RunFolder) -> bool:
    """Whether the supervisor has taken the order in the file, or ended."""
    supervision = read_supervisor_state(folder.state)
    return _has_taken(supervision, folder) or (supervision is not None and supervision.outcome is not None)


def _has_taken(supervision: SupervisorState | None, folder: RunFolder) -> bool:
    """Whether the order in the file is the one that the supervisor took last."""
    written = read_order(folder.control)
    return supervision is not None and written is not None and supervision.order_ns == written[1]


def _wait_until(condition: Callable[[], bool], timeout_s: float) -> bool:
    """Whether the condition is met within the time."""
    deadline = time.monotonic() + timeout_s
    while not (met := condition()) and time.monotonic() < deadline:
        time.sleep(POLL_S)
    return met


def _end_directly(folder: RunFolder, order: Order) -> None:
    """End the supervisor if it hangs, and signal the processes: SIGTERM, and SIGKILL later if that was ordered."""
    if order == "checkpoint":
        raise LaunchError("The run has no supervisor to carry out the request.")
    supervision = read_supervisor_state(folder.state)
    if supervision is not None and supervision.machine == this_machine():
        send_signal(supervision.supervisor, signal.SIGKILL)
        wait_supervisor_ended(folder, KILL_MARGIN_S)
    with suppress(OSError):  # a full disk
        append_line(folder.events, encode_event(StopRequested(t=time.time(), how=order)))
    signal_processes(_processes(folder).members, signal.SIGTERM)
    if order == "kill":
        _kill_later(folder)


def _kill_later(folder: RunFolder) -> None:
    _wait_until(lambda: not read_status(folder).live, DEFAULT_TIMEOUTS.kill_s)
    _kill(folder)


def _kill(folder: RunFolder) -> None:
    signal_processes(_processes(folder).members, signal.SIGKILL)


def _processes(folder: RunFolder) -> RunProcesses:
    """The living processes of the run, with those in sessions of their own that are tied to it among its own."""
    supervision = read_supervisor_state(folder.state)
    if supervision is None and not folder.path.is_dir():
        return find_without_folder(folder.path)
    if supervision is None or supervision.training is None or supervision.machine != this_machine():
        return RunProcesses()
    ranks = {event.pid for event in read_events(folder) if isinstance(event, Started) and event.pid is not None}
    return find_processes(folder.path, supervision.training, ranks, recorded=supervision.apart).with_tied()
