"""`tuner-tui watch`: GPUs and the jobs on them. What it does is in `cli.machine_watcher`, which imports no Typer."""

from __future__ import annotations

from typing import Annotated

import typer

from tuner_tui.cli.machine_watcher import open_watch
from tuner_tui.cli.options import AsciiOnly, Theme, ThemeName


def watch(
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="PID|RUN|HOST",
            help="A process id or run; or hosts: names of your ssh configuration, or user@name:port. Default: this "
            "machine.",
        ),
    ] = None,
    once: Annotated[bool, typer.Option("--once", help="Print once and exit.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON lines; with --once, one document.")] = False,
    ascii_only: AsciiOnly = False,
    theme: Theme = ThemeName.DARK,
) -> None:
    """Watch GPUs and the jobs on them, here or on other hosts.

    Shows a screen on a terminal, and prints a table every second in a pipe. With a process id or a run it shows that
    job until it ends. Hosts are reached over ssh, with your configuration and keys; where tuner-tui is not installed,
    nvidia-smi answers. It never touches what it watches.
    """
    open_watch(words or (), once, as_json, theme.value, ascii_only)
