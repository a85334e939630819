"""Options shared by several commands."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

CommandWords = Annotated[
    list[str] | None,
    typer.Argument(metavar="[-- COMMAND...]", help="Your training command; default: the preset's job."),
]
LauncherName = Annotated[
    str | None, typer.Option("--launcher", metavar="NAME", help="What starts COMMAND: plain, torchrun or accelerate.")
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
