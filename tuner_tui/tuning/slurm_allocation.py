"""Runs a training inside an allocation of Slurm: `python -m tuner_tui.tuning.slurm_allocation DIR`.

This is the process that the sbatch script executes. It starts the usual supervisor in the run folder, waits for the end
and passes Slurm's signals on as orders. A job that Slurm starts for the second time continues the lineage of its run in
a new one, from the newest checkpoint.
"""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import sys
import time
from collections.abc import Mapping, Set
from contextlib import suppress
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from tuner_tui.core.file_locks import LockedError, acquire_lock
from tuner_tui.core.redaction import HIDDEN
from tuner_tui.runs import slurm
from tuner_tui.runs.launch.command import LaunchError
from tuner_tui.runs.launch.orders import pass_order
from tuner_tui.runs.launch.restart import plan_restart, restart
from tuner_tui.runs.launch.slurm_submission import SECRETS_VARIABLE
from tuner_tui.runs.launch.start import adopt, private_memory_limit, start_fallback, start_supervisor
from tuner_tui.runs.read.checkpoints import lineage_checkpoint
from tuner_tui.runs.read.reader import read_brief
from tuner_tui.runs.read.status import continuation_of, read_status, wait_for_fallback
from tuner_tui.runs.store.folder import RunFolder, read_supervisor_state, wait_supervisor_ended
from tuner_tui.runs.store.record import RecordError, RunRecord, read_record
from tuner_tui.runs.supervise.outcome import RunOutcome, record_end, slurm_end
from tuner_tui.runs.supervise.training_process import LaunchSpec
from tuner_tui.settings.job import Job, job_from_json

LIMIT = signal.Signals[f"SIG{slurm.LIMIT_SIGNAL}"]
"""Slurm announces the time limit."""
EXIT_CODES = {"completed": 0, "out-of-memory": 3, "stopped": 143, "time-limit": 143}
FIRST_PORT, PORTS = 20_000, 10_000
"""Rendezvous ports: jobs that share a node differ by their id."""


def main(argv: list[str]) -> int:
    """Train, and return the exit code of the job."""
    # Handlers must not write files: they only note the signals, which turn into one order to stop.
    signals = set[int]()
    for number in (LIMIT, signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda number, frame: signals.add(number))
    folder = RunFolder(Path(argv[0]))
    job = slurm.read_job(folder.path)
    if job is None or not folder.record.exists():
        return _say(f"The run folder {folder.path} is gone; nothing is started.")
    job = replace(job, job_id=os.environ["SLURM_JOB_ID"], requeued_t=None, continued_by=None)
    os.environ.update(rendezvous(os.environ))
    try:
        # What the record hides; neither the supervisor nor the training gets the variable.
        hidden = dict(json.loads(os.environ.pop(SECRETS_VARIABLE, "{}")))
        folder, first_step = _begin(folder, job, hidden)
    except (LaunchError, RecordError, LockedError, OSError, ValueError) as error:
        return _say(str(error))
    folder = _follow(folder, job, signals)
    # The time limit ended the run as `stop` would; whether the job goes on is decided by what was saved.
    outcome = read_status(folder).outcome
    if LIMIT in signals:
        _requeue(folder, first_step)
    return EXIT_CODES.get(outcome or "", 1)


def _say(sentence: str) -> int:
    sys.stderr.write(f"{sentence}\n")
    return 1


def rendezvous(environ: Mapping[str, str], run_command: slurm.SlurmRunner = slurm.run_slurm) -> dict[str, str]:
    """The variables by which launchers find the other nodes of the allocation; none on a single node.

    torchrun reads the first three, accelerate and deepspeed get the others as options, on each node.
    """
    if int(environ.get("SLURM_JOB_NUM_NODES", "1")) == 1:
        return {}
    try:
        node = run_command(["scontrol", "show", "node", environ["SLURMD_NODENAME"]])
    except (slurm.SlurmError, KeyError):
        node = ""
    match = re.search(r"\bNodeAddr=([\w.:-]+)", node)
    address = socket.gethostname() if match is None else match[1]
    port = FIRST_PORT + int(environ["SLURM_JOB_ID"]) % PORTS
    return {
        "PET_RDZV_BACKEND": "c10d",
        "PET_RDZV_ENDPOINT": f"{address}:{port}",
        "PET_RDZV_ID": environ["SLURM_JOB_ID"],
        "MASTER_ADDR": address,
        "MASTER_PORT": str(port),
    }


def _begin(folder: RunFolder, job: slurm.SlurmJob, hidden: Mapping[str, Any]) -> tuple[RunFolder, int]:
    """Start the run, or continue it in a new one; return its folder and the step at which it starts."""
    first = slurm.read_job(folder.path)
    if first is not None and first.job_id is None:  # its submitter was killed
        slurm.write_job(folder.path, job)
    # Each start of the same job continues the run in a new folder; the script names the first one for ever.
    while (job_record := slurm.read_job(folder.path)) is not None and job_record.continued_by is not None:
        folder = RunFolder(folder.path.with_name(job_record.continued_by))
    if slurm.is_cancelled(folder.path):
        raise LaunchError(f"Run {folder.id} was stopped; nothing is started.")
    record = read_record(folder)
    if read_supervisor_state(folder.state) is not None:
        _record_interruption(folder, job)
        # It goes on in a new run of the same lineage, which belongs to the same job.
        plan = plan_restart(folder, job=_job(record, hidden), environ=dict(os.environ), allow_from_scratch=True)
        following = restart(plan)
        slurm.write_job(following.path, job)
        slurm.write_job(folder.path, replace(slurm.read_job(folder.path) or job, continued_by=following.id))
        return following, _step(folder)
    if HIDDEN in " ".join((*record.argv, *record.env.values())) and not hidden:
        raise LaunchError("The command contains a secret, which the environment of the job does not have.")
    env = {**os.environ, **hidden.get("env", record.env)}
    argv = tuple(hidden.get("argv", record.argv))
    limit = private_memory_limit(record.memory_limit_bytes, env)
    start_supervisor(folder, LaunchSpec(argv, record.cwd, env, limit))
    start_fallback(folder, _job(record, hidden), dict(os.environ))
    return folder, _step(folder)


def _job(record: RunRecord, hidden: Mapping[str, Any]) -> Job:
    return job_from_json(hidden["job"]) if "job" in hidden else record.job


def _record_interruption(folder: RunFolder, job: slurm.SlurmJob) -> None:
    """Record how the run ended whose node failed or was taken: Slurm starts no job twice at a time."""
    state = read_supervisor_state(folder.state)
    if state is None or state.outcome is not None:
        return
    os.close(acquire_lock(folder.lock, 30.0, needed=False))  # its supervisor may be about to end
    sentence = f"{job.name} was interrupted on {state.machine.host} and started again."
    end = slurm_end(read_brief(folder).state, folder.path) or RunOutcome("requeued", sentence)
    record_end(folder, replace(state, outcome=end.outcome, sentence=end.sentence, ended_t=time.time()))


def _step(folder: RunFolder) -> int:
    """The step of the newest checkpoint of the lineage, 0 without one."""
    try:
        checkpoint = lineage_checkpoint(folder)
    except RecordError:
        return 0
    return 0 if checkpoint is None else checkpoint.step


def _follow(folder: RunFolder, job: slurm.SlurmJob, signals: Set[int]) -> RunFolder:
    """Wait for the end of the run and of those that continue it after out of memory; return the last."""
    ordered = False
    while True:
        while not wait_supervisor_ended(folder, 0.5):
            if signals and not ordered:
                ordered = True
                if LIMIT in signals:
                    _mark(folder, True, limit_t=time.time())  # before the run ends, so that who follows it waits
                with suppress(LaunchError, OSError):  # Slurm kills what does not end
                    pass_order(folder, "stop")
        status = read_status(folder)
        if status.kind == "lost" and status.training_alive:
            adopt(folder)
            continue
        wait_for_fallback(folder)
        following = continuation_of(folder, read_brief(folder).state)
        if following is None:
            return folder
        with suppress(OSError):
            slurm.write_job(following.path, job)
        folder = following


def _mark(folder: RunFolder, continues: bool, **noted: float) -> slurm.SlurmJob | None:
    """Note whether the job will continue the run, which it may not always; return the job if it may be requeued."""
    job = slurm.read_job(folder.path)
    if job is None:
        return None
    requeued_t = time.time() if continues and job.requeues else None
    with suppress(OSError):  # on a full disk the job is requeued all the same
        slurm.write_job(folder.path, replace(job, requeued_t=requeued_t, **noted))
    return job if job.requeues else None


def _requeue(folder: RunFolder, first_step: int) -> None:
    """Put the job back into Slurm's queue. Not where nothing was saved: it would come to its limit again and again."""
    ended = read_status(folder).outcome in ("stopped", "killed", "time-limit") and _step(folder) > first_step
    continues = ended and not slurm.is_cancelled(folder.path)
    job = _mark(folder, continues)
    if job is None or job.job_id is None or not continues:
        return
    try:
        slurm.run_slurm(["scontrol", "requeue", job.job_id])
        if slurm.is_cancelled(folder.path):  # at this moment
            _mark(folder, False)
            slurm.run_slurm(["scancel", job.job_id])
    except slurm.SlurmRefusedError as error:
        _mark(folder, False)
        _say(str(error))
    except slurm.SlurmError as error:  # a requeued job is killed, sometimes before its own scontrol has ended
        _say(str(error))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
