"""`tuner-tui doctor`: what could go wrong before a training starts, as a list with marks."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tuner_tui.cli.console import FAILED, print_json
from tuner_tui.core.text import wrap_text

if TYPE_CHECKING:
    from tuner_tui.advice.preflight import PreflightCheck
    from tuner_tui.cli.machine import ReadMachine

MARKS = {"good": "✓", "warning": "!", "wrong": "✗"}
NAME, WIDTH = 15, 100


def register(app: typer.Typer, read_box: ReadMachine | None = None) -> None:
    """Adds the command `doctor`; `read_box` says what machine this is."""

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
        from tuner_tui.runs.launch.prepare import missing_path_problem
        from tuner_tui.settings.job import BuiltinJob

        chosen, job = resolve_options(preset, values or [])
        box = (read_box or read_local_machine)(interpreter)
        settings = with_recommended(chosen, box.inventory, box.interpreter, job).settings
        missing = missing_path_problem(job, Path.cwd()) if preset is not None and isinstance(job, BuiltinJob) else None
        files = () if missing is None else (PreflightCheck("Files", "wrong", missing),)
        checks = (*preflight_checks(box.inventory, box.interpreter, settings, job), *files)
        if as_json:
            print_json([asdict(check) for check in checks])
        else:
            typer.echo("\n".join(line for check in checks for line in lines(check)))
        if any(check.state == "wrong" for check in checks):
            raise typer.Exit(FAILED)


def lines(check: PreflightCheck) -> list[str]:
    """One check: mark, name, sentence, and what to do below it."""
    head = f"{MARKS[check.state]} {check.name:<{NAME}}"
    below = " " * len(head)
    advice = wrap_text(check.advice, WIDTH, initial_indent=f"{below}→ ", subsequent_indent=f"{below}  ")
    return [*wrap_text(check.sentence, WIDTH, initial_indent=head, subsequent_indent=below), *advice]
