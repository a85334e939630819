"""Jobs of Slurm: its commands, the script of a job, and what squeue says of the jobs of runs, in words."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from msgspec import Struct, field
from msgspec.structs import replace

from tuner_tui.core.child_process import EndlessOutputError, run_command
from tuner_tui.core.daemon_thread import daemon_call
from tuner_tui.core.file_locks import LockedError, held_lock
from tuner_tui.core.files import read_data_file, read_json, write_atomic
from tuner_tui.core.json_struct import Identifier, JobId, Time, from_json, to_json
from tuner_tui.core.redaction import redact_text

# The commands, bounded in time and output, without a shell

TIMEOUT_S = 15.0
"""Seconds to wait; with the controller down, Slurm's commands try for a minute."""


class SlurmError(Exception):
    """Slurm did not do what it was asked, or is not known to; the message is one sentence."""


class SlurmRefusedError(SlurmError):
    """Slurm answered that it does not do what it was asked."""


SlurmRunner = Callable[[Sequence[str]], str]
"""Runs a command of Slurm and returns its output. Raises `SlurmError`."""


def run_slurm(
    command: Sequence[str],
    environ: Mapping[str, str] | None = None,
    cwd: str | None = None,
    timeout_s: float = TIMEOUT_S,
) -> str:
    """Run an installed command in the folder `cwd` and with the environment `environ`; None: those of this process.

    Raises `SlurmError`.
    """
    env = dict(os.environ if environ is None else environ)
    program = shutil.which(command[0], path=env.get("PATH", os.defpath))
    if program is None:
        raise SlurmError(f"{command[0]} was not found: run this on a login node of the Slurm cluster.")
    try:
        done = run_command([program, *command[1:]], timeout_s, env=env, cwd=cwd)
    except subprocess.TimeoutExpired:
        raise SlurmError(f"The Slurm controller does not answer {command[0]}.") from None
    except EndlessOutputError:
        raise SlurmError(f"{command[0]} prints without end.") from None
    except OSError as error:
        raise SlurmError(f"{command[0]} cannot be started: {error.strerror}.") from error
    if done.exit_code:
        error_class = SlurmRefusedError if done.exit_code > 0 else SlurmError
        raise error_class(_why(command[0], done.errors, done.exit_code))
    return done.output.decode("utf-8", "replace")


def _why(name: str, output: bytes, code: int) -> str:
    """The last line of the error output, without `sbatch: error:` and escape sequences."""
    if code < 0:
        return f"{name} was killed by signal {-code}."
    lines = output.decode("utf-8", "replace").split("\n")
    words = [line for line in lines if line.strip()] or [f"exit code {code}"]
    chosen = next((line for line in words if "nable to contact" in line), words[-1])
    text = "".join(filter(str.isprintable, chosen)).removeprefix(f"{name}: ").removeprefix("error: ")
    return f"{name}: {text[:300].rstrip('.')}."


# The states of jobs

WAITING = frozenset({"PENDING", "REQUEUED", "REQUEUE_HOLD", "SPECIAL_EXIT", "REQUEUE_FED"})
TABLE = Path(__file__).with_name("slurm.yaml")
TAKEN = frozenset({"preempted", "node-lost", "requeued"})
"""Outcomes of a run whose job Slurm puts back into its queue, unless it was submitted with `--no-requeue`."""
SLURM_OUTCOMES = TAKEN | {"time-limit"}
"""Outcomes that only Slurm gives a run."""
MAX_TEXT = 120
SEPARATOR = "\x1f"
SQUEUE_FORMAT = SEPARATOR.join(("%i", "%T", "%N", "%S", "%r"))


class JobState(Struct, frozen=True):
    """A job as Slurm reported it. `start` is when it started or is expected to, in the controller's local time."""

    job_id: JobId
    state: str
    nodes: str = ""
    start: str = ""
    reason: str = ""

    @property
    def waits(self) -> bool:
        """Whether it has not started, or will start again."""
        return self.state in WAITING

    @property
    def ended(self) -> bool:
        return self.state in read_data_file(TABLE)["ends"]

    @property
    def end(self) -> tuple[str, str]:
        """Outcome and words of a job that has ended."""
        outcome, words = read_data_file(TABLE)["ends"][self.state]
        return outcome, words

    @property
    def reason_words(self) -> str:
        since = f" (expected start {self.start.replace('T', ' ')})" if self.start else ""
        return f"{read_data_file(TABLE)['reasons'].get(self.reason, self.reason)}{since}"

    @property
    def place(self) -> str:
        """Where it runs, to go on in a sentence."""
        return f"on {self.nodes} " if self.nodes else ""


def parse_squeue(text: str) -> list[JobState]:
    """The jobs of `squeue --noheader --format=SQUEUE_FORMAT`; other lines are left out."""
    rows = (line.split(SEPARATOR) for line in text.split("\n"))
    return [
        JobState(row[0], _text(row[1]), _known(row[2]), _known(row[3]), _text(row[4]))
        for row in rows
        if len(row) == 5 and row[0].isascii() and row[0].isdecimal() and len(row[0]) < 20
    ]


def _known(word: str) -> str:
    return "" if word in ("N/A", "None assigned", "Unknown", "(null)") else _text(word)


def _text(word: str) -> str:
    return "".join(filter(str.isprintable, word.strip()))[:MAX_TEXT]


# The jobs of all runs

JOB_FILE = "slurm.json"
"""In the folder of a run that was submitted to Slurm."""
LOG_FILE = "slurm.log"
"""What the script of the job prints: nothing unless it cannot start."""
LIST_FILE = "slurm-jobs.json"
CANCEL_FILE = "slurm-cancelled"
"""In the folder of a run of which a person wants that its job ends."""
ASK_EVERY_S = 20.0


class SlurmJob(Struct, frozen=True):
    """The job of a run. `job_id` is None until it is known that Slurm has accepted it.

    `limit_t` is when Slurm announced the time limit, `requeued_t` when the job was put back into Slurm's queue for that
    reason; `continued_by` is the id of the run that then went on. `over`: Slurm has reported its end.
    """

    submitted_t: Time
    job_id: JobId | None = None
    requeues: bool = True
    limit_t: Time | None = None
    requeued_t: Time | None = None
    over: bool = False
    continued_by: Identifier | None = None

    @property
    def name(self) -> str:
        return "The Slurm job" if self.job_id is None else f"Slurm job {self.job_id}"

    @property
    def waits_again(self) -> bool:
        """Whether it was put back into the queue after its time limit. Inside the job itself that is over."""
        return self.requeued_t is not None and self.continued_by is None and not self.is_this

    @property
    def is_this(self) -> bool:
        """Whether this process runs in the job."""
        return self.job_id is not None and os.environ.get("SLURM_JOB_ID") == self.job_id


class JobList(Struct, frozen=True):
    """The jobs of this user at `answered_t`; `problem` says why no newer answer came at `asked_t`."""

    asked_t: float = 0.0
    answered_t: float = 0.0
    problem: str = ""
    jobs: tuple[JobState, ...] = ()

    def find(self, job: SlurmJob) -> JobState | None:
        """The state of the job; None where it is not known."""
        return next((state for state in self.jobs if state.job_id == job.job_id), None)

    def knows_nothing_of(self, job: SlurmJob) -> bool:
        """Whether Slurm answered without the job: it forgets an ended one after MinJobAge, 5 minutes by default."""
        is_listed = job.job_id is None or self.find(job) is not None
        return not is_listed and self.answered_t > job.submitted_t + ASK_EVERY_S


def read_job(run: Path) -> SlurmJob | None:
    """The job of the run in the folder `run`; None for a run of this machine."""
    try:
        return from_json(SlurmJob, read_json(run / JOB_FILE))
    except ValueError:
        return None


def write_job(run: Path, job: SlurmJob) -> None:
    """Replace the file. Raises `OSError`."""
    write_atomic(run / JOB_FILE, json.dumps(to_json(job)) + "\n")


def cancel_job(run: Path) -> None:
    """Note that a person wants the job of the run to end: it is not requeued, and starts nothing if it is."""
    # A file of its own: the job may write its own at the same moment.
    with suppress(OSError):  # on a full disk
        write_atomic(run / CANCEL_FILE, "")


def is_cancelled(run: Path) -> bool:
    """Whether a person wants the job of the run to end."""
    return (run / CANCEL_FILE).exists()


def read_list(state_dir: Path, job: SlurmJob, wait_s: float = 0.0) -> JobList:
    """What Slurm last reported.

    Asks anew where that is too old for `job`, in a thread; waits for its answer at most `wait_s` seconds.
    """
    jobs = _read(state_dir)
    age = abs(time.time() - jobs.asked_t)
    # A job that was just submitted is asked for at once.
    if age > ASK_EVERY_S or (jobs.asked_t < job.submitted_t + 1 and age > 1):
        answer = daemon_call(lambda: ask(state_dir))
        if wait_s:
            with suppress(TimeoutError):
                answer.result(wait_s)
            return _read(state_dir)
    return jobs


def ask(state_dir: Path, run_command: SlurmRunner = run_slurm) -> None:
    """Ask Slurm for all jobs and write the list, unless another process is doing so."""
    # Every screen and every `ps` reads the same file, and one of them refreshes it: a controller for a thousand
    # users is asked once in ASK_EVERY_S for each user, however many runs and screens there are.
    with suppress(LockedError, OSError), held_lock(state_dir / "slurm-jobs.lock", 0.0, needed=False):
        user = f"--user={os.getuid()}"
        command = ["squeue", "--noheader", user, "--states=all", f"--format={SQUEUE_FORMAT}"]
        try:
            jobs = parse_squeue(run_command(command))
            now = time.time()
            job_list = JobList(now, now, "", tuple(jobs))
        except SlurmError as error:
            job_list = replace(_read(state_dir), asked_t=time.time(), problem=str(error))
        write_atomic(state_dir / LIST_FILE, json.dumps(to_json(job_list)) + "\n")


def _read(state_dir: Path) -> JobList:
    return from_json(JobList, read_json(state_dir / LIST_FILE))


# The script of a job, which names the run folder only: no command and no secret

LIMIT_SIGNAL = "USR2"
"""Sent before the time limit. Not TERM, which a job gets that is cancelled: that one must not be requeued."""
LEAD_S = 120
"""Seconds before the time limit at which the training is asked to save and stop."""
OWN_OPTIONS = ("output", "error", "open-mode", "signal")
"""Set by this program; what the user gives in their place is refused."""
UNSUPPORTED = ("array", "clusters", "input", "wrap", "wait", "parsable", "test-only", "export-file", "help", "version")
_NAME = re.compile(r"[a-z][a-z0-9-]*")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


class SlurmOptions(Struct, frozen=True):
    """Options of sbatch by their long names; the value None stands for a flag such as `--exclusive`."""

    values: Mapping[str, str | None] = field(default_factory=dict)

    @property
    def nodes(self) -> int:
        """The number of nodes; of a range such as `2-4` the smaller."""
        first = (self.values.get("nodes") or "1").partition("-")[0]
        return max(1, int(first)) if first.isdecimal() else 1

    @property
    def requeues(self) -> bool:
        """Whether the job goes on after its time limit, from the checkpoint that it has saved there."""
        return "no-requeue" not in self.values


def parse_options(named: Mapping[str, str | None], others: Sequence[str]) -> SlurmOptions:
    """Options of the command line: those with a name of their own, and `KEY=VALUE` or `KEY`.

    Raises `SlurmError`.
    """
    values: dict[str, str | None] = {name: value for name, value in named.items() if value is not None}
    for word in others:
        name, equals, text = word.removeprefix("--").partition("=")
        values[name] = text if equals else None
    for name, value in values.items():
        if not _NAME.fullmatch(name):
            raise SlurmError(f"{name!r} is not the long name of an option of sbatch, such as account=PROJECT.")
        if name in OWN_OPTIONS or name in UNSUPPORTED:
            raise SlurmError(f"The option --{name} of sbatch cannot be set here.")
        if value is not None and (_CONTROL.search(value) or redact_text(f"{name}={value}") != f"{name}={value}"):
            raise SlurmError(f"The value of --{name} contains a secret or a control character.")
    return SlurmOptions(values)


def render_script(options: SlurmOptions, run: Path, argv: Sequence[str]) -> str:
    """The script of the job of the run in the folder `run`, which executes `argv`. Raises `SlurmError`."""
    if _CONTROL.search(str(run)):
        raise SlurmError(f"Slurm cannot write to the folder {str(run)!r}: its name has a control character.")
    values: dict[str, str | None] = {
        "job-name": run.name,
        "output": str(run / LOG_FILE).replace("%", "%%"),
        "open-mode": "append",
        "signal": f"B:{LIMIT_SIGNAL}@{LEAD_S}",
        **({"requeue": None} if options.requeues else {}),
        **({"ntasks-per-node": "1"} if options.nodes > 1 else {}),
        **options.values,
    }
    lines = [f"#SBATCH --{name}" + ("" if value is None else f"={_quoted(value)}") for name, value in values.items()]
    return "\n".join(["#!/bin/sh", *lines, f"exec {shlex.join(argv)}", ""])


def _quoted(value: str) -> str:
    """The value as sbatch reads it in a script: in quotes, in which a backslash makes the next character literal."""
    if re.fullmatch(r"[\w@%+=:,./-]+", value, re.ASCII):
        return value
    return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
