"""`tuner-tui diff RUN RUN`: two runs side by side."""

from __future__ import annotations

from typing import Annotated

import typer
from msgspec.structs import asdict

from tuner_tui.cli.console import find_run_or_exit, print_result
from tuner_tui.cli.options import AsJson, complete_run
from tuner_tui.runs.read.reader import RunReader
from tuner_tui.tuning.followed_remedies import find_doubt
from tuner_tui.view.comparison_rows import compare_views, comparison_rows

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
    before, after = ((folder, RunReader(folder).poll()) for folder in map(find_run_or_exit, (first, second)))
    scene = compare_views((before[0].id, before[1]), (after[0].id, after[1]), find_doubt(before, after))
    figures = [{**asdict(figure), "ratio": figure.ratio} for figure in scene.comparison.figures]
    document = {"runs": scene.names, **asdict(scene.comparison), "figures": figures}
    print_result(document, as_json, lambda width: comparison_rows(scene, min(width, ONE_COLUMN)))
