"""`tuner-tui [RUN|PRESET|FILE]`: the screen. `tuner-tui demo`: the same on the demo preset, one key from training."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from tuner_tui.cli.commands.run import run
from tuner_tui.cli.options import AsciiOnly, InterpreterPath, SettingValues, Theme, ThemeName
from tuner_tui.cli.screen_opener import FIRST_PRESET, open_named
from tuner_tui.settings.job import MAX_FALLBACKS
from tuner_tui.settings.resolve import parse_flags


def screen(
    name: Annotated[
        str | None, typer.Argument(metavar="RUN|PRESET|FILE", help="A preset, a run or a configuration file.")
    ] = None,
    ascii_only: AsciiOnly = False,
    theme: Theme = ThemeName.DARK,
    interpreter: InterpreterPath = None,
    values: SettingValues = None,
    fallback: Annotated[
        int | None,
        typer.Option(metavar="N", min=0, max=MAX_FALLBACKS, help="Retries after out of memory, with a smaller batch."),
    ] = None,
) -> None:
    """Open the screen on a run, a preset or a configuration file."""
    open_named(name, parse_flags(values or ()), interpreter, theme.value, ascii_only, fallback)


def demo(
    ascii_only: AsciiOnly = False,
    theme: Theme = ThemeName.DARK,
    interpreter: InterpreterPath = None,
    values: SettingValues = None,
) -> None:
    """Open the screen on a small example training.

    In a pipe, train the example and print plain lines.
    """
    if sys.stdin.isatty() and sys.stdout.isatty():
        open_named(FIRST_PRESET, parse_flags(values or ()), interpreter, theme.value, ascii_only)
    else:
        run(preset=FIRST_PRESET, interpreter=interpreter, values=values)
