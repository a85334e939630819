"""Options shared by several commands, and what the shell completes: presets, runs, settings and their values."""

from __future__ import annotations

import contextlib
import io
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import CompletionItem, TyperGroup  # type: ignore[attr-defined]

from tuner_tui.cli.commands import PANELS
from tuner_tui.settings.job import MAX_FALLBACKS
from tuner_tui.settings.model import FIELDS

MOST_RUNS = 30


def answer_bash(app: Callable[[], None]) -> str:
    """Return what `app` prints for bash, which splits `key=value` at the `=` and completes what follows it only."""
    # bash breaks words at `=`: `--set precision=b` arrives as `--set`, `precision`, `=`, `b`, and bash replaces only
    # `b`. So the words are joined again for Typer, and of its answers only what follows the `=` is printed.
    words, current = os.environ.get("COMP_WORDS", ""), int(os.environ.get("COMP_CWORD", "0"))
    begun = words.split(" ")[: current + 1]
    joined = re.sub(r"(?<=\w) = ?", "=", " ".join(begun))
    os.environ["COMP_WORDS"], os.environ["COMP_CWORD"] = joined, str(len(joined.split(" ")) - 1)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), contextlib.suppress(SystemExit):
        app()
    lines = printed.getvalue().splitlines()
    values = "=" in joined.rpartition(" ")[2]
    return "\n".join(line.partition("=")[2] if values else line for line in lines)


def complete_preset(incomplete: str) -> list[str]:
    from tuner_tui.settings.presets import preset_names

    return [name for name in preset_names() if name.startswith(incomplete)]


def complete_run(incomplete: str) -> list[str]:
    """Names of runs, the newest first."""
    from tuner_tui.runs.store.folder import list_runs, runs_dir

    return [run.id for run in list_runs(runs_dir()) if run.id.startswith(incomplete)][:MOST_RUNS]


def complete_setting(incomplete: str) -> list[str]:
    """`name=` for each setting, and `name=value` for one with known values."""
    name, equals, start = incomplete.partition("=")
    if not equals:
        return [f"{field}=" for field in FIELDS if field.startswith(name)]
    spec = FIELDS.get(name)
    if spec is None:
        return []
    values = ("on", "off") if spec.kind == "bool" else spec.choices or spec.suggestions
    return [f"{name}={value}" for value in values if value.startswith(start)]


class RootGroup(TyperGroup):
    """Lists the commands under the headings of `PANELS`, and completes presets and runs: a name opens the screen."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        for title, names in PANELS.items():
            with formatter.section(title):
                formatter.write_dl([(name, self.commands[name].get_short_help_str(80)) for name in names])

    def shell_complete(self, ctx: Any, incomplete: str) -> list[Any]:
        found = super().shell_complete(ctx, incomplete)
        if incomplete.startswith("-"):
            return found
        return found + [CompletionItem(name) for name in (*complete_preset(incomplete), *complete_run(incomplete))]


CommandWords = Annotated[
    list[str] | None,
    typer.Argument(metavar="[-- COMMAND...]", help="Your training command; default: the preset's job."),
]
LauncherName = Annotated[
    str | None,
    typer.Option("--launcher", metavar="NAME", help="What starts COMMAND: plain, torchrun, accelerate or deepspeed."),
]
ProcessCount = Annotated[int | None, typer.Option("--processes", metavar="N", help="Number of processes, one per GPU.")]
MemoryLimit = Annotated[
    str | None,
    typer.Option("--memory-limit", metavar="SIZE", help="Limit the memory of the training, such as 6GiB."),
]
ModelName = Annotated[
    str | None,
    typer.Option("--model", metavar="M", help="Model: a Hub id, a local folder, or a shape such as llama-1b."),
]
TaskName = Annotated[str | None, typer.Option("--task", metavar="T", help="classification or causal-lm.")]
DataName = Annotated[
    str | None,
    typer.Option("--data", metavar="D", help="Data: a CSV, JSONL or Parquet file, a Hub dataset, or stdlib."),
]
Detached = Annotated[bool, typer.Option("--detach", help="Start in the background and return.")]
InterpreterPath = Annotated[
    Path | None, typer.Option("--interpreter", metavar="PATH", help="Python of the training environment.")
]
RunName = Annotated[
    str, typer.Argument(metavar="RUN", autocompletion=complete_run, help="Name of the run, such as r007.")
]
PresetName = Annotated[
    str | None,
    typer.Option("--preset", metavar="P", autocompletion=complete_preset, help="Name or file of a preset."),
]
SettingValues = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="K=V",
        autocompletion=complete_setting,
        help="Override a setting; with run and tune also model, task and data.",
    ),
]
ApplyMode = Annotated[
    str | None,
    typer.Option(
        "--apply", metavar="MODE", help="How settings are passed: placeholders, hf-args, yaml, inject or none."
    ),
]
OtherGpus = Annotated[
    str | None,
    typer.Option("--gpu", metavar="GPUS", help="Plan for other GPUs, such as T4,2x3090,A100-80GB or 24GiB."),
]
AssumedMemory = Annotated[
    str | None, typer.Option("--memory", metavar="SIZE", help="Assume this much memory per GPU, such as 24GiB.")
]
ResumedRun = Annotated[
    str | None,
    typer.Option(
        "--resume",
        metavar="RUN",
        autocompletion=complete_run,
        help="Resume from the newest complete checkpoint of RUN or its parents.",
    ),
]
RetryCount = Annotated[
    int | None,
    typer.Option(
        "--fallback",
        metavar="N",
        min=0,
        max=MAX_FALLBACKS,
        help="OOM retries: after out of memory, restart with a smaller micro batch and the same effective batch, at "
        "most N times. Default: TUNER_FALLBACK, then the preset's job.",
    ),
]
NotifyTarget = Annotated[
    str | None,
    typer.Option(
        "--notify",
        metavar="COMMAND|URL",
        help="Notify when the run ends: a command, which gets the message as its last argument, or an Apprise URL. "
        "Default: TUNER_NOTIFY.",
    ),
]
AsciiOnly = Annotated[bool, typer.Option("--ascii", help="Draw with ASCII characters only.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
