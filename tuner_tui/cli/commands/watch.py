"""`tuner-tui watch`: every GPU, every process on it, the jobs they belong to. Looks only; signals nothing."""

from __future__ import annotations

from typing import Annotated

import typer


def register(app: typer.Typer) -> None:
    """Add the command `watch`."""
    app.command("watch")(watch)


def watch(
    what: Annotated[str | None, typer.Argument(metavar="[PID|RUN]", help="One job; without it, all of them.")] = None,
    once: Annotated[bool, typer.Option("--once", help="Look once and end.")] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="JSON lines on standard output; with --once, one document.")
    ] = False,
    ascii_only: Annotated[bool, typer.Option("--ascii", help="Only ASCII on the screen.")] = False,
) -> None:
    """Watch the GPUs and who is on them: a screen on a terminal, a table once a second in a pipe.

    With a process number or a run, that job alone, until it ends. Nothing that is watched is touched.
    """
    from tuner_tui.cli.machine_watcher import watch_machine

    watch_machine(what, once, as_json, ascii_only)
