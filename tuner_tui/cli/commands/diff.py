"""`tuner-tui diff RUN RUN`: two runs side by side."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from tuner_tui.cli.completion import complete_run
from tuner_tui.cli.console import print_json, print_line

if TYPE_CHECKING:
    pass


def register(app: typer.Typer) -> None:
    """Add the command `diff`."""
    app.command("diff")(diff)


def diff(
    first: Annotated[str, typer.Argument(metavar="RUN", autocompletion=complete_run, help="Name or folder of a run.")],
    second: Annotated[
        str,
        typer.Argument(
            metavar="RUN", autocompletion=complete_run, help="Name or folder of the run to compare it with."
        ),
    ],
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Compare settings, speed, memory and loss of two runs."""
    from tuner_tui.cli.run_lookup import find_run_or_exit
    from tuner_tui.runs.read.comparison import compare
    from tuner_tui.runs.read.reader import RunReader

    folders = [find_run_or_exit(name) for name in (first, second)]
    one, other = (RunReader(folder).poll() for folder in folders)
    comparison = compare(one, other)
    if as_json:
        figures = [{**asdict(figure), "ratio": figure.ratio} for figure in comparison.figures]
        print_json({"runs": [folder.id for folder in folders], **asdict(comparison), "figures": figures})
        return
    from tuner_tui.cli.render.diff import diff_report

    print_line(
        "\n".join(
            diff_report([folder.id for folder in folders], comparison, [one.status.sentence, other.status.sentence])
        )
    )
