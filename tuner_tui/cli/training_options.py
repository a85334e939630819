"""The options of the commands that start a training: `run`, `tune` and `slurm submit`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from inspect import Parameter, Signature, signature
from typing import Annotated, Any, get_type_hints

import typer

from tuner_tui.cli.launch_request import parse_launch_options
from tuner_tui.cli.options import (
    InterpreterPath,
    MemoryLimit,
    ModelName,
    PresetName,
    SettingValues,
    TaskName,
    complete_run,
)
from tuner_tui.settings.job import MAX_FALLBACKS
from tuner_tui.settings.resolve import LaunchOptions


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingOptions:
    """The training that a command line describes."""

    command: Annotated[
        list[str] | None,
        typer.Argument(metavar="[-- COMMAND...]", help="Your training command; default: the preset's job."),
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
        """Return the launch, with the settings `swept` after those of `--set`. Raises `SettingsError`."""
        return parse_launch_options(self.options, [*(self.values or ()), *swept], self.memory_limit)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions(TrainingOptions):
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
            help="OOM retries: after out of memory, restart with a smaller micro batch and the same effective batch, "
            "at most N times. Default: TUNER_FALLBACK, then the preset's job.",
        ),
    ] = None
    notify: Annotated[
        str | None,
        typer.Option(
            "--notify",
            metavar="COMMAND|URL",
            help="Notify when the run ends: a command, which gets the message as its last argument, or an Apprise URL. "
            "Default: TUNER_NOTIFY.",
        ),
    ] = None


def taking(options: type[TrainingOptions]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Return the decorator of a command that gets the shared `options` as its first argument."""
    hints = get_type_hints(options, include_extras=True)
    shared = [Parameter(name, Parameter.KEYWORD_ONLY, default=None, annotation=hint) for name, hint in hints.items()]

    def decorate(function: Callable[..., None]) -> Callable[..., None]:
        _, *further = signature(function, eval_str=True).parameters.values()
        accepted = Signature([*shared, *(part.replace(kind=Parameter.KEYWORD_ONLY) for part in further)])

        def command(**given: Any) -> None:
            values = accepted.bind(**given)
            values.apply_defaults()
            training = options(**{name: values.arguments.pop(name) for name in hints})
            function(training, **values.arguments)

        command.__doc__ = function.__doc__
        # Typer reads the options of a command from its signature.
        command.__signature__ = accepted  # type: ignore[attr-defined]
        command.__annotations__ = {part.name: part.annotation for part in accepted.parameters.values()}
        return command

    return decorate
