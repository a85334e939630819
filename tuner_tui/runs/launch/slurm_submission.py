"""Submits a launch to Slurm: a run folder with its sbatch script, and exactly one job for it, or neither.

The folder is written before sbatch is called. A job whose folder is gone starts nothing, so that removing the folder
takes back a submission of which it is not known whether it was accepted. A job whose submitter was killed writes its id
itself when it starts.
"""

from __future__ import annotations

import json
import shutil
import sys
import time
from contextlib import suppress
from functools import partial

from msgspec import structs, to_builtins
from msgspec.structs import replace

from tuner_tui.core.files import write_atomic
from tuner_tui.core.redaction import redact_argv, redact_env
from tuner_tui.runs.launch.command import LaunchError
from tuner_tui.runs.launch.prepare import LaunchRequest, PreparedLaunch
from tuner_tui.runs.launch.start import launch
from tuner_tui.runs.slurm import SlurmError, SlurmJob, SlurmOptions, SlurmRunner, render_script, run_slurm, write_job
from tuner_tui.runs.store.folder import RunFolder
from tuner_tui.runs.store.record import redact_job
from tuner_tui.runs.supervise.run_processes import RUN_VARIABLE
from tuner_tui.runs.supervise.training_process import LaunchSpec
from tuner_tui.settings.distributed import launcher_in
from tuner_tui.settings.errors import SettingsError
from tuner_tui.settings.job import CommandJob

SCRIPT_FILE = "slurm.sh"
ALLOCATION_MODULE = "tuner_tui.tuning.slurm_allocation"
SECRETS_VARIABLE = "TUNER_SLURM_SECRETS"
"""What `run.json` hides: the environment of a job is no file that others can read, nor shown by Slurm's commands."""


def job_script(options: SlurmOptions, folder: RunFolder) -> str:
    """The script of the run in `folder`. Raises `SlurmError`."""
    return render_script(options, folder.path, (sys.executable, "-P", "-m", ALLOCATION_MODULE, str(folder.path)))


def cluster_request(request: LaunchRequest, options: SlurmOptions) -> LaunchRequest:
    """The request on the nodes of an allocation. Raises `SettingsError` for a command that cannot use several."""
    nodes, job = options.nodes, request.job
    if nodes == 1:
        return replace(request, nodes=1)
    if job.launcher != "plain":
        if job.processes % nodes:
            raise SettingsError(f"--processes {job.processes} is the number on all {nodes} nodes: not divisible.")
        return replace(request, nodes=nodes)
    if not isinstance(job, CommandJob) or launcher_in(job.command) is None:
        raise SettingsError(
            f"--nodes {nodes} needs --launcher torchrun, accelerate or deepspeed, or a command that starts with one of "
            "them or with srun."
        )
    # Counted in the effective batch; torchrun reads it as --nnodes.
    return replace(request, nodes=nodes, job=structs.replace(job, env={**job.env, "PET_NNODES": str(nodes)}))


def submit(
    prepared: PreparedLaunch, options: SlurmOptions, run_command: SlurmRunner | None = None
) -> tuple[RunFolder, str]:
    """Submit the launch; return the run folder and the id of its job. Raises `LaunchError`: then there is neither."""
    env = {name: value for name, value in prepared.request.environ.items() if name != RUN_VARIABLE}
    job, argv, added = prepared.request.job, prepared.argv, dict(prepared.added_env)
    if (redact_job(job), redact_argv(argv), redact_env(added)) != (job, argv, added):
        env[SECRETS_VARIABLE] = json.dumps({"argv": argv, "env": added, "job": to_builtins(job)})
    runner = run_command or partial(run_slurm, environ=env, cwd=str(prepared.cwd))
    job_ids: list[str] = []
    folder = launch(prepared, refuse_duplicate=True, start=partial(_submit, options, runner, job_ids))
    return folder, job_ids[0]


def _submit(
    options: SlurmOptions, run_command: SlurmRunner, job_ids: list[str], folder: RunFolder, spec: LaunchSpec
) -> None:
    """Submit the run in `folder`, which is removed where that fails. Raises `LaunchError`."""
    script = folder.path / SCRIPT_FILE
    job = SlurmJob(time.time(), requeues=options.requeues)
    try:
        write_atomic(script, job_script(options, folder))
        write_job(folder.path, job)
        answer = run_command(["sbatch", "--parsable", str(script)])
        job_id = answer.strip().partition(";")[0]
        if not (job_id.isascii() and job_id.isdecimal()):
            raise SlurmError("sbatch did not answer with the id of a job.")
    except (OSError, SlurmError) as error:
        if folder.state.exists():  # it has started meanwhile
            job_ids.append("unknown")
            return
        shutil.rmtree(folder.path, ignore_errors=True)
        raise LaunchError(f"{error} Nothing will run.") from error
    job_ids.append(job_id)
    with suppress(OSError):  # on a full disk; the job writes its id when it starts
        write_job(folder.path, replace(job, job_id=job_id))
