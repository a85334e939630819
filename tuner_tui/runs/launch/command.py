"""The command of a launch: completes and checks it, and builds its environment."""

from __future__ import annotations

import json
import os
import shutil
import stat
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tuner_tui.core.child_process import run_command
from tuner_tui.core.json_struct import VARIABLE_NAME, WORD
from tuner_tui.core.ownership import require_unshared
from tuner_tui.core.redaction import HIDDEN
from tuner_tui.hardware.environment import hides_all_gpus
from tuner_tui.hardware.interpreter import Interpreter, probe_interpreter, probe_versions
from tuner_tui.runs.launch.launchers import parse_program
from tuner_tui.runs.store.folder import RunFolder
from tuner_tui.runs.supervise.run_processes import OBSERVER_SITE, RUN_VARIABLE
from tuner_tui.settings.apply import CONFIG, AppliedCommand, find_config_argument, path_of_argument
from tuner_tui.settings.dialects.dialect import dialect_by_name
from tuner_tui.settings.dialects.hf import BITSANDBYTES_OPTIMIZERS
from tuner_tui.settings.distributed import SINGLE_PROCESS_TYPES, AccelerateConfig, process_count, requested_processes
from tuner_tui.settings.job import COMMAND_TO_NAME, BuiltinJob, CommandJob, Job
from tuner_tui.settings.model import Resolved, Settings
from tuner_tui.settings.yaml_reader import read_tool_file

MEMORY_HISTORY = {"TUNER_MEMORY_HISTORY": "10"}
"""Has the observer record what holds the GPU's memory, until it is full or for so many steps."""
SIGTERM_CHECKPOINT_VARIABLE = "TUNER_SAVE_ON_TERM"
"""Tells the observer to make a Trainer save on SIGTERM."""


class LaunchError(Exception):
    """The run could not be started; the message is one sentence for the user."""


def added_environment(
    job: Job,
    environ: Mapping[str, str],
    folder: RunFolder,
    inject: Mapping[str, Any] | None,
    memory_limit_bytes: int | None,
) -> dict[str, str]:
    """The variables that the launch sets: those of the job, and those the observer needs.

    The observer's folder precedes the user's `PYTHONPATH`. Output is unbuffered, so that the log is up to date.
    """
    job_env = job.environment(environ)
    path = job_env.get("PYTHONPATH", environ.get("PYTHONPATH", ""))
    added = {
        **job_env,
        "PYTHONPATH": os.pathsep.join(filter(None, [str(OBSERVER_SITE), path])),
        "PYTHONUNBUFFERED": "1",
        RUN_VARIABLE: str(folder.path),
    }
    if inject:
        added["TUNER_INJECT"] = json.dumps(dict(inject))
    if memory_limit_bytes is not None:
        added["TUNER_MEMORY_LIMIT_BYTES"] = str(memory_limit_bytes)
    return added


def probe_training_python(python: Path, job: Job, resolved: Resolved) -> Interpreter:
    """Probe the Python that trains; its `TrainingArguments` only if settings are passed to them.

    Raises `LaunchError` if it cannot run the built-in job.
    """
    if isinstance(job, BuiltinJob):
        return able_to_train(probe_interpreter(python), resolved.settings)
    needs_names = job.apply != "none" and resolved.chosen
    return probe_interpreter(python) if needs_names else probe_versions(python)


def with_config(applied: AppliedCommand, folder: RunFolder) -> tuple[str, ...]:
    """The argv with `{config}` replaced by the path of the configuration file."""
    if applied.config_yaml is None:
        return tuple(applied.argv)
    return tuple(word.replace("{config}", str(folder.config)) for word in applied.argv)


def own_config(job: Job, cwd: Path) -> Mapping[str, Any] | None:
    """The command's own YAML file, if settings are written into one. Raises `SettingsError`."""
    if not isinstance(job, CommandJob) or job.apply != "yaml":
        return None
    index = find_config_argument(job.command, dialect_by_name(job.dialect))
    if index is None or CONFIG in job.command[index]:
        return None
    return read_tool_file(cwd / path_of_argument(job.command[index])).values


def check_unshared(*paths: Path) -> None:
    """Raise `LaunchError` where another user may choose what is started or signalled by the files or folders."""
    try:
        for path in paths:
            require_unshared(path)
    except OSError as error:
        raise LaunchError(f"{error.filename}: {error.strerror}.") from error


def check_command(argv: Sequence[str], cwd: Path, env: Mapping[str, str]) -> None:
    """Raise `LaunchError` if the command cannot be started."""
    if HIDDEN in " ".join((*argv, *env.values())):
        raise LaunchError(f"The record hides a secret of this command or its environment as {HIDDEN}; pass it again.")
    if not all(map(WORD.accepts, (*argv, str(cwd), *env.values()))) or not all(map(VARIABLE_NAME.accepts, env)):
        raise LaunchError("The command or its environment holds a null byte, or a variable without a valid name.")
    if not os.path.isdir(cwd):  # noqa: PTH112  Path.is_dir raises for what may not be looked at
        raise LaunchError(f"The command's folder {cwd} does not exist.")
    if "/" in argv[0]:
        _check_path(cwd / argv[0], argv[0])
    elif argv[0] == COMMAND_TO_NAME:
        raise LaunchError("The training command is unknown. Name it (`-- python train.py`, e on the screen).")
    elif shutil.which(argv[0], path=env.get("PATH", os.defpath)) is None:
        raise LaunchError(f"The command {argv[0]!r} was not found on PATH.")


def check_script(argv: Sequence[str], cwd: Path) -> None:
    """Raise `LaunchError` where Python is to run a script that is not there."""
    program = parse_program(argv, "")
    script = cwd / program.words[0]
    if program.kind == "script" and not os.path.exists(script):  # noqa: PTH110  Path.exists raises where it may not look
        raise LaunchError(f"There is no script {script}.")


def check_launcher(
    job: Job, env: Mapping[str, str], accelerate: AccelerateConfig | None, *, on_nodes: bool = False
) -> None:
    """Raise `LaunchError` if the launcher would silently start fewer processes than requested.

    What accelerators the nodes of a cluster have is not known here.
    """
    if job.launcher != "accelerate" or job.processes == 1:
        return
    kind = None if accelerate is None else accelerate.distributed_type
    if kind is None and not on_nodes and not has_gpu(env):
        raise LaunchError(
            f"accelerate starts several processes only on accelerators and would start 1 of {job.processes} "
            "here; use --launcher torchrun."
        )
    if accelerate is not None and kind in SINGLE_PROCESS_TYPES:
        raise LaunchError(
            f"accelerate would start 1 of {job.processes} processes: {accelerate.path} says distributed_type "
            f"{kind}. Run `accelerate config`, or use --launcher torchrun."
        )


def missing_processes(job: Job, env: Mapping[str, str], accelerate: AccelerateConfig | None) -> str | None:
    """What to say of an `accelerate launch` in the command that starts fewer processes than it is asked for."""
    requested = requested_processes(job)
    started = process_count(job, None if has_gpu(env) else 0, accelerate)
    if requested is None or started >= requested:
        return None
    return (
        f"accelerate starts {started} of the {requested} processes: it starts several only on accelerators; "
        f"torchrun --nproc-per-node {requested} starts them on a CPU"
    )


def has_gpu(env: Mapping[str, str]) -> bool:
    """Whether the training can use an NVIDIA GPU: the device exists and is not hidden."""
    return Path("/dev/nvidiactl").exists() and not hides_all_gpus(env.get("CUDA_VISIBLE_DEVICES"))


def git_revision(cwd: Path) -> tuple[str | None, bool | None]:
    """The commit checked out in `cwd`, and whether tracked files differ from it; None outside a repository."""
    sha = _git(cwd, "rev-parse", "HEAD")
    if sha is None:
        return None, None
    changes = _git(cwd, *_no_filters(cwd), "status", "--porcelain", "--untracked-files=no", "--ignore-submodules=all")
    return sha, None if changes is None else bool(changes)


BUILTIN_JOB_PACKAGES = "torch transformers accelerate datasets peft"
"""Not `tuner-tui[train]`: another Python would fetch it from the package index, where the name is not ours."""


def builtin_packages(settings: Settings) -> Mapping[str, str]:
    """What the built-in job imports with these settings, the most basic first, and what needs each package."""
    needs = dict.fromkeys(("torch", "transformers"), "the built-in job")
    if settings.peft_method != "none":
        needs["peft"] = settings.peft_method
    if settings.optim in BITSANDBYTES_OPTIMIZERS:
        needs["bitsandbytes"] = settings.optim
    if settings.quantization != "none":
        needs["bitsandbytes"] = f"quantization {settings.quantization}"
    return needs


def able_to_train(interpreter: Interpreter, settings: Settings) -> Interpreter:
    """The interpreter, if it has what the built-in job needs with these settings. Raises `LaunchError`."""
    if interpreter.problem is not None and not interpreter.packages:
        raise LaunchError(interpreter.problem)
    needs = builtin_packages(settings)
    if missing := [name for name in needs if name not in interpreter.packages]:
        why = needs[missing[0]]
        names = [name for name in missing if needs[name] == why]
        install = BUILTIN_JOB_PACKAGES if why == needs["torch"] else names[0]
        raise LaunchError(
            f"{interpreter.path} has no {' and no '.join(names)}, which {why} needs: run "
            f"`{interpreter.path} -m pip install {install}`, or choose another Python with --interpreter."
        )
    return interpreter


def _no_filters(cwd: Path) -> list[str]:
    """Options of git that turn off every content filter of the configuration: each is a command."""
    names = _git(cwd, "config", "--name-only", "--get-regexp", r"^filter\..*\.(clean|process|required)$") or ""
    values = {"required": "=false"}
    return [
        word
        for name in dict.fromkeys(names.splitlines())
        for word in ("-c", name + values.get(name.rsplit(".", 1)[-1], "="))
    ]


def _git(cwd: Path, *arguments: str) -> str | None:
    """The output of git. Takes no lock, which a git command of the user would run into.

    Runs no program that the configuration of the repository names, which may be someone else's.
    """
    command = ["git", "--no-optional-locks", "-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null", *arguments]
    env = {**os.environ, "GIT_NO_LAZY_FETCH": "1", "GIT_TERMINAL_PROMPT": "0"}
    try:
        done = run_command(command, 3.0, cwd=cwd, env=env)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return None if done.exit_code else done.output.decode("utf-8", "replace").strip()


def _check_path(path: Path, name: str) -> None:
    try:
        is_folder = stat.S_ISDIR(path.stat().st_mode)
    except FileNotFoundError:
        raise LaunchError(f"The command {name!r} does not exist.") from None
    except OSError as error:
        raise LaunchError(f"The command {name!r} cannot be started: {error.strerror}.") from None
    if is_folder or not os.access(path, os.X_OK):
        raise LaunchError(f"The command {name!r} is not executable.")
