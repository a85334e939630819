"""Options shared by several commands."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

CommandWords = Annotated[
    list[str] | None, typer.Argument(metavar="[-- COMMAND...]", help="Your training; without it, the preset's job.")
]
LauncherName = Annotated[
    str | None, typer.Option("--launcher", metavar="NAME", help="plain, torchrun or accelerate: what starts COMMAND.")
]
ProcessCount = Annotated[
    int | None, typer.Option("--processes", metavar="N", help="Processes that the launcher starts, one a GPU.")
]
MemoryLimit = Annotated[
    str | None,
    typer.Option("--memory-limit", metavar="SIZE", help="Most memory the training may take, such as 6GiB."),
]
ModelName = Annotated[
    str | None,
    typer.Option("--model", metavar="M", help="What trains: a Hub id, a local folder, or a shape such as llama-1b."),
]
TaskName = Annotated[str | None, typer.Option("--task", metavar="T", help="classification or causal-lm.")]
DataName = Annotated[
    str | None, typer.Option("--data", metavar="D", help="A CSV, JSONL or Parquet file, a Hub dataset, or stdlib.")
]
Detached = Annotated[bool, typer.Option("--detach", help="Start it and return.")]
InterpreterPath = Annotated[Path | None, typer.Option("--interpreter", metavar="PATH", help="The Python that trains.")]
