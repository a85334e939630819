"""`tuner-tui watch`: GPUs and the jobs on them. What it does is in `cli.machine_watcher`, which imports no Typer."""

from __future__ import annotations

from typing import Annotated

import typer

from tuner_tui.cli.machine_watcher import watch_machine
from tuner_tui.cli.options import AsciiOnly


def register(app: typer.Typer) -> None:
    """Add the command `watch`."""
    app.command("watch")(watch)


def watch(
    what: Annotated[
        str | None, typer.Argument(metavar="[PID|RUN]", help="A process id or run; default: all jobs.")
    ] = None,
    once: Annotated[bool, typer.Option("--once", help="Print once and exit.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON lines; with --once, one document.")] = False,
    ascii_only: AsciiOnly = False,
    brief: Annotated[
        bool, typer.Option("--brief", help="With --json: short lines every 5 s, at most 2 kB/s; read by `hosts`.")
    ] = False,
) -> None:
    """Watch GPUs and the jobs on them.

    Shows a screen on a terminal, and prints a table every second in a pipe. With a process id or a run it shows that
    job until it ends. It never touches what it watches.
    """
    watch_machine(what, once, as_json, ascii_only, brief)
