"""`tuner-tui demo`: the screen on the demo preset, one key from training; without a terminal, the whole training."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from tuner_tui.cli.commands.screen import ThemeName, parse_set_flags
from tuner_tui.cli.completion import complete_setting

PRESET = "demo"


def register(app: typer.Typer) -> None:
    """Add the command `demo`."""
    app.command("demo")(demo)


def demo(
    ascii_only: Annotated[bool, typer.Option("--ascii", help="Only ASCII on the screen.")] = False,
    theme: Annotated[ThemeName, typer.Option(help="Colours.")] = ThemeName.DARK,
    interpreter: Annotated[Path | None, typer.Option(metavar="PATH", help="The Python that trains.")] = None,
    values: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="K=V", autocompletion=complete_setting, help="A setting; wins over the preset."),
    ] = None,
) -> None:
    """Try it: the screen on the demo preset. In a pipe it trains the demo to its end with plain lines."""
    if sys.stdin.isatty() and sys.stdout.isatty():
        from tuner_tui.cli.screen_opener import open_named

        open_named(PRESET, parse_set_flags(values or ()), interpreter, theme.value, ascii_only)
    else:
        from tuner_tui.cli.commands.run import run

        run(preset=PRESET, interpreter=interpreter, values=values)
