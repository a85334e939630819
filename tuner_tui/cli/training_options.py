"""The options of the commands that start or plan a training, and the launch they ask for."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import Annotated, Any, TypeVar, get_type_hints

import typer
from msgspec import Struct, structs
from msgspec.structs import fields, replace

from tuner_tui.advice.recommend.duration_estimate import earlier_runs
from tuner_tui.advice.recommend.recommendation import with_recommended
from tuner_tui.advice.recommend.target import limit_gpu_memory
from tuner_tui.cli.console import ExitCode, fail, print_note
from tuner_tui.cli.machine import ReadMachine, parse_memory_limit, refuse_no_python
from tuner_tui.cli.options import (
    InterpreterPath,
    MemoryLimit,
    ModelName,
    OtherGpus,
    PresetName,
    SettingValues,
    TaskName,
    complete_run,
)
from tuner_tui.hardware.interpreter import resolve_executable
from tuner_tui.memory.job_task import unknown_task, usual_task
from tuner_tui.runs.launch.command import LaunchError
from tuner_tui.runs.launch.launchers import training_python
from tuner_tui.runs.launch.prepare import (
    LaunchRequest,
    PreparedLaunch,
    build_request,
    launch_summary,
    prepare,
    working_folder,
)
from tuner_tui.runs.launch.start import DuplicateRunError
from tuner_tui.runs.slurm import SlurmError
from tuner_tui.runs.store.folder import runs_dir
from tuner_tui.runs.supervise.notify import NOTIFY_VARIABLE, target_problem
from tuner_tui.settings.errors import SettingsError
from tuner_tui.settings.job import MAX_FALLBACKS, BuiltinJob, CommandJob, Task
from tuner_tui.settings.model import Origin, OriginKind, Resolved
from tuner_tui.settings.resolve import LaunchOptions, parse_flags
from tuner_tui.settings.tool_choice import names_tool_file
from tuner_tui.tuning.store import AlreadyTuningError

AnyJob = TypeVar("AnyJob", BuiltinJob, BuiltinJob | CommandJob)
ASSUMED_TOKENS: Mapping[Task, int] = {"causal-lm": 1024, "seq2seq": 512}
"""Of a sample whose data is not known, by task; classifiers have the default of the setting."""
JOB_VALUES = ("model", "task", "data")
"""What `--set` changes of the built-in job, in addition to the settings."""


class TrainingOptions(Struct, frozen=True, kw_only=True):
    """The training that a command line describes."""

    command: Annotated[
        list[str] | None, typer.Argument(metavar="-- COMMAND", help="Your training command; default: the preset's job.")
    ] = None
    preset: PresetName = None
    values: SettingValues = None
    apply: Annotated[
        str | None,
        typer.Option(
            "--apply", metavar="MODE", help="How settings are passed: placeholders, hf-args, yaml, inject or none."
        ),
    ] = None
    launcher: Annotated[
        str | None,
        typer.Option(
            "--launcher", metavar="NAME", help="What starts COMMAND: plain, torchrun, accelerate or deepspeed."
        ),
    ] = None
    processes: Annotated[
        int | None, typer.Option("--processes", metavar="N", help="Number of processes, one per GPU.")
    ] = None
    model: ModelName = None
    task: TaskName = None
    data: Annotated[
        str | None,
        typer.Option("--data", metavar="D", help="Data: a CSV, JSONL or Parquet file, a Hub dataset, or stdlib."),
    ] = None
    memory_limit: MemoryLimit = None
    interpreter: InterpreterPath = None

    @property
    def options(self) -> LaunchOptions:
        names = (
            field.name for field in fields(self) if field.name not in ("command", "values", "memory_limit", "notify")
        )
        return LaunchOptions(command=tuple(self.command or ()), **{name: getattr(self, name) for name in names})

    def parse(self, *swept: str) -> LaunchOptions:
        """Return the launch, with the settings `swept` after those of `--set`. Raises `SettingsError`.

        A configuration file in place of a command is a preset: the file names its tool.
        """
        options = self.options
        word = options.command[0] if options.preset is None and len(options.command) == 1 else ""
        if names_tool_file(word) and Path(word).is_file() and not os.access(word, os.X_OK):
            options = replace(options, command=(), preset=word)
        words = [word.partition("=") for word in (*(self.values or ()), *swept)]
        chosen: dict[str, Any] = {name: text for name, _, text in words if name in JOB_VALUES and text}
        flags = parse_flags("".join(word) for word in words if word[0] not in chosen)
        limit = parse_memory_limit(self.memory_limit)
        return replace(options, flags=flags, environment=dict(os.environ), memory_limit_bytes=limit, **chosen)


class PlanOptions(Struct, frozen=True, kw_only=True):
    """A training that is only planned, and the machine that it is planned for."""

    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="FILE | -- COMMAND",
            help="A training tool's configuration file, a script, a preset, or a training command (read, not run).",
        ),
    ] = None
    preset: PresetName = None
    values: SettingValues = None
    model: ModelName = None
    task: TaskName = None
    gpus: OtherGpus = None
    interpreter: InterpreterPath = None

    def assume(self, resolved: Resolved, job: AnyJob) -> tuple[Resolved, AnyJob]:
        """Return the settings and job of a model that alone is named: what it is usually trained for, and how long
        the samples of a language model are where nobody says so. Raises `SettingsError` for an unknown task."""
        if self.model is None or self.preset is not None or self.words or not isinstance(job, BuiltinJob):
            return resolved, job
        if self.task is None:
            task = usual_task(self.model)
            if task is None:
                raise SettingsError(unknown_task(self.model))
            job = structs.replace(job, task=task)
        tokens = ASSUMED_TOKENS.get(job.task)
        if tokens is None or resolved.origin("max_length").kind != OriginKind.DEFAULT:
            return resolved, job
        print_note(f"Samples of {tokens:,} tokens are assumed; --set max_length=N says how long they are.")
        origin = Origin(OriginKind.ASSUMED, "for a language model")
        return Resolved(resolved.settings.changed(max_length=tokens), {**resolved.origins, "max_length": origin}), job


class RunOptions(TrainingOptions, frozen=True, kw_only=True):
    """A training, and what happens when it ends."""

    resume: Annotated[
        str | None,
        typer.Option(
            "--resume",
            metavar="RUN",
            autocompletion=complete_run,
            help="Resume from the newest complete checkpoint of RUN or its parents.",
        ),
    ] = None
    fallback: Annotated[
        int | None,
        typer.Option(
            "--fallback",
            metavar="N",
            min=0,
            max=MAX_FALLBACKS,
            help="After out of memory, restart with a smaller micro batch and the same effective batch, "
            "at most N times. Default: TUNER_FALLBACK, then the preset's job.",
        ),
    ] = None
    notify: Annotated[
        str | None,
        typer.Option(
            "--notify",
            metavar="COMMAND",
            help="Notify when the run ends: a command, which gets the message as its last argument. Default: "
            "TUNER_NOTIFY.",
        ),
    ] = None


def taking(options: type[TrainingOptions | PlanOptions]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Return the decorator of a command that gets the shared `options` as its first argument.

    A launch that is refused ends the command with its sentence: exit code 4 for a twin that runs, else 2.
    """
    hints = get_type_hints(options, include_extras=True)
    shared = [Parameter(name, Parameter.KEYWORD_ONLY, default=None, annotation=hint) for name, hint in hints.items()]

    def decorate(function: Callable[..., None]) -> Callable[..., None]:
        _, *further = signature(function, eval_str=True).parameters.values()
        accepted = Signature([*shared, *(part.replace(kind=Parameter.KEYWORD_ONLY) for part in further)])

        def command(**given: Any) -> None:
            values = accepted.bind(**given)
            values.apply_defaults()
            training = options(**{name: values.arguments.pop(name) for name in hints})
            try:
                function(training, **values.arguments)
            except (DuplicateRunError, AlreadyTuningError) as error:
                fail(str(error), ExitCode.ALREADY_RUNNING)
            except (SettingsError, LaunchError, SlurmError) as error:
                fail(str(error))

        command.__doc__ = function.__doc__
        # Typer reads the options of a command from its signature.
        command.__signature__ = accepted  # type: ignore[attr-defined]
        command.__annotations__ = {part.name: part.annotation for part in accepted.parameters.values()}
        return command

    return decorate


def launch_request(options: LaunchOptions, read_machine: ReadMachine) -> LaunchRequest:
    """The launch that the options ask for, with what is recommended for the machine. Raises `SettingsError`."""

    def recommend(resolved: Resolved, job: BuiltinJob) -> Resolved:
        machine = read_machine(options.interpreter)
        inventory = limit_gpu_memory(machine.inventory, options.memory_limit_bytes)
        earlier = earlier_runs(job, runs_dir())
        return with_recommended(resolved, inventory, machine.interpreter, job, earlier=earlier)

    return build_request(options, recommend)


def prepare_announced(request: LaunchRequest, given: Path | None) -> PreparedLaunch:
    """Prepare the launch and print what will be launched to stderr: standard output is for results.

    Exit with 2 if `given`, the path of `--interpreter`, is no Python; print a note if the command uses another. Raises
    `LaunchError`.
    """
    prepared, job = prepare(request), request.job
    if given is not None:
        refuse_no_python(prepared.interpreter)
        if isinstance(job, CommandJob) and job.launcher == "plain":
            python = training_python(job, request.environ, working_folder(request))
            if resolve_executable(python) != resolve_executable(given):
                used = f"the command runs {prepared.argv[0]}."
                print_note(f"--interpreter {given} is only used to look up packages; {used}")
    for label, text in launch_summary(prepared):
        print_note(f"{label:<12} {text}")
    return prepared


def with_notify_target(request: LaunchRequest, target: str | None) -> LaunchRequest:
    """Return the request with its notification target; exit with 2 if the target is invalid."""
    target = request.environ.get(NOTIFY_VARIABLE) if target is None else target
    if not target:
        return request
    wrong = target_problem(target)
    if wrong is not None:
        fail(wrong)
    return replace(request, environ={**request.environ, NOTIFY_VARIABLE: target})
