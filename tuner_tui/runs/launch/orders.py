"""Gives an order to a run and sees that it is obeyed: also on a full disk, and with a supervisor that hangs or is gone.

The supervisor confirms an order in `state.json`. One that does not is continued if it was stopped, else replaced; what
even that does not reach, this process signals itself.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable

from tuner_tui.core.files import LineTail, LockedError, append_line
from tuner_tui.core.procfs import ProcessId, is_alive, read_stat, send_signal, this_machine
from tuner_tui.runs.events.types import Started, StopRequested
from tuner_tui.runs.launch.command import LaunchError
from tuner_tui.runs.launch.restart import wait_supervisor_ended
from tuner_tui.runs.launch.start import adopt
from tuner_tui.runs.queue.queued_run import end_waiting
from tuner_tui.runs.read.event_sampling import read_events
from tuner_tui.runs.read.status import read_status
from tuner_tui.runs.store.codec import decode_event, encode_event
from tuner_tui.runs.store.folder import RunFolder
from tuner_tui.runs.store.supervisor_state import Order, read_order, read_supervisor_state, send_order
from tuner_tui.runs.supervise.monitor import ORDERED_BY_SIGNAL
from tuner_tui.runs.supervise.outcome import recover_state
from tuner_tui.runs.supervise.run_processes import RunProcesses, find_processes, signal_processes
from tuner_tui.runs.supervise.training_process import DEFAULT_TIMEOUTS
from tuner_tui.slurm.commands import SlurmCommands, SlurmError
from tuner_tui.slurm.jobs import SlurmJob, ask, read_job, read_list

PATIENCE_S = 4.0
"""Seconds for the supervisor to confirm an order; it looks once a second, and when it is woken."""
FILE_SERVER_PATIENCE_S = 30.0
"""The same for one on another machine, which sees the order when the file server shows it."""
BUSY_PATIENCE_S = 30.0
"""The same for one that is not hung, but gets no processor or waits for a disk."""
POLL_S = 0.1
KILL_MARGIN_S = 5.0
"""Seconds after SIGKILL was due in which the supervisor may still be busy with the end of the run."""


def give_order(folder: RunFolder, order: Order, note: Callable[[str], None] = lambda sentence: None) -> None:
    """Give an order to a live run; `note` gets a sentence for every detour.

    Blocks until the supervisor has confirmed it, or until the processes were signalled without one. Raises
    `LaunchError`, and `OSError` for a checkpoint that cannot be asked for.
    """
    # Each step is tried only when the one before has failed: write the order and wait for its confirmation; wake a
    # suspended supervisor; replace one that does not answer, which loses the exit code of the training but nothing
    # else; and signal the processes from here. On another machine there is no process to signal, so its Slurm job is
    # cancelled instead.
    found = read_status(folder)
    if found.kind == "waiting":
        _remove_from_queue(folder, order)
        return
    job = read_job(folder.path)
    if found.kind == "pending":
        if order == "checkpoint":
            raise LaunchError("The run has not started yet.")
        _cancel(folder, job)
        return
    if found.kind == "lost" and found.training_alive and not _replace_supervisor(folder, note):
        _end_directly(folder, order, note)
        return
    events = LineTail(folder.events)
    events.skip_to(events.size())
    try:
        send_order(folder, order)
    except OSError as error:
        if order == "checkpoint":
            raise
        note(f"The request cannot be written ({error.strerror}); sending signals instead.")
        _end_directly(folder, order, note)
        return
    elsewhere = job is not None and _is_elsewhere(folder)
    if _confirmed(folder, events, FILE_SERVER_PATIENCE_S) if elsewhere else _is_taken(folder, events, note):
        return
    if order == "checkpoint":
        raise LaunchError("The supervisor of the run does not respond.")
    if elsewhere:
        note("The supervisor does not respond; cancelling the job.")
        _cancel(folder, job)
        return
    note("The supervisor does not respond; starting a new one.")
    if not _replace_supervisor(folder, note) or not _confirmed(folder, events, PATIENCE_S):
        _end_directly(folder, order, note)


def _remove_from_queue(folder: RunFolder, order: Order) -> None:
    """End a waiting run. Raises `LaunchError`, and `OSError` where that cannot be recorded."""
    if order == "checkpoint":
        raise LaunchError("The run has not started yet.")
    try:
        end_waiting(folder, "stopped", "Removed from the queue before it started.")
    except LockedError as error:
        raise LaunchError("It is being started at this moment; try again.") from error


def _is_elsewhere(folder: RunFolder) -> bool:
    """Whether the run's processes are on another machine: no pid of theirs means anything here."""
    supervision = read_supervisor_state(folder.state)
    return supervision is None or supervision.machine != this_machine()


def _cancel(folder: RunFolder, job: SlurmJob | None) -> None:
    """Cancel the Slurm job of the run. Raises `LaunchError`."""
    state_dir = folder.path.parent.parent
    listed = None if job is None else read_list(state_dir, job).find(job)
    job_id = None if job is None else job.job_id or (None if listed is None else listed.job_id)
    if job_id is None:
        raise LaunchError("The id of its Slurm job is not known yet.")
    try:
        SlurmCommands()(["scancel", job_id])
    except SlurmError as error:
        raise LaunchError(str(error)) from error
    ask(state_dir)


def wait_ended(folder: RunFolder, order: Order, note: Callable[[str], None]) -> None:
    """Wait until no process of the run is left. A run that was ordered to be killed and still lives is killed here."""
    deadline = time.monotonic() + DEFAULT_TIMEOUTS.kill_s + KILL_MARGIN_S
    while read_status(folder).live:
        if wait_supervisor_ended(folder, POLL_S * 5):
            time.sleep(POLL_S)
        if order == "kill" and time.monotonic() > deadline:
            note("Some processes of the run are left; sending SIGKILL.")
            job = read_job(folder.path)
            if job is not None and _is_elsewhere(folder):
                _cancel(folder, job)
            _kill(folder)
            deadline = time.monotonic() + KILL_MARGIN_S


def end_leftovers(folder: RunFolder, order: Order, note: Callable[[str], None]) -> None:
    """End what an ended run left running: SIGTERM, and SIGKILL later if that was ordered. Waits for it."""
    remaining = _processes(folder)
    if not remaining.own:
        return
    note(f"The run has ended and left processes running, which get SIGTERM: {remaining.names()}.")
    signal_processes(remaining.own, signal.SIGTERM)
    deadline = time.monotonic() + DEFAULT_TIMEOUTS.kill_s
    while remaining.names() and time.monotonic() < deadline:
        time.sleep(POLL_S)
    if order == "kill":
        _kill(folder)
    elif remaining.names():
        note(f"Still running: {remaining.names()}. `stop --now` kills them.")


def _is_taken(folder: RunFolder, events: LineTail, note: Callable[[str], None]) -> bool:
    """Whether the supervisor confirms the order; one that was stopped is continued."""
    if _confirmed(folder, events, PATIENCE_S):
        return True
    supervision = read_supervisor_state(folder.state)
    stat = (
        None if supervision is None or not is_alive(supervision.supervisor) else read_stat(supervision.supervisor.pid)
    )
    if stat is None or stat.state not in "Tt":
        return False
    note(f"The supervisor (process {stat.pid}) is suspended; resuming it.")
    send_signal(stat, signal.SIGCONT)
    return _confirmed(folder, events, PATIENCE_S)


def _confirmed(folder: RunFolder, events: LineTail, timeout_s: float) -> bool:
    """Whether the supervisor has taken the order in the file, or has ended, within the time.

    The time starts again while the supervisor waits for a processor or a disk: it does not hang, the machine is busy.
    """
    started = time.monotonic()
    deadline, latest = started + timeout_s, started + BUSY_PATIENCE_S
    while True:
        supervision = read_supervisor_state(folder.state)
        here = supervision is not None and supervision.machine == this_machine() and is_alive(supervision.supervisor)
        stat = read_stat(supervision.supervisor.pid) if supervision is not None and here else None
        if stat is not None and stat.state in "RD":
            deadline = min(latest, time.monotonic() + timeout_s)
        if supervision is not None:
            written = read_order(folder.control)
            if supervision.outcome is not None or (written is not None and supervision.order_ns == written[1]):
                return True
        # The supervisor of an older version only writes the event.
        if any(isinstance(decode_event(line), StopRequested) for line in events.lines()):
            return True
        if time.monotonic() >= deadline:
            return False
        time.sleep(POLL_S)


def _replace_supervisor(folder: RunFolder, note: Callable[[str], None]) -> bool:
    """End a supervisor that does not answer, and start another one."""
    supervision = read_supervisor_state(folder.state)
    if supervision is not None:
        send_signal(supervision.supervisor, signal.SIGKILL)
        wait_supervisor_ended(folder, PATIENCE_S)
    try:
        adopt(folder)
    except (LaunchError, OSError) as error:
        note(f"No new supervisor could be started ({str(error).rstrip('.')}); sending signals instead.")
        return False
    return True


def _end_directly(folder: RunFolder, order: Order, note: Callable[[str], None]) -> None:
    """SIGTERM, and SIGKILL later if that was ordered, without the help of files."""
    if order == "checkpoint":
        raise LaunchError("The run has no supervisor to carry out the request.")
    supervision = read_supervisor_state(folder.state)
    if (
        supervision is None
        or not is_alive(supervision.supervisor)
        or not _supervisor_terminates(folder, supervision.supervisor)
    ):
        _record(folder, order)
        signal_processes(_processes(folder).own, signal.SIGTERM)
    if order != "kill":
        return
    deadline = time.monotonic() + DEFAULT_TIMEOUTS.kill_s
    while time.monotonic() < deadline and read_status(folder).live:
        time.sleep(POLL_S)
    _kill(folder)


def _supervisor_terminates(folder: RunFolder, supervisor: ProcessId) -> bool:
    """Ask the supervisor by SIGTERM, which means the order `terminate`; return whether it confirms that."""
    send_signal(supervisor, signal.SIGTERM)
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        supervision = read_supervisor_state(folder.state)
        if supervision is not None and (supervision.outcome is not None or supervision.order_ns == ORDERED_BY_SIGNAL):
            return True
        time.sleep(POLL_S)
    return False


def _kill(folder: RunFolder) -> None:
    signal_processes(_processes(folder).own, signal.SIGKILL)


def _processes(folder: RunFolder) -> RunProcesses:
    """The living processes of the run, with those in sessions of their own that name its folder among its own."""
    events = read_events(folder)
    supervision = read_supervisor_state(folder.state) or recover_state(folder, events)
    if supervision is None or supervision.training is None or supervision.machine != this_machine():
        return RunProcesses()
    ranks = {event.pid for event in events if isinstance(event, Started) and event.pid is not None}
    return find_processes(folder.path, supervision.training, ranks).with_marked()


def _record(folder: RunFolder, order: Order) -> None:
    """Record the order for whoever finds the outcome, if the disk takes it."""
    try:
        append_line(folder.events, encode_event(StopRequested(t=time.time(), how=order)))
    except OSError:
        return
