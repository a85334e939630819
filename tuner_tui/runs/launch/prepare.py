"""Prepares a launch: works out, checks and describes command, environment and checkpoint; starts and writes nothing.

`build_request` resolves presets, `tuner.yaml`, environment and flags into a `LaunchRequest`.
`prepare` probes the interpreter that trains, which takes seconds. Its result is shown to the user and then passed to
`start.launch`, so that what was shown is what runs.
"""

from __future__ import annotations

import math
import os
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from msgspec import Struct, field
from msgspec.structs import replace

from tuner_tui.core.file_locks import lacks_locks
from tuner_tui.core.json_struct import IDENTIFIER
from tuner_tui.core.numbered_folders import FolderNotFoundError
from tuner_tui.core.procfs import ProcessId
from tuner_tui.core.redaction import redact_argv
from tuner_tui.hardware.environment import VISIBLE_DEVICES
from tuner_tui.hardware.interpreter import Interpreter
from tuner_tui.runs.launch.command import (
    SIGTERM_CHECKPOINT_VARIABLE,
    LaunchError,
    added_environment,
    check_command,
    check_launcher,
    check_unshared,
    has_gpu,
    missing_processes,
    own_config,
    probe_training_python,
    with_config,
)
from tuner_tui.runs.launch.launchers import launcher_command, training_python
from tuner_tui.runs.launch.resume import RESUME_VARIABLE, OwnResume, find_own_resume, takes_checkpoint, with_checkpoint
from tuner_tui.runs.read.checkpoints import lineage_checkpoint, named_outputs
from tuner_tui.runs.read.reader import RunReader
from tuner_tui.runs.read.status import live_runs
from tuner_tui.runs.store.folder import RUNS, RunFolder, find_run, runs_dir
from tuner_tui.runs.store.record import RecordError, RunRecord, read_record, readable_record
from tuner_tui.runs.supervise.training_process import DEFAULT_TIMEOUTS, StopTimeouts
from tuner_tui.settings.apply import AppliedCommand, build_command
from tuner_tui.settings.command_training import may_use_trainer
from tuner_tui.settings.distributed import AccelerateConfig, read_accelerate_config
from tuner_tui.settings.errors import SettingsError
from tuner_tui.settings.job import DATA_TO_NAME, FALLBACK_VARIABLE, TEXT_TASKS, BuiltinJob, CommandJob, Job
from tuner_tui.settings.model import Resolved
from tuner_tui.settings.resolve import LaunchOptions, resolve_training

DATA_SUFFIXES = frozenset({".csv", ".tsv", ".jsonl", ".json", ".parquet"})
"""Suffixes that mark `data` as a local file."""
PATH_PREFIXES = ("/", "./", "../", "~")


def missing_path_problem(job: BuiltinJob, cwd: Path) -> str | None:
    """A sentence about a model or data file of the built-in job that does not exist, or None.

    Names that may be on the Hub (`bert-base`, `org/dataset`) are not checked.
    """
    if job.data == DATA_TO_NAME:
        return (
            "The preset has no data: name a CSV, JSONL or Parquet file or a Hub dataset (`--set data=…`, or e on the "
            "screen)."
        )
    for kind, name in (("model", job.model), ("data", job.data)):
        is_file = kind == "data" and Path(name).suffix in DATA_SUFFIXES
        if (is_file or name.startswith(PATH_PREFIXES)) and not (cwd / Path(name).expanduser()).exists():
            return f"The {kind} {name} does not exist (looked in {cwd})."
    return None


MIN_MEMORY_BYTES = 512 * 2**20
"""Importing torch 2.13 and the Trainer of transformers 5.23 works with 512 MiB of private memory; with 448 MiB the
import hangs for more than a minute (Linux, one thread; more threads need more)."""


def memory_limit_problem(limit_bytes: int | None, env: Mapping[str, str]) -> str | None:
    """A sentence about a limit that is too small to import torch, or None. A limit that caps a GPU is not checked."""
    if limit_bytes is None or limit_bytes >= MIN_MEMORY_BYTES or has_gpu(env):
        return None
    floor = MIN_MEMORY_BYTES // 2**20
    return (
        f"The memory limit of {limit_bytes / 2**20:.0f} MiB is too small: importing torch and "
        f"transformers alone needs about {floor} MiB."
    )


JIT_CHECKPOINT_SINCE = 5
"""First major version of Transformers with `enable_jit_checkpoint`."""


class LaunchRequest(Struct, frozen=True):
    """What to launch.

    `parent` is the run to resume, from the newest complete checkpoint of its lineage; with `from_scratch` the new run
    joins that lineage but starts at step 0. Only a checkpoint of a step before `before_step` will do. `interpreter` is
    the Python that trains; None: the one that `training_python` finds. `tuning` is the id of the tuning that this run
    is a trial of; the run is ended once the process `ends_with` is gone. `root` is the folder of all runs; None:
    `runs_dir`. `notes` are warnings of the preset files that the settings come from. `job_file` gives the job, so that
    nobody else may be able to change it; None: the user gave the job, or a preset of this program. `nodes` of a cluster
    will run it; None: this machine. After `stop_after_s` seconds of training it is stopped. `visible_gpus` is the
    CUDA_VISIBLE_DEVICES chosen for it; None: that of the environment.
    """

    job: Job
    resolved: Resolved
    interpreter: Path | str | None = None
    cwd: Path = field(default_factory=Path.cwd)
    preset: str | None = None
    memory_limit_bytes: int | None = None
    parent: RunFolder | None = None
    from_scratch: bool = False
    before_step: int | None = None
    environ: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))
    root: Path | None = None
    stop_timeouts: StopTimeouts = DEFAULT_TIMEOUTS
    tuning: str | None = None
    ends_with: ProcessId | None = None
    notes: tuple[str, ...] = ()
    nodes: int | None = None
    stop_after_s: float | None = None
    job_file: Path | None = None
    visible_gpus: str | None = None

    @classmethod
    def resume(cls, parent: RunFolder, record: RunRecord, environ: Mapping[str, str] | None = None) -> LaunchRequest:
        """The launch that resumes the run in `parent`, whose record is `record`, with its own job and settings."""
        return cls(
            job=record.job,
            resolved=record.resolved,
            interpreter=Path(record.interpreter),
            cwd=Path(record.cwd),
            preset=record.preset,
            memory_limit_bytes=record.memory_limit_bytes,
            parent=parent,
            environ=dict(os.environ) if environ is None else environ,
            nodes=record.nodes,
            stop_after_s=record.stop_after_s,
            job_file=parent.record,
            visible_gpus=record.env.get(VISIBLE_DEVICES),
        )

    @property
    def runs_root(self) -> Path:
        return self.root or runs_dir(self.environ)


def build_request(
    options: LaunchOptions, recommend: Callable[[Resolved, BuiltinJob], Resolved] | None = None
) -> LaunchRequest:
    """The launch of a new training, or of one that resumes a run. Raises `SettingsError`.

    `recommend` fills in what no source gives for a new training by the built-in job; None: nothing does. A training
    that resumes starts from the record of its run instead of `tuner.yaml` and the environment.
    """
    if options.resume is not None:
        return _resume_request(options, options.resume)
    training = resolve_training(options if options.preset is None else replace(options, default_job=BuiltinJob()))
    job, resolved = training.job, training.resolved
    if job is None:
        raise SettingsError("Nothing to train. Give a preset (--preset demo) or a command (-- python train.py).")
    if isinstance(job, BuiltinJob) and job.task not in TEXT_TASKS:
        raise SettingsError(
            f"The built-in job trains {' and '.join(TEXT_TASKS)}; give your own command for {job.task}."
        )
    if isinstance(job, BuiltinJob) and recommend is not None:
        resolved = recommend(resolved, job)
    return LaunchRequest(
        job=job,
        resolved=resolved,
        interpreter=options.interpreter,
        preset=options.preset,
        memory_limit_bytes=options.memory_limit_bytes,
        notes=training.notes,
        job_file=training.job_file,
    )


def _resume_request(options: LaunchOptions, name: str) -> LaunchRequest:
    """The run called `name` with the changes that the preset, the flags and the job options make."""
    try:
        parent = find_run(name, runs_dir())
        record = read_record(parent)
    except (FolderNotFoundError, RecordError) as error:
        raise SettingsError(str(error)) from error
    # The record holds what tuner.yaml and the environment chose when the run was first launched.
    environment = {name: text for name, text in options.environment.items() if name == FALLBACK_VARIABLE}
    training = resolve_training(replace(options, project=None, environment=environment, default_job=record.job))
    assert training.job is not None
    request = LaunchRequest.resume(parent, record)
    changes = training.resolved  # every value that is not a default
    values = {name: getattr(changes.settings, name) for name in changes.origins}
    resolved = Resolved(record.resolved.settings.changed(**values), {**record.resolved.origins, **changes.origins})
    limit = options.memory_limit_bytes
    return replace(
        request,
        job=training.job,
        resolved=resolved,
        interpreter=options.interpreter or request.interpreter,
        cwd=Path.cwd() if options.command else request.cwd,
        preset=options.preset or record.preset,
        memory_limit_bytes=record.memory_limit_bytes if limit is None else limit,
        notes=training.notes,
        job_file=training.job_file or request.job_file,
    )


class NoCheckpointError(LaunchError):
    """There is no checkpoint that the command can resume from; the run can only start again at step 0."""


class PreparedLaunch(Struct, frozen=True):
    """A checked launch of `request` in `folder`, which does not exist yet.

    `argv` is the command as it will run, including secrets. `added_env` is what the launch adds to the environment.
    `own_resume` is how the script itself takes the checkpoint. `accelerate` is the configuration file that accelerate
    will read. `shared_outputs`: see `RunRecord`.
    """

    request: LaunchRequest
    folder: RunFolder
    argv: tuple[str, ...]
    cwd: Path
    added_env: Mapping[str, str]
    interpreter: Interpreter
    applied: AppliedCommand
    checkpoint: Path | None = None
    own_resume: OwnResume | None = None
    warning: str | None = None
    accelerate: AccelerateConfig | None = None
    shared_outputs: tuple[str, ...] = ()

    @property
    def redacted_argv(self) -> tuple[str, ...]:
        """The command with secrets hidden, as it is shown and written to the record."""
        return redact_argv(self.argv)

    @property
    def env(self) -> dict[str, str]:
        return {**self.request.environ, **self.added_env}

    def in_folder(self, folder: RunFolder) -> PreparedLaunch:
        """The same launch in another run folder; the interpreter is not asked again."""
        if folder.path == self.folder.path:
            return self
        return _assemble(self.request, folder, self.interpreter, self.checkpoint, self.own_resume, self.warning)


def prepare(request: LaunchRequest, interpreter: Interpreter | None = None) -> PreparedLaunch:
    """Prepare the launch in the folder that the next run will get.

    Pass `interpreter` where it was already probed for the same job. Raises `LaunchError`.
    """
    if request.job_file is not None:
        check_unshared(request.job_file)
    if request.parent is not None and not IDENTIFIER.accepts(request.parent.id):
        raise LaunchError(f"{request.parent.path} cannot be resumed: rename it to letters a-z, digits and dashes.")
    checkpoint, own_resume = _checkpoint_to_resume(request)
    cwd = working_folder(request)
    limit_problem = memory_limit_problem(request.memory_limit_bytes, request.environ)
    if isinstance(request.job, BuiltinJob) and (problem := missing_path_problem(request.job, cwd) or limit_problem):
        raise LaunchError(problem)
    if interpreter is None:
        python = request.interpreter or training_python(request.job, request.environ, cwd)
        interpreter = probe_training_python(Path(python), request.job, request.resolved)
    prepared = _assemble(
        request, RunFolder(RUNS.next(request.runs_root)), interpreter, checkpoint, own_resume, limit_problem
    )
    check_command(prepared.argv, cwd, prepared.env)
    check_launcher(request.job, prepared.env, prepared.accelerate, on_nodes=request.nodes is not None)
    if request.tuning is not None or isinstance(request.job, BuiltinJob):  # they have folders of their own
        return prepared
    return replace(
        prepared, shared_outputs=shared_outputs(request.runs_root, prepared.redacted_argv, cwd, request.parent)
    )


def _assemble(
    request: LaunchRequest,
    folder: RunFolder,
    interpreter: Interpreter,
    checkpoint: Path | None,
    own_resume: OwnResume | None,
    warning: str | None,
) -> PreparedLaunch:
    """Fill in everything that depends on the run folder. Raises `LaunchError`."""
    # The order matters: settings go into the words of the command, the checkpoint may replace one of them, a launcher
    # is put in front of all, and what accelerate will do depends on the environment that results.
    job, cwd = request.job, working_folder(request)
    try:
        applied = build_command(
            job,
            request.resolved.settings,
            interpreter,
            str(folder.output),
            chosen=request.resolved.chosen,
            own_config=own_config(job, cwd),
        )
    except SettingsError as error:
        raise LaunchError(str(error)) from error
    applied = with_checkpoint(applied, job, checkpoint if own_resume is None else None)
    if own_resume is not None:
        applied = replace(applied, argv=own_resume.applied_to(applied.argv))
    added_env = added_environment(job, request.environ, folder, applied.inject, request.memory_limit_bytes)
    if request.visible_gpus is not None:
        added_env.setdefault(VISIBLE_DEVICES, request.visible_gpus)
    if checkpoint is not None and own_resume is None and isinstance(job, CommandJob):
        added_env[RESUME_VARIABLE] = str(checkpoint)
    if checkpoints_on_sigterm(request, interpreter):
        added_env[SIGTERM_CHECKPOINT_VARIABLE] = "1"
    accelerate = read_accelerate_config(job, {**request.environ, **added_env}, request.cwd)
    argv = launcher_command(
        job.launcher, with_config(applied, folder), job.processes, interpreter.path, request.nodes or 1, accelerate
    )
    return PreparedLaunch(
        request, folder, argv, cwd, added_env, interpreter, applied, checkpoint, own_resume, warning, accelerate
    )


def checkpoints_on_sigterm(request: LaunchRequest, interpreter: Interpreter) -> bool:
    """Whether the observer makes a Trainer save on SIGTERM: only with `apply: inject`, and never in a trial."""
    if not isinstance(request.job, CommandJob) or request.job.apply != "inject" or request.tuning is not None:
        return False
    major = interpreter.packages.get("transformers", "0").partition(".")[0]
    return major.isdecimal() and int(major) >= JIT_CHECKPOINT_SINCE


def working_folder(request: LaunchRequest) -> Path:
    """The absolute folder the command runs in: the job's `cwd`, relative to that of the request."""
    job_cwd = request.job.cwd if isinstance(request.job, CommandJob) else None
    return Path(request.cwd, job_cwd or "").absolute()


def _checkpoint_to_resume(request: LaunchRequest) -> tuple[Path | None, OwnResume | None]:
    """The checkpoint to resume from, and how the script takes it if not the observer or the command does.

    None for a start at step 0. Raises `NoCheckpointError` where there is no checkpoint, or no way to pass it.
    """
    if request.parent is None or request.from_scratch:
        return None, None
    try:
        checkpoint = lineage_checkpoint(request.parent, request.before_step or math.inf)
    except RecordError as error:
        raise LaunchError(str(error)) from error
    if checkpoint is None:
        raise NoCheckpointError(f"Run {request.parent.id} has no complete checkpoint to resume from.")
    if takes_checkpoint(request.job, checkpoint):
        return checkpoint.path, None
    state = RunReader(request.parent).poll().state
    own_resume = find_own_resume(request.job, working_folder(request), state, checkpoint.path)
    if own_resume is None and checkpoint.weights_only:
        raise NoCheckpointError(
            f"Run {request.parent.id} has no complete checkpoint to resume from: {checkpoint.path} holds weights only."
        )
    if own_resume is None:
        raise NoCheckpointError(
            f"Run {request.parent.id} saved {checkpoint.path}, but its script has no known option to resume: put "
            f"{{checkpoint}} where the path goes, or use --apply hf-args."
        )
    return checkpoint.path, own_resume


def shared_outputs(root: Path, argv: Sequence[str], cwd: Path, parent: RunFolder | None) -> tuple[str, ...]:
    """A sentence for each live run below `root` that writes where `argv`, run in `cwd`, would write.

    Folders are those that the commands name; two runs of one script without such a name share what one has saved.
    `parent`, the run that is resumed, is left out: it ends first.
    """
    # Only what runs write to can be compared, and only where it is known: the folders on their command lines, or else
    # what a run of the same script has been seen to save. Two runs with different scripts and no such option pass
    # unnoticed.
    mine = {os.path.realpath(path) for path in named_outputs(argv, cwd)}
    conflicts = []
    for folder in live_runs(root):
        record = readable_record(folder)
        if record is None or (parent is not None and folder.path == parent.path):
            continue
        theirs = {os.path.realpath(path) for path in named_outputs(record.argv, Path(record.cwd))}
        shared = sorted(mine & theirs) or (sorted(_saved(folder, record, argv, cwd)) if not mine | theirs else [])
        if shared:
            conflicts.append(f"run {folder.id} writes to {shared[0]} too")
    return tuple(conflicts)


def _saved(folder: RunFolder, record: RunRecord, argv: Sequence[str], cwd: Path) -> Iterator[str]:
    """What a live run of the same script in the same folder has saved outside of its own output folder."""
    scripts = [word for word in argv if word.endswith(".py")][:1]
    if not scripts or Path(record.cwd) != cwd or scripts[0] not in record.argv:
        return
    state = RunReader(folder).poll().state
    for event in (state.saved, state.checkpoint):
        if event is not None and not Path(event.path).is_relative_to(record.output_dir):
            yield event.path


UNLOCKED = "use it from one program at a time; the queue and tunings need a TUNER_STATE_DIR elsewhere"


def launch_summary(prepared: PreparedLaunch) -> list[tuple[str, str]]:
    """Label and text of each line, secrets hidden. A line that continues the one before has an empty label."""
    applied = prepared.applied
    lines = [("Command", shlex.join(prepared.redacted_argv))]
    if prepared.cwd != Path.cwd():
        lines.append(("Folder", str(prepared.cwd)))
    if prepared.accelerate is not None:
        lines.append(("accelerate", prepared.accelerate.summary))
    if prepared.checkpoint is not None:
        resume = prepared.own_resume
        lines.append(("Resumes", str(prepared.checkpoint) if resume is None else resume.sentence))
    if applied.inject:
        lines.append(("Injected", ", ".join(f"{name} {value}" for name, value in applied.inject.items())))
    job = prepared.request.job
    saves = SIGTERM_CHECKPOINT_VARIABLE in prepared.added_env
    if saves and isinstance(job, CommandJob) and may_use_trainer(job.command, prepared.cwd):
        lines.append(
            ("On SIGTERM", "a Trainer saves a checkpoint and stops, unless set otherwise (enable_jit_checkpoint)")
        )
    if job.fallback:
        times = "once" if job.fallback == 1 else f"at most {job.fallback} times"
        lines.append(("Fallback", f"restarts after out of memory with a smaller micro batch, {times}"))
    if prepared.warning is not None:
        lines.append(("Warning", prepared.warning))
    root = prepared.request.runs_root
    if lacks_locks(root):
        lines.append(("Warning", f"{root} has no file locks: {UNLOCKED}"))
    missing = missing_processes(job, prepared.env, prepared.accelerate)
    lines += [] if missing is None else [("Warning", missing)]
    lines += [("Warning", f"{sentence}: checkpoints overwrite each other") for sentence in prepared.shared_outputs]
    if applied.not_applied:
        lines.append(("Not applied", ", ".join(applied.not_applied)))
        lines += [("", why) for why in applied.notes]
    lines += [("Note", note) for note in prepared.request.notes]
    return lines
