"""`tuner-tui run`: starts a training under supervision and follows it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tuner_tui.cli.output import ALREADY_RUNNING, DONE, USAGE, fail, line, note

if TYPE_CHECKING:
    from tuner_tui.runs.launch import LaunchRequest

CONTEXT = {"allow_interspersed_args": False}


def register(app: typer.Typer) -> None:
    """Adds the command `run`."""
    app.command("run", context_settings=CONTEXT)(run)


def run(
    command: Annotated[
        list[str] | None, typer.Argument(metavar="[-- COMMAND...]", help="Your training; without it, the preset's job.")
    ] = None,
    preset: Annotated[str | None, typer.Option(metavar="P", help="A preset's name or file.")] = None,
    values: Annotated[
        list[str] | None, typer.Option("--set", metavar="K=V", help="A setting; wins over every other source.")
    ] = None,
    apply: Annotated[
        str | None,
        typer.Option(
            metavar="MODE", help="placeholders, hf-args, hydra, yaml, inject or none: how settings reach COMMAND."
        ),
    ] = None,
    resume: Annotated[
        str | None, typer.Option(metavar="RUN", help="Go on from the newest complete checkpoint of RUN or its parents.")
    ] = None,
    detach: Annotated[bool, typer.Option("--detach", help="Start it and return.")] = False,
    memory_limit: Annotated[
        str | None, typer.Option(metavar="SIZE", help="Most memory the training may take, such as 6GiB.")
    ] = None,
    interpreter: Annotated[Path | None, typer.Option(metavar="PATH", help="The Python that trains.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Events as JSON lines on standard output.")] = False,
) -> None:
    """Train. Ctrl-C saves and stops, a second one terminates; the training outlives this command however it ends.

    Exit codes: 0 done, 1 failed, 2 bad input, 3 out of memory, 4 already running, 130 and 143 stopped.
    """
    from tuner_tui.cli.follow import launch_and_follow
    from tuner_tui.cli.request import Asked, request_for
    from tuner_tui.runs.command import LaunchError
    from tuner_tui.runs.twins import living_twin
    from tuner_tui.settings.errors import SettingsError

    asked = Asked(tuple(command or ()), preset, tuple(values or ()), apply, resume, memory_limit, interpreter)
    try:
        request = request_for(asked)
        twin = living_twin(request)
        if twin is not None:
            fail(f"This training already runs as {twin.id}; `tuner-tui attach {twin.id}` follows it.", ALREADY_RUNNING)
        code = _launch_only(request, as_json) if detach else launch_and_follow(request, as_json)
    except (SettingsError, LaunchError) as error:
        fail(str(error), USAGE)
    raise typer.Exit(code)


def _launch_only(request: LaunchRequest, as_json: bool) -> int:
    from tuner_tui.runs.launch import launch

    folder = launch(request)
    line(json.dumps({"run": folder.id, "path": str(folder.path)}) if as_json else folder.id)
    note(f"`tuner-tui attach {folder.id}` follows it, `tuner-tui stop {folder.id}` ends it.")
    return DONE
