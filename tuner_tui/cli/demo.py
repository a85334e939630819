"""`tuner-tui demo`: the screen on the demo preset, one key from training; without a terminal, the whole training."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

PRESET = "demo"


def register(app: typer.Typer) -> None:
    """Adds the command `demo`."""
    app.command("demo")(demo)


def demo(
    ascii_only: Annotated[bool, typer.Option("--ascii", help="Only ASCII on the screen.")] = False,
    interpreter: Annotated[Path | None, typer.Option(metavar="PATH", help="The Python that trains.")] = None,
) -> None:
    """Try it: the screen on the demo preset. In a pipe it trains the demo to its end with plain lines."""
    if sys.stdin.isatty() and sys.stdout.isatty():
        _on_screen(ascii_only, interpreter)
    else:
        from tuner_tui.cli.run import run

        run(preset=PRESET, interpreter=interpreter)


def _on_screen(ascii_only: bool, interpreter: Path | None) -> None:
    from tuner_tui.cli.opening import open_screen
    from tuner_tui.ui.wiring import Wishes

    wishes = Wishes(interpreter=interpreter, flags={}, environment=dict(os.environ))
    open_screen(wishes, PRESET, None, ascii_only=ascii_only)
