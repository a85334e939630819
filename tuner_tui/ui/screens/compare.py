"""The compare screen: two runs side by side, their settings, figures and losses."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar, NamedTuple

from textual.reactive import reactive

from tuner_tui.ui.keys import COMPARE_KEYS
from tuner_tui.ui.screens.sub_screen import PanelScreen
from tuner_tui.ui.terminal.base_widgets import Canvas
from tuner_tui.view.cells import (
    GAP,
    WARN,
    Row,
    Style,
    TextSpan,
    column_widths,
    join_sections,
    line,
    side_by_side,
    table_line,
)
from tuner_tui.view.charts import two_curves

if TYPE_CHECKING:
    from textual.binding import BindingType

    from tuner_tui.runs.read.comparison import ChangedSetting, Difference, LossAt, MeasuredFigure
    from tuner_tui.ui.backend.records import ComparedRuns


TWO_COLUMNS = 112
"""Minimum width for settings and figures side by side."""
COLUMN_GAP = 3
MAX_COLUMN_WIDTHS = (26, 22, 22, 60)
PLOT_ROWS = 10
TALL_PLOT_ROWS = 14
"""Free rows below both columns that are worth a plot as wide as the screen."""
MAX_VALUE_WIDTH = 200


class ComparisonEntry(NamedTuple):
    """One line of a table: name, its value in each run, and a remark."""

    name: str
    first: str
    second: str
    more: str = ""


def compare_rows(shown: ComparedRuns | None, width: int, height: int = 0) -> list[Row]:
    """Return all rows; the plot grows into the rest of `height`."""
    if shown is None:
        return [Row(line(TextSpan("Reading both runs.", "dim")))]
    head = _head(shown, width)
    if width < TWO_COLUMNS:
        measured = join_sections([_measured(shown, width), _plot(shown, width, PLOT_ROWS)])
        return join_sections([head, _settings_section(shown, width), measured, _other_sections(shown, width)])
    half = (width - COLUMN_GAP) // 2
    left, right = join_sections([_settings_section(shown, half), _other_sections(shown, half)]), _measured(shown, half)
    tables = join_sections([head, side_by_side(left, right, half + COLUMN_GAP)])
    free = height - len(tables) - 1
    if free >= TALL_PLOT_ROWS:
        return join_sections([tables, _plot(shown, width, free)])
    shorter = min(left, right, key=len)
    shorter += [Row(()), *_plot(shown, half, max(PLOT_ROWS, height - len(head) - len(shorter) - 2))]
    return join_sections([head, side_by_side(left, right, half + COLUMN_GAP)])


def _plot(shown: ComparedRuns, width: int, height: int) -> list[Row]:
    return two_curves("loss over samples", shown.names, shown.curves, width, height)


def _head(shown: ComparedRuns, width: int) -> list[Row]:
    named = max(len(name) for name in shown.names) + GAP
    rows = [
        Row(line(TextSpan(f"{name:<{named}}", "strong"), text))
        for name, text in zip(shown.names, shown.statuses, strict=True)
    ]
    outcome = headline(shown)
    if outcome:
        whose = f"{shown.names[1]} against {shown.names[0]}: "
        whose = whose if len(whose + outcome) <= width else ""
        rows.append(Row(line(TextSpan(whose, "dim"), TextSpan(outcome, "strong"))))
    if not shown.comparison.comparable:
        text = f"{WARN} These runs trained different jobs; speed and loss may not be comparable."
        rows.append(Row(line(TextSpan(text, "warn"))))
    return rows


def headline(shown: ComparedRuns) -> str:
    """Return `tokens ×1.24 · peak memory ×1.08 · loss after 25,600 samples -0.0412`, as far as it was measured."""
    from tuner_tui.runs.read.comparison import format_loss_difference, format_ratio

    figures = {figure.name: figure for figure in shown.comparison.figures if format_ratio(figure)}
    speed = "tokens" if "tokens" in figures else "throughput"
    parts = [f"{name} {format_ratio(figures[name])}" for name in (speed, "peak memory") if name in figures]
    last = next((row for row in reversed(shown.comparison.loss) if format_loss_difference(row)), None)
    if last is not None:
        parts.append(f"loss after {last.samples:,} samples {format_loss_difference(last)}")
    return " · ".join(parts)


def _settings_section(shown: ComparedRuns, width: int) -> list[Row]:
    rows = [_setting(row) for row in shown.comparison.settings]
    return _section("Settings", shown.names, rows, width, none="identical")


def _measured(shown: ComparedRuns, width: int) -> list[Row]:
    found, names = shown.comparison, shown.names
    return join_sections(
        [
            _section("Measured", names, [_figure(row) for row in found.figures], width, aligned="lrrr"),
            _losses("Loss at equal samples", found.loss, names, width),
            _losses("Eval loss at equal samples", found.eval_loss, names, width),
        ]
    )


def _losses(title: str, found: Sequence[LossAt], names: tuple[str, str], width: int) -> list[Row]:
    return _section(title, names, [_loss(row) for row in found], width, aligned="rrrr")


def _other_sections(shown: ComparedRuns, width: int) -> list[Row]:
    found, names = shown.comparison, shown.names
    parts = (("In effect", found.in_effect), ("Versions", found.versions), ("From", found.code))
    return join_sections(_section(title, names, [_other(row) for row in rows], width) for title, rows in parts)


def _section(
    title: str,
    names: tuple[str, str],
    rows: Sequence[ComparisonEntry],
    width: int,
    none: str = "",
    aligned: str = "llll",
) -> list[Row]:
    if not rows:
        return [Row(line(TextSpan(f"{title}: ", "strong"), TextSpan(none, "dim")))] if none else []
    heading = ComparisonEntry(title, *names)
    columns = column_widths([heading, *rows], (max(MAX_COLUMN_WIDTHS[0], len(title)), *MAX_COLUMN_WIDTHS[1:]), width)
    styles: tuple[Style, ...] = ("", "", "", "dim")
    head: tuple[Style, ...] = ("strong", "dim", "dim", "dim")
    sides = "l" + aligned[1:]
    return [
        Row(table_line(heading, columns, head, sides)),
        *(Row(table_line(row, columns, styles, aligned)) for row in rows),
    ]


def _setting(row: ChangedSetting) -> ComparisonEntry:
    from tuner_tui.runs.read.comparison import format_origin
    from tuner_tui.settings.model import FIELDS, format_value

    first, second = (format_value(row.name, value) or "(empty)" for value in (row.first, row.second))
    origins = " → ".join(format_origin(one, MAX_VALUE_WIDTH) for one in (row.first_origin, row.second_origin))
    return ComparisonEntry(FIELDS[row.name].label, first, second, origins)


def _figure(row: MeasuredFigure) -> ComparisonEntry:
    from tuner_tui.runs.read.comparison import format_figure, format_ratio

    return ComparisonEntry(
        row.name, format_figure(row.first, row.unit), format_figure(row.second, row.unit), format_ratio(row)
    )


def _loss(row: LossAt) -> ComparisonEntry:
    from tuner_tui.runs.read.comparison import format_figure, format_loss_difference

    return ComparisonEntry(
        f"{row.samples:,} samples",
        format_figure(row.first, ""),
        format_figure(row.second, ""),
        format_loss_difference(row),
    )


def _other(row: Difference) -> ComparisonEntry:
    from tuner_tui.runs.read.comparison import format_setting

    return ComparisonEntry(
        row.name, format_setting(row.first, MAX_VALUE_WIDTH), format_setting(row.second, MAX_VALUE_WIDTH)
    )


class ComparisonPanel(Canvas, can_focus=True):
    """Shows `compared`; None while the runs are being read."""

    REDRAW_ON = ("compared",)

    compared: reactive[ComparedRuns | None] = reactive(None, repaint=False)

    def rows(self, width: int, height: int) -> Sequence[Row]:
        return compare_rows(self.compared, width, height)


COMPARE_GLOSSARY = (
    ("×", "the later run's figure divided by the earlier run's"),
    ("same number of samples", "losses after the same number of samples, as steps of different batch sizes differ"),
    ("throughput, tokens", "average over the training, without evaluation and saving"),
)


class CompareScreen(PanelScreen):
    """Shows `compared`, which the app sets."""

    BINDINGS: ClassVar[list[BindingType]] = [*COMPARE_KEYS]
    HELP_KEYS = COMPARE_KEYS
    GLOSSARY = COMPARE_GLOSSARY

    panel: ComparisonPanel
    compared: reactive[ComparedRuns | None] = reactive(None, init=False, repaint=False)

    def __init__(self, names: tuple[str, str]) -> None:
        super().__init__(ComparisonPanel(), _title(names))

    def watch_compared(self, compared: ComparedRuns | None) -> None:
        self.panel.compared = compared
        if compared is not None:
            self.set_panel_title(self.panel, _title(compared.names))


def _title(names: tuple[str, str]) -> str:
    return f"Compare · {names[0]} and {names[1]}"
