"""Whether a run is alive, judged by locks and processes; and which run continues one that ran out of memory."""

from __future__ import annotations

import os
import shlex
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from tuner_tui.core.file_locks import is_locked, wait_unlocked
from tuner_tui.core.procfs import Machine, ProcessId, is_alive, this_machine
from tuner_tui.runs.events.run_state import RunState
from tuner_tui.runs.queue.queued_run import QueueError, waiting_run, waiting_sentence
from tuner_tui.runs.slurm import (
    LOG_FILE,
    SLURM_OUTCOMES,
    TAKEN,
    JobList,
    JobState,
    SlurmJob,
    is_cancelled,
    read_job,
    read_list,
    write_job,
)
from tuner_tui.runs.store.folder import RunFolder, SupervisorState, list_runs, read_supervisor_state
from tuner_tui.runs.supervise.run_processes import ProcessSnapshot, find_processes, find_without_folder

StatusKind = Literal["waiting", "pending", "starting", "running", "ended", "lost", "foreign", "broken"]
SLURM_PATIENCE_S = 3.0
"""Seconds that a command waits for an answer of Slurm, which asks its controller over the network."""
SUBMISSION_S = 60.0
"""Seconds after which `sbatch` has answered, if its caller lives."""
START_GRACE_S = 15.0
"""Seconds in which a new folder without supervisor counts as starting."""


class InspectionError(LookupError):
    """The processes of a run could not be asked; the message is a sentence."""


class RunStatus(Struct, frozen=True):
    """The status of a run. A `lost` run has no supervisor; its training may still run (`training_alive`), and so may
    that of a `broken` one whose folder was deleted.

    A `waiting` run waits in the queue, a `pending` one in that of Slurm. `pid` is the training process if it is alive
    on this machine; `outcome` is set for `ended` runs.
    """

    kind: StatusKind
    sentence: str
    outcome: str | None = None
    exit_code: int | None = None
    signal: int | None = None
    pid: int | None = None
    training_alive: bool = False
    problems: tuple[str, ...] = ()

    @property
    def live(self) -> bool:
        """Whether a training may be running."""
        return self.kind in ("pending", "starting", "running") or self.training_alive


def live_runs(root: Path) -> Iterator[RunFolder]:
    """Yield the live runs among those in `root`, newest first."""
    snapshot = ProcessSnapshot()
    return (folder for folder in list_runs(root) if read_status(folder, snapshot=snapshot).live)


def read_status(
    folder: RunFolder, machine: Machine | None = None, now: float | None = None, snapshot: ProcessSnapshot | None = None
) -> RunStatus:
    """The status of the run in `folder` for `machine` (default: this one) at `now` (default: the current time).

    Whoever looks at many runs passes a `snapshot`; a run without supervisor would have every process looked at anew.
    """
    # No file proves that a run is alive: its last program may have been killed in the middle of a write. A pid counts
    # only with the start time of its process, on the machine and in the boot that it is of; the lock is held by a
    # living supervisor. Where neither can be seen from here, Slurm is asked. A run that turns out to be dead is
    # settled: who looks first records the outcome.
    try:
        here = machine or this_machine()
        if os.path.lexists(folder.queue) and waiting_run(folder) is not None:
            from tuner_tui.runs.store.record import readable_record  # imports the settings, which `watch` does without

            record = readable_record(folder)
            if record is not None and record.host != here.host:
                return RunStatus("foreign", "This run was queued on another machine; open it there.")
            return RunStatus("waiting", waiting_sentence(folder))
        supervision = read_supervisor_state(folder.state)
        job = read_job(folder.path)
        if job is not None and (supervision is None or supervision.machine != here or supervision.outcome is not None):
            status = _status_in_slurm(folder, job, supervision, here)
        elif supervision is not None:
            status = _status_from_state(folder, supervision, here, snapshot)
            if job is not None and status.kind == "lost" and not status.training_alive:
                status = _status_in_slurm(folder, job, supervision, here)
        else:
            return _status_without_state(folder, time.time() if now is None else now, snapshot)
        return status if supervision is None else replace(status, problems=supervision.problems)
    except QueueError as error:
        return RunStatus("broken", str(error))
    except OSError as error:
        return RunStatus("broken", f"The run folder cannot be read: {error.strerror} ({folder.path}).")


def _status_from_state(
    folder: RunFolder, supervision: SupervisorState, here: Machine, snapshot: ProcessSnapshot | None
) -> RunStatus:
    if supervision.outcome is not None:
        return _ended(supervision)
    machine, training = supervision.machine, supervision.training
    if machine.host == here.host and machine.boot_id != here.boot_id:
        return _ended_or_lost(folder, supervision, "The machine was rebooted while this run was training.")
    if (machine.boot_id, machine.pid_namespace) != (here.boot_id, here.pid_namespace):
        sentence = f"another machine or container, {machine.host} (this is {here.host}); open it there."
        return RunStatus("foreign", f"This run belongs to {sentence}")
    if not (is_locked(folder.lock) or is_alive(supervision.supervisor)):  # somebody may have deleted the lock
        return _without_supervisor(folder, supervision, snapshot)
    if training is None:
        return RunStatus("starting", "The supervisor is starting the training.")
    sentence = f"Running as process {training.pid}."
    return RunStatus("running", sentence, pid=training.pid, training_alive=is_alive(training))


def _status_in_slurm(folder: RunFolder, job: SlurmJob, supervision: SupervisorState | None, here: Machine) -> RunStatus:
    """The status of a run of a Slurm job whose processes cannot be seen from here: by what Slurm says of the job."""
    ended = supervision if supervision is not None and supervision.outcome is not None else None
    if ended is not None and not _may_start_again(job, ended):
        return _ended(ended)
    listed = read_list(folder.path.parent.parent, job)
    state = listed.find(job)
    if ended is not None:
        return _ended_once(folder, ended, job, state, listed)
    asked_before_start = supervision is not None and listed.answered_t < supervision.started_t
    if state is None or asked_before_start:
        return _unlisted(folder, job, supervision, listed)
    if state.waits:
        again = " again" if supervision is not None else ""
        return RunStatus("pending", f"{job.name} waits to start{again}: {state.reason_words}.")
    if state.ended:
        return _ended_in_slurm(folder, job, supervision, state, here)
    if supervision is None or supervision.training is None:
        return RunStatus("starting", f"{job.name} starts {state.place}".rstrip() + ".")
    return RunStatus("running", f"Running {state.place}as {job.name}.")


REPORT_S = 3600.0
"""Seconds after the end of a run in which Slurm is asked how its job ended; it forgets that after some minutes."""


def _may_start_again(job: SlurmJob, ended: SupervisorState) -> bool:
    """Whether Slurm may start the job of an ended run again, or may know better how it ended."""
    if job.over or job.continued_by is not None or job.is_this or ended.outcome == "completed":
        return False
    asked_for = time.time() - (ended.ended_t or 0.0) < REPORT_S
    return job.waits_again or ended.outcome in SLURM_OUTCOMES or asked_for


def _ended_once(
    folder: RunFolder, ended: SupervisorState, job: SlurmJob, state: JobState | None, listed: JobList
) -> RunStatus:
    """The status of a run that has ended, and whose job may continue it."""
    gone = state is not None and state.ended
    if gone or listed.knows_nothing_of(job):
        with suppress(OSError):  # in a folder of another user
            write_job(folder.path, replace(job, over=True))
        return _ended(_revised(folder, ended, job, state))
    why = f": {state.reason_words}" if state is not None and state.waits else ""
    if job.waits_again:
        return RunStatus("pending", f"{ended.sentence} {job.name} reached its time limit and continues the run{why}.")
    if why:
        return RunStatus("pending", f"{ended.sentence} {job.name} waits to start again{why}.")
    if ended.outcome in TAKEN and job.requeues and state is not None:
        return RunStatus("pending", f"{ended.sentence} {job.name} will start again.")
    return _ended(ended)


def _revised(folder: RunFolder, ended: SupervisorState, job: SlurmJob, state: JobState | None) -> SupervisorState:
    """The end of a run as Slurm reports it, where that says more than the exit of the training."""
    outcome, words = ("", "ended") if state is None else state.end
    cancelled = is_cancelled(folder.path) and outcome != "out-of-memory"
    if job.waits_again:
        revised = replace(ended, sentence=f"{ended.sentence} {job.name} {words} before it continued the run.")
    elif outcome not in (*SLURM_OUTCOMES, "out-of-memory") or cancelled or ended.outcome in (outcome, *SLURM_OUTCOMES):
        return ended
    else:
        revised = replace(ended, outcome=outcome, sentence=f"{job.name} {words}.")
    from tuner_tui.runs.supervise.outcome import record_end

    record_end(folder, revised, ended.outcome)
    return revised


def _unlisted(folder: RunFolder, job: SlurmJob, supervision: SupervisorState | None, listed: JobList) -> RunStatus:
    """The status of a run of whose job Slurm has said nothing."""
    if job.job_id is None and time.time() > job.submitted_t + SUBMISSION_S:
        return RunStatus("lost", "The submission was interrupted; `squeue` lists the job if Slurm has accepted it.")
    if listed.knows_nothing_of(job):
        lost = f"Slurm does not know job {job.job_id} any more; how the run ended is unknown."
        return _ended_or_lost(folder, supervision, lost)
    problem = f": {listed.problem}" if listed.problem else "."
    if supervision is not None:
        seen = " at the last reading" if listed.problem else ""
        return RunStatus("running", f"Running on {supervision.machine.host} as {job.name}{seen}{problem}")
    return RunStatus("pending", f"{job.name} was submitted{problem}")


def _ended_in_slurm(
    folder: RunFolder, job: SlurmJob, supervision: SupervisorState | None, state: JobState, here: Machine
) -> RunStatus:
    """How a run ended that could not record it, by its own files or else by the state of its job."""
    if is_locked(folder.lock):
        return RunStatus("running", f"{job.name} {state.end[1]}; its supervisor records the end.")
    settled = None if supervision is None else _settled(folder, supervision)
    if settled is None:
        from tuner_tui.runs.supervise.outcome import read_log_tail, record_end

        outcome, words = state.end
        if supervision is None:
            outcome, words = ("stopped", words) if outcome == "stopped" else ("failed", words)
            words += " before the training started"
            supervision = SupervisorState(here, ProcessId(0, 0), job.submitted_t)
        output = read_log_tail(folder.path / LOG_FILE) if outcome == "failed" else ""
        last_line = f": {output.splitlines()[-1][:200]}" if output else "."
        settled = replace(supervision, outcome=outcome, sentence=f"{job.name} {words}{last_line}", ended_t=time.time())
        record_end(folder, settled)
    return _ended(settled)


def _settled(folder: RunFolder, supervision: SupervisorState) -> SupervisorState | None:
    """How a run ended that could not record it, by its own files."""
    from tuner_tui.runs.read.event_sampling import read_events
    from tuner_tui.runs.supervise.outcome import settle  # judges logs, which `watch` does without

    return settle(folder, supervision, read_events(folder))


def _ended(supervision: SupervisorState) -> RunStatus:
    return RunStatus("ended", supervision.sentence, supervision.outcome, supervision.exit_code, supervision.signal)


def _ended_or_lost(folder: RunFolder, supervision: SupervisorState | None, lost: str) -> RunStatus:
    """How a run without living processes ended, by its own files; `lost` is the sentence where they do not say it."""
    settled = None if supervision is None else _settled(folder, supervision)
    return RunStatus("lost", lost) if settled is None else _ended(settled)


def _without_supervisor(folder: RunFolder, supervision: SupervisorState, snapshot: ProcessSnapshot | None) -> RunStatus:
    training = supervision.training
    pid, sentence = None, ""
    if training is not None and is_alive(training):
        pid, sentence = training.pid, f"The supervisor is gone; the training continues as process {training.pid}."
    elif training is not None:
        processes = find_processes(folder.path, training, snapshot=snapshot, recorded=supervision.apart)
        if names := processes.names():
            pid = (*processes.members, *processes.detached)[0].pid
            sentence = f"The supervisor and its process are gone; other processes of the training continue: {names}."
    if pid is not None:
        return RunStatus("lost", sentence, pid=pid, training_alive=True)
    lost = "The supervisor and the training have ended; the outcome is unknown."
    return _ended_or_lost(folder, supervision, lost)


def _status_without_state(folder: RunFolder, now: float, snapshot: ProcessSnapshot | None) -> RunStatus:
    if not folder.path.is_dir():
        processes = find_without_folder(folder.path, snapshot)
        names, pid = processes.names(), next((process.pid for process in processes.members), None)
        left = f", but processes of the run continue: {names}" if names else ""
        return RunStatus("broken", f"There is no run folder {folder.path}{left}.", pid=pid, training_alive=bool(names))
    if is_locked(folder.lock):
        return RunStatus("starting", "The supervisor is starting the training.")
    if os.path.lexists(folder.state) or folder.events.exists():
        return RunStatus(
            "broken", f"{folder.state} is damaged or gone and there is no supervisor: how the run ended is unknown."
        )
    if abs(now - folder.path.stat().st_mtime) < START_GRACE_S:  # a file server's clock may be ahead
        return RunStatus("starting", "The run is being launched.")
    if not folder.record.exists():
        remove = f"`rm -r {shlex.quote(str(folder.path))}` removes it"
        return RunStatus(
            "ended", f"Its launch was interrupted before the training started. {remove}.", outcome="not-started"
        )
    return RunStatus("lost", "The run never started: its supervisor failed to start.")


def await_slurm(folders: Iterable[RunFolder]) -> None:
    """Wait a moment for what Slurm says of the jobs of the runs, if one has not ended and the last answer is old."""
    for folder in folders:
        job = read_job(folder.path)
        supervision = None if job is None else read_supervisor_state(folder.state)
        if job is not None and (
            supervision is None or supervision.outcome is None or _may_start_again(job, supervision)
        ):
            read_list(folder.path.parent.parent, job, SLURM_PATIENCE_S)
            return


def wait_for_fallback(folder: RunFolder) -> None:
    """Block until the fallback process has continued the ended run or given up; the events of the run then say
    which."""
    if is_locked(folder.fallback_lock):
        wait_unlocked(folder.fallback_lock)


def continuation_of(folder: RunFolder, state: RunState) -> RunFolder | None:
    """The run that continues the one in `folder`, according to its `state` or after the time limit of its job."""
    job = read_job(folder.path)
    into = None if state.fell_back is None else state.fell_back.into
    into = into or (None if job is None else job.continued_by)
    return None if into is None else RunFolder(folder.path.with_name(into))
