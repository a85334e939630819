"""`tuner-tui report RUN`: how a run ended, for a colleague."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tuner_tui.advice.diagnose import diagnose
from tuner_tui.advice.situation import situation_of_run, with_outcome
from tuner_tui.cli.console import fail, find_run_or_exit, print_line, print_note
from tuner_tui.cli.options import RunName
from tuner_tui.core.files import write_durable
from tuner_tui.runs.read.reader import RunReader
from tuner_tui.ui.followed_run import read_context
from tuner_tui.ui.report_file import render_report, report_problem
from tuner_tui.view.end_card import end_scene


def report(
    run: RunName = None,
    output: Annotated[
        str | None, typer.Option("--output", "-o", metavar="FILE", help="Write FILE.md, .svg or .html, not to stdout.")
    ] = None,
) -> None:
    """Write how a run ended, with its charts: as Markdown, or as one SVG or HTML file.

    With the price of a kilowatt hour in TUNER_KWH_PRICE, such as '0.30 €', it says what the energy of the GPUs cost.
    """
    folder = find_run_or_exit(run)
    problem = None if output is None else report_problem(output)
    if problem is not None:
        fail(f"--output: {problem}")
    view = with_outcome(RunReader(folder).poll())
    if view.record is None:
        fail(view.record_problem or f"The record of {folder.id} cannot be read.")
    if view.state.finished is None:
        fail(f"{folder.id} has not ended: {view.status.sentence}")
    scene = end_scene(folder.id, view, read_context(folder, view), diagnose(situation_of_run(folder, view)))
    if output is None:
        print_line(render_report(scene, ".md").rstrip())
        return
    path = Path(output).expanduser()
    write_durable(path, render_report(scene, path.suffix).encode(), overwrite=False)
    print_note(f"Written to {path}.")
