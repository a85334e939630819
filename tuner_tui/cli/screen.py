"""`tuner-tui [PRESET|RUN]`: the screen."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from tuner_tui.ui.services import Opened
    from tuner_tui.ui.wiring import Wishes

FIRST_PRESETS = ("demo", "cpu")
COLOURLESS = ("dumb", "vt100", "vt102", "vt220", "linux-m", "xterm-mono")


class ThemeName(StrEnum):
    """The themes."""

    DARK = "dark"
    LIGHT = "light"


def register(app: typer.Typer) -> None:
    """Adds `screen`, which stands for the program without a command."""
    app.command("screen", hidden=True)(screen)


def screen(
    name: Annotated[str | None, typer.Argument(metavar="[PRESET|RUN]", help="A preset or a run")] = None,
    ascii_only: Annotated[bool, typer.Option("--ascii", help="Only ASCII on the screen")] = False,
    theme: Annotated[ThemeName, typer.Option(help="Colours")] = ThemeName.DARK,
    interpreter: Annotated[Path | None, typer.Option(help="The Python that trains")] = None,
    values: Annotated[
        list[str] | None, typer.Option("--set", metavar="K=V", help="A setting; wins over the preset")
    ] = None,
) -> None:
    """Open the screen on a preset, or on a run."""
    from tuner_tui.ui.wiring import Wishes

    wishes = Wishes(
        interpreter=interpreter,
        flags=_flags(values or ()),
        environment=dict(os.environ),
    )
    preset, folder = _what(name)
    if not sys.stdout.isatty() or not sys.stdin.isatty():
        fail("The screen needs a terminal; `tuner-tui run` trains without one.")
    open_screen(wishes, preset, folder, theme.value, ascii_only)


def open_screen(
    wishes: Wishes, preset: str | None, folder: Path | None, theme: str = "dark", ascii_only: bool = False
) -> None:
    """Run the screen until it is left; exits with its code."""
    from tuner_tui.ui.app import TunerApp
    from tuner_tui.ui.wiring import real_services

    app = TunerApp(
        real_services(wishes),
        start=_start(preset, folder, wishes),
        folder=lambda: folder if preset or folder else newest_running(),
        theme=theme,
        colour=colour_wanted(os.environ),
        ascii_only=ascii_only,
    )
    app.run()
    raise typer.Exit(app.return_code or 0)


def colour_wanted(environ: os._Environ[str] | dict[str, str]) -> bool:
    """Whether the terminal shows colours and its owner wants them (https://no-color.org)."""
    return not environ.get("NO_COLOR") and environ.get("TERM", "") not in COLOURLESS


def newest_running() -> Path | None:
    """The folder of the newest run that lives, if there is one."""
    from tuner_tui.runs.folder import list_runs, runs_dir
    from tuner_tui.runs.status import status

    return next((folder.path for folder in list_runs(runs_dir()) if status(folder).live), None)


def fail(sentence: str) -> None:
    """Say what is wrong with the command line and end with 2."""
    typer.echo(sentence, err=True)
    raise typer.Exit(2)


def _flags(values: Sequence[str]) -> dict[str, str]:
    if not values:
        return {}
    from tuner_tui.settings.errors import SettingsError
    from tuner_tui.settings.resolve import parse_flags

    try:
        return dict(parse_flags(values))
    except SettingsError as error:
        fail(str(error))
        raise


def _what(name: str | None) -> tuple[str | None, Path | None]:
    """The preset and the run folder that `name` means; ends with 2 where it means neither."""
    if name is None:
        return None, None
    from tuner_tui.runs.folder import RunNotFoundError, find_run, runs_dir
    from tuner_tui.settings.errors import PresetError
    from tuner_tui.settings.preset import find_preset

    try:
        return None, find_run(name, runs_dir()).path
    except RunNotFoundError:
        pass
    try:
        find_preset(name)
    except PresetError as error:
        fail(f"{name} is neither a run nor a preset: {error}")
    return name, None


def _start(preset: str | None, folder: Path | None, wishes: Wishes) -> Callable[[], Opened]:
    def start() -> Opened:
        from tuner_tui.ui.wiring import load_preset, opened_from_run

        if folder is not None:
            return opened_from_run(folder, wishes)
        return load_preset(preset or FIRST_PRESETS[0], wishes)

    return start
