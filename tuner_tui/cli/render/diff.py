"""The text of `tuner-tui diff`: both runs in columns with their ratio."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tuner_tui.runs.read.comparison import (
    ChangedSetting,
    Comparison,
    Difference,
    LossAt,
    MeasuredFigure,
    format_figure,
    format_loss_difference,
    format_origin,
    format_ratio,
    format_setting,
)
from tuner_tui.settings.fields import format_value

NAME, CELL, CUT = 30, 22, 60


def report(names: Sequence[str], found: Comparison, said: Sequence[str]) -> list[str]:
    """The whole report, line by line."""
    sections = [
        [_row("", names[0], names[1]), *(f"{name}  {sentence}" for name, sentence in zip(names, said, strict=True))],
        [] if found.comparable else ["! The two trained different jobs: compare their speed and losses with care."],
        _section("Settings", map(_setting, found.settings), "the same"),
        _section("Measured", map(_figure, found.figures)),
        _section("Loss after as many samples", map(_loss, found.loss)),
        _section("Eval loss after as many samples", map(_loss, found.eval_loss)),
        _section("In effect", map(_other, found.in_effect)),
        _section("Versions", map(_other, found.versions)),
        _section("From", map(_other, found.code)),
    ]
    return "\n\n".join("\n".join(section) for section in sections if section).split("\n")


def _section(title: str, rows: Iterable[str], none: str = "") -> list[str]:
    lines = list(rows)
    if lines:
        return [title, *lines]
    return [f"{title}: {none}"] if none else []


def _setting(row: ChangedSetting) -> str:
    origins = " → ".join(format_origin(one, CUT) for one in (row.first_origin, row.second_origin))
    first, second = (format_value(row.name, value) or "(empty)" for value in (row.first, row.second))
    return _row(f"  {row.name}", first, second, origins)


def _figure(row: MeasuredFigure) -> str:
    return _row(
        f"  {row.name}", format_figure(row.first, row.unit), format_figure(row.second, row.unit), format_ratio(row)
    )


def _loss(row: LossAt) -> str:
    return _row(
        f"  {row.samples:,} samples",
        format_figure(row.first, ""),
        format_figure(row.second, ""),
        format_loss_difference(row),
    )


def _other(row: Difference) -> str:
    return _row(f"  {row.name}", format_setting(row.first, CUT), format_setting(row.second, CUT))


def _row(name: str, first: str, second: str, more: str = "") -> str:
    return f"{name:<{NAME}} {first:<{CELL}} {second:<{CELL}} {more}".rstrip()
