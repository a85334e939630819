"""`tuner-tui diff RUN RUN`: two runs side by side."""

from __future__ import annotations

from typing import Annotated

import typer
from msgspec.structs import asdict

from tuner_tui.cli.console import find_run_or_exit, print_json, print_rows, report_width
from tuner_tui.cli.options import AsJson, complete_run
from tuner_tui.runs.events.run_state import strip_allocator_message
from tuner_tui.runs.read.comparison import compare
from tuner_tui.runs.read.reader import RunReader
from tuner_tui.tuning.followed_remedies import find_doubt
from tuner_tui.view.comparison_rows import ComparisonScene, comparison_rows

ONE_COLUMN = 110
"""Columns at most: lines that belong together stay below one another."""


def diff(
    first: Annotated[str, typer.Argument(metavar="RUN", autocompletion=complete_run, help="Name or folder of a run.")],
    second: Annotated[
        str,
        typer.Argument(
            metavar="RUN", autocompletion=complete_run, help="Name or folder of the run to compare it with."
        ),
    ],
    as_json: AsJson = False,
) -> None:
    """Compare settings, speed, memory and loss of two runs."""
    folders = [find_run_or_exit(name) for name in (first, second)]
    views = [RunReader(folder).poll() for folder in folders]
    doubt = find_doubt((folders[0], views[0]), (folders[1], views[1]))
    comparison = compare(views[0], views[1], doubt)
    if as_json:
        figures = [{**asdict(figure), "ratio": figure.ratio} for figure in comparison.figures]
        print_json({"runs": [folder.id for folder in folders], **asdict(comparison), "figures": figures})
        return
    names = folders[0].id, folders[1].id
    first_status, second_status = (strip_allocator_message(view.status.sentence) for view in views)
    scene = ComparisonScene(names, (first_status, second_status), comparison)
    print_rows(comparison_rows(scene, min(report_width(), ONE_COLUMN)))
