"""`tuner-tui diff RUN RUN`: two runs side by side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Annotated

import typer

from tuner_tui.cli.console import find_run_or_exit, print_json, print_line
from tuner_tui.cli.options import AsJson, complete_run
from tuner_tui.cli.render.text import join_sections, titled_section
from tuner_tui.runs.read.comparison import (
    ChangedSetting,
    Comparison,
    Difference,
    LossAt,
    MeasuredFigure,
    compare,
    format_figure,
    format_loss_difference,
    format_origin,
    format_ratio,
    format_setting,
)
from tuner_tui.runs.read.reader import RunReader
from tuner_tui.settings.model import format_value

NAME_WIDTH, VALUE_WIDTH, MAX_TEXT = 30, 22, 60


def diff_report(names: Sequence[str], comparison: Comparison, statuses: Sequence[str]) -> list[str]:
    """Return the whole report; `statuses` has one sentence on the state of each run."""
    warning = "! These runs trained different jobs; speed and loss may not be comparable."
    return join_sections(
        [
            [_line("", *names), *(f"{name}  {status}" for name, status in zip(names, statuses, strict=True))],
            [] if comparison.comparable else [warning],
            titled_section("Settings", map(_setting_line, comparison.settings), "the same"),
            titled_section("Measured", map(_figure_line, comparison.figures)),
            titled_section("Loss at equal samples", map(_loss_line, comparison.loss)),
            titled_section("Eval loss at equal samples", map(_loss_line, comparison.eval_loss)),
            titled_section("In effect", map(_difference_line, comparison.in_effect)),
            titled_section("Versions", map(_difference_line, comparison.versions)),
            titled_section("From", map(_difference_line, comparison.code)),
        ]
    )


def _setting_line(row: ChangedSetting) -> str:
    origins = " → ".join(format_origin(origin, MAX_TEXT) for origin in (row.first_origin, row.second_origin))
    first, second = (format_value(row.name, value) or "(empty)" for value in (row.first, row.second))
    return _line(f"  {row.name}", first, second, origins)


def _figure_line(row: MeasuredFigure) -> str:
    first, second = (format_figure(value, row.unit) for value in (row.first, row.second))
    return _line(f"  {row.name}", first, second, format_ratio(row))


def _loss_line(row: LossAt) -> str:
    first, second = (format_figure(value, "") for value in (row.first, row.second))
    return _line(f"  {row.samples:,} samples", first, second, format_loss_difference(row))


def _difference_line(row: Difference) -> str:
    return _line(f"  {row.name}", format_setting(row.first, MAX_TEXT), format_setting(row.second, MAX_TEXT))


def _line(name: str, first: str, second: str, remark: str = "") -> str:
    return f"{name:<{NAME_WIDTH}} {first:<{VALUE_WIDTH}} {second:<{VALUE_WIDTH}} {remark}".rstrip()


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
    one, other = (RunReader(folder).poll() for folder in folders)
    comparison = compare(one, other)
    if as_json:
        figures = [{**asdict(figure), "ratio": figure.ratio} for figure in comparison.figures]
        print_json({"runs": [folder.id for folder in folders], **asdict(comparison), "figures": figures})
        return
    print_line(
        "\n".join(
            diff_report([folder.id for folder in folders], comparison, [one.status.sentence, other.status.sentence])
        )
    )
