"""Two runs side by side: what was set differently beside what came of it, and both losses over the samples seen."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from tuner_tui.ui.drawing.cells import Row, Run, Style, line
from tuner_tui.ui.drawing.marks import WARN
from tuner_tui.ui.drawing.tables import GAP, beside, cells, widths
from tuner_tui.ui.drawing.two_curves import two_curves

if TYPE_CHECKING:
    from tuner_tui.runs.read.comparison import ChangedSetting, Difference, LossAt, MeasuredFigure
    from tuner_tui.ui.backend.runs import ComparedRuns

TWO_COLUMNS = 112
"""From this width on settings and figures stand side by side."""
BETWEEN = 3
MOST = (26, 22, 22, 60)
PLOT_ROWS, MOST_PLOT_ROWS, MOST_PLOT_WIDTH = 10, 20, 100
LONGEST = 200


class Entry(NamedTuple):
    """One line of a table: what it is, its value in each run, and what is to be said of the two."""

    name: str
    first: str
    second: str
    more: str = ""


def compare_rows(shown: ComparedRuns | None, width: int, height: int = 0) -> list[Row]:
    """The whole picture, of as many rows as it takes; the plot grows into what is left of `height`."""
    if shown is None:
        return [Row(line(Run("Reading both runs.", "dim")))]
    head = _head(shown, width)
    if width < TWO_COLUMNS:
        came = _joined([_came(shown, width), _plot(shown, width, PLOT_ROWS)])
        return _joined([head, _set(shown, width), came, _else(shown, width)])
    half = (width - BETWEEN) // 2
    left, right = _joined([_set(shown, half), _else(shown, half)]), _came(shown, half)
    shorter = min(left, right, key=len)
    shorter += [Row(()), *_plot(shown, half, max(PLOT_ROWS, height - len(head) - len(shorter) - 2))]
    return _joined([head, beside(left, right, half + BETWEEN)])


def _joined(blocks: Iterable[Sequence[Row]]) -> list[Row]:
    rows: list[Row] = []
    for block in blocks:
        rows += [Row(()), *block] if rows and block else block
    return rows


def _plot(shown: ComparedRuns, width: int, height: int) -> list[Row]:
    room = min(width, MOST_PLOT_WIDTH), min(height, MOST_PLOT_ROWS)
    return two_curves("loss over samples", shown.names, shown.curves, *room)


def _head(shown: ComparedRuns, width: int) -> list[Row]:
    named = max(len(name) for name in shown.names) + GAP
    rows = [
        Row(line(Run(f"{name:<{named}}", "strong"), said)) for name, said in zip(shown.names, shown.said, strict=True)
    ]
    outcome = headline(shown)
    if outcome:
        whose = f"{shown.names[1]} against {shown.names[0]}: "
        whose = whose if len(whose + outcome) <= width else ""
        rows.append(Row(line(Run(whose, "dim"), Run(outcome, "strong"))))
    if not shown.found.comparable:
        said = f"{WARN} The two trained different jobs: compare their speed and losses with care."
        rows.append(Row(line(Run(said, "warn"))))
    return rows


def headline(shown: ComparedRuns) -> str:
    """`tokens ×1.24 · peak memory ×1.08 · loss after 25,600 samples -0.0412`; empty where nothing was measured."""
    from tuner_tui.runs.read.comparison import format_loss_difference, format_ratio

    figures = {figure.name: figure for figure in shown.found.figures if format_ratio(figure)}
    speed = "tokens" if "tokens" in figures else "throughput"
    parts = [f"{name} {format_ratio(figures[name])}" for name in (speed, "peak memory") if name in figures]
    last = next((row for row in reversed(shown.found.loss) if format_loss_difference(row)), None)
    if last is not None:
        parts.append(f"loss after {last.samples:,} samples {format_loss_difference(last)}")
    return " · ".join(parts)


def _set(shown: ComparedRuns, width: int) -> list[Row]:
    rows = [_setting(row) for row in shown.found.settings]
    return _section("Settings", shown.names, rows, width, none="the same in both")


def _came(shown: ComparedRuns, width: int) -> list[Row]:
    """What came of it: figures and losses."""
    found, names = shown.found, shown.names
    return _joined(
        [
            _section("Measured", names, [_figure(row) for row in found.figures], width, aligned="lrrr"),
            _losses("Loss after as many samples", found.loss, names, width),
            _losses("Eval loss after as many samples", found.eval_loss, names, width),
        ]
    )


def _losses(title: str, found: Sequence[LossAt], names: tuple[str, str], width: int) -> list[Row]:
    return _section(title, names, [_loss(row) for row in found], width, aligned="rrrr")


def _else(shown: ComparedRuns, width: int) -> list[Row]:
    found, names = shown.found, shown.names
    parts = (("In effect", found.in_effect), ("Versions", found.versions), ("From", found.code))
    return _joined(_section(title, names, [_other(row) for row in rows], width) for title, rows in parts)


def _section(
    title: str, names: tuple[str, str], rows: Sequence[Entry], width: int, none: str = "", aligned: str = "llll"
) -> list[Row]:
    if not rows:
        return [Row(line(Run(f"{title}: ", "strong"), Run(none, "dim")))] if none else []
    heading = Entry(title, *names)
    columns = widths([heading, *rows], (max(MOST[0], len(title)), *MOST[1:]), width)
    styles: tuple[Style, ...] = ("", "", "", "dim")
    head: tuple[Style, ...] = ("strong", "dim", "dim", "dim")
    sides = "l" + aligned[1:]
    return [Row(cells(heading, columns, head, sides)), *(Row(cells(row, columns, styles, aligned)) for row in rows)]


def _setting(row: ChangedSetting) -> Entry:
    from tuner_tui.runs.read.comparison import format_origin
    from tuner_tui.settings.fields import FIELDS, format_value

    first, second = (format_value(row.name, value) or "(empty)" for value in (row.first, row.second))
    origins = " → ".join(format_origin(one, LONGEST) for one in (row.first_origin, row.second_origin))
    return Entry(FIELDS[row.name].label, first, second, origins)


def _figure(row: MeasuredFigure) -> Entry:
    from tuner_tui.runs.read.comparison import format_figure, format_ratio

    return Entry(row.name, format_figure(row.first, row.unit), format_figure(row.second, row.unit), format_ratio(row))


def _loss(row: LossAt) -> Entry:
    from tuner_tui.runs.read.comparison import format_figure, format_loss_difference

    return Entry(
        f"{row.samples:,} samples",
        format_figure(row.first, ""),
        format_figure(row.second, ""),
        format_loss_difference(row),
    )


def _other(row: Difference) -> Entry:
    from tuner_tui.runs.read.comparison import format_setting

    return Entry(row.name, format_setting(row.first, LONGEST), format_setting(row.second, LONGEST))
