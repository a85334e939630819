"""`tuner-tui doctor`: what could go wrong before a training starts, as a list with marks."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tuner_tui.cli.console import FAILED, print_json

if TYPE_CHECKING:
    from tuner_tui.advice.preflight import PreflightCheck
    from tuner_tui.cli.machine import ReadMachine

MARKS = {"good": "✓", "warning": "!", "wrong": "✗"}
NAME_WIDTH = 15


def register(app: typer.Typer, read_box: ReadMachine | None = None) -> None:
    """Add the command `doctor`; `read_box` reads the machine."""

    @app.command("doctor")
    def doctor(
        preset: Annotated[str | None, typer.Option(metavar="P", help="A preset, checked against this box.")] = None,
        values: Annotated[list[str] | None, typer.Option("--set", metavar="K=V", help="A setting.")] = None,
        interpreter: Annotated[Path | None, typer.Option(metavar="PATH", help="The Python that trains.")] = None,
        as_json: Annotated[bool, typer.Option("--json", help="One JSON document on standard output.")] = False,
    ) -> None:
        """Check box, Python and settings before a training.

        Exit codes: 0 nothing is wrong, 1 something is, 2 bad input.
        """
        from tuner_tui.advice.preflight import PreflightCheck, preflight_checks
        from tuner_tui.advice.recommend.recommendation import with_recommended
        from tuner_tui.cli.commands.recommend import resolve_options
        from tuner_tui.cli.machine import read_local_machine
        from tuner_tui.hardware.detect import BRIEF_TIMEOUT_S
        from tuner_tui.runs.launch.prepare import missing_path_problem
        from tuner_tui.settings.job import BuiltinJob

        chosen, job = resolve_options(preset, values or [])
        box = read_local_machine(interpreter, BRIEF_TIMEOUT_S) if read_box is None else read_box(interpreter)
        settings = with_recommended(chosen, box.inventory, box.interpreter, job).settings
        missing = missing_path_problem(job, Path.cwd()) if preset is not None and isinstance(job, BuiltinJob) else None
        files = () if missing is None else (PreflightCheck("Files", "wrong", missing),)
        checks = (*preflight_checks(box.inventory, box.interpreter, settings, job), *files)
        if as_json:
            print_json([asdict(check) for check in checks])
        else:
            typer.echo("\n".join(line for check in checks for line in _check_lines(check)))
        if any(check.state == "wrong" for check in checks):
            raise typer.Exit(FAILED)


def _check_lines(check: PreflightCheck) -> list[str]:
    """Return mark, name and sentence of a check, and the advice below them."""
    from tuner_tui.cli.render.text import hanging_lines

    head = f"{MARKS[check.state]} {check.name:<{NAME_WIDTH}}"
    return [*hanging_lines(head, check.sentence), *hanging_lines(f"{' ' * len(head)}→ ", check.advice)]
