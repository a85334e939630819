"""Two runs compared: their settings, figures and losses."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import takewhile
from typing import Any, NamedTuple

from tuner_tui.core.text import format_observed
from tuner_tui.core.units import format_size
from tuner_tui.runs.read.comparison import (
    UNKNOWN_KIND,
    ChangedSetting,
    Comparison,
    Difference,
    LossAt,
    MeasuredFigure,
    compare,
    find_differences,
    format_figure,
    format_loss_difference,
    format_ratio,
    over_samples,
    samples_a_step,
)
from tuner_tui.runs.read.reader import RunView
from tuner_tui.settings.model import FIELDS, format_value
from tuner_tui.view.cells import (
    GAP,
    WARN,
    Line,
    Style,
    TextSpan,
    column_widths,
    flowing_rows,
    join_sections,
    line,
    line_width,
    shorten,
    side_by_side,
    table_line,
    text_width,
    wrapped_rows,
)
from tuner_tui.view.charts import Axes, Curve, Pattern, curve_rows, legend
from tuner_tui.view.loss_chart import smooth
from tuner_tui.view.number_format import EQUAL_SPEED, metric, significant
from tuner_tui.view.run_rows import outcome_sentence, speed_against
from tuner_tui.view.settings_form import KNOBS

TWO_COLUMNS = 112
"""Minimum width for settings and figures side by side."""
COLUMN_GAP = 3
MAX_COLUMN_WIDTHS, LEAST_REMARK = (26, 22, 22, 60), 20
PLOT_COLUMNS, PLOT_ROWS = 21, 10
MAX_VALUE_WIDTH = 200
HOW_PASSED = frozenset({"apply", "dialect", "kind"})


class ComparisonScene(NamedTuple):
    """Two runs, the older one first: ids, a status sentence for each, differences, and points of samples and loss.

    `live`: one of them still trains.
    """

    names: tuple[str, str]
    statuses: tuple[str, str]
    comparison: Comparison
    curves: tuple[Sequence[tuple[float, float]], Sequence[tuple[float, float]]] = ((), ())
    live: bool = False


RUN_STYLES: tuple[Style, Style] = ("dim", "curve")
"""Of the names, the values and the curves of the two runs."""
RUN_PATTERNS: tuple[Pattern, Pattern] = ("dotted", "line")
MORE_IS_BETTER = {
    "throughput": True, "tokens": True, "data wait": False, "padding": False, "peak memory": False,
    "step time": False, "eval_loss": False,
}  # fmt: skip
"""Of figures that are better or worse whatever else differs."""
SPEEDS = ("throughput", "tokens", "step time", "data wait")
"""Of those the ones that depend on the machine's load."""


class Entry(NamedTuple):
    """A line of a table: name, its value in each run, and a remark."""

    name: str
    first: str
    second: str
    remark: str
    tone: Style = ""


def compare_views(first: tuple[str, RunView], second: tuple[str, RunView], doubt: str = "") -> ComparisonScene:
    """Compare a run with a later one; each is given by its id and its view."""
    (name, before), (later_name, after) = first, second
    return ComparisonScene(
        (name, later_name),
        (_status_sentence(before), _status_sentence(after)),
        compare(before, after, doubt),
        (
            tuple(over_samples(before.history.loss, samples_a_step(before))),
            tuple(over_samples(after.history.loss, samples_a_step(after))),
        ),
        before.status.live or after.status.live,
    )


def _status_sentence(view: RunView) -> str:
    limit_bytes = None if view.record is None else view.record.memory_limit_bytes
    return outcome_sentence(view.state, limit_bytes) or view.status.sentence


def comparison_rows(scene: ComparisonScene | None, width: int, height: int = 0) -> list[Line]:
    """Return all rows, or that the runs are still read; the plot grows into the rest of `height`.

    Settings and figures stand side by side where one below the other has no room, or where no value is cut by it.
    """
    if scene is None:
        return [line(TextSpan("reading both runs …", "dim"))]
    head, settings = _head(scene, width), _settings_section(scene, width)
    measured, others = _measured(scene, width), _other_sections(scene, width)
    free = height - len(join_sections([head, settings, measured, others])) - 1
    plot = _plot(scene, width, max(PLOT_ROWS, free))
    half = (width - COLUMN_GAP) // 2
    needed = max(line_width(row) for row in _settings_section(scene, width, origins=False) or [()])
    right = _measured(scene, max(half, width - COLUMN_GAP - needed))
    room = width - COLUMN_GAP - max((line_width(row) for row in right), default=half)
    cut = needed > room
    if width < TWO_COLUMNS or (cut and free >= PLOT_ROWS):
        return join_sections([head, settings, measured, plot, others])
    left = join_sections([_settings_section(scene, room), _other_sections(scene, room)])
    if len(left) + PLOT_ROWS < len(right) and room >= PLOT_COLUMNS:
        rows = max(len(right), height - len(head) - 1)
        left = join_sections([left, _plot(scene, room, rows - len(left) - 1)])
        return join_sections([head, side_by_side(left, right, room + COLUMN_GAP)])
    tables = join_sections([head, side_by_side(left, right, room + COLUMN_GAP)])
    return join_sections([tables, _plot(scene, width, max(PLOT_ROWS, height - len(tables) - 1))])


def _plot(scene: ComparisonScene, width: int, height: int) -> list[Line]:
    curves = tuple(
        Curve(name, xs := tuple(x for x, _ in curve), smooth(xs, tuple(y for _, y in curve)), style, pattern)
        for name, curve, style, pattern in zip(scene.names, scene.curves, RUN_STYLES, RUN_PATTERNS, strict=True)
    )
    if width < PLOT_COLUMNS or all(len(curve.xs) < 2 for curve in curves):
        return []
    axes = Axes(significant, max(x for curve in curves for x in curve.xs), "samples")
    return list(curve_rows(legend("Loss over samples", curves, width), curves, axes, width, height))


def _head(scene: ComparisonScene, width: int) -> list[Line]:
    """Return the verdict on the second run, what came of each, and what the colours mean."""
    named = max(len(name) for name in scene.names) + GAP
    problems = scene.comparison.loss_problems
    rows: list[Line] = []
    for name, text, problem, style in zip(scene.names, scene.statuses, problems, RUN_STYLES, strict=True):
        parts = " · ".join(filter(None, (text.rstrip("."), problem)))
        outcome = wrapped_rows(parts, width - named, "warn" if problem else "")
        rows += side_by_side([line(TextSpan(name, style))], outcome, named)
    verdict = [] if scene.comparison.doubt else _verdict(scene)
    if verdict:
        rows[:0] = flowing_rows((line(part, "," if part is not verdict[-1] else ".") for part in verdict), width, " ")
        legend = line(TextSpan("better", "good"), TextSpan(" or ", "dim"), TextSpan("worse", "warn"))
        rows.append(line(*legend, TextSpan(f" in {scene.names[1]}; equal values are left out", "dim")))
    if scene.comparison.doubt:
        rows[:0] = wrapped_rows(f"{WARN} Compare with care: {scene.comparison.doubt}.", width, "warn")
    return rows


def _verdict(scene: ComparisonScene) -> list[TextSpan]:
    """Return the parts of `r008 is 1.7× faster than r007, its peak memory 5.7 GiB higher, its loss the same`.

    A figure that one of them has not measured is left out.
    """
    first, second = scene.names
    figures = {figure.name: figure for figure in scene.comparison.figures if format_ratio(figure)}
    last = next(reversed(scene.comparison.loss), None)
    speed, peak = figures.get("tokens") or figures.get("throughput"), figures.get("peak memory")
    parts: list[tuple[str, MeasuredFigure | LossAt, bool]] = []
    if speed is not None and speed.ratio is not None:
        same = abs(speed.ratio - 1) < EQUAL_SPEED
        words = f"is {speed_against(speed.ratio, first).text}"
        alike = _is_alike(scene.comparison)
        if alike and not same:
            words += " with the same settings (the difference comes from the machine's load)"
        parts.append((words, speed, same or alike))
    if peak is not None and peak.first is not None and peak.second is not None:
        more = peak.second - peak.first
        same = abs(more) < EQUAL_PEAK * peak.first
        words = "the same" if same else f"{format_size(abs(more))} {'higher' if more > 0 else 'lower'}"
        parts.append((f"its peak memory {words}", peak, same))
    problems = scene.comparison.loss_problems
    if last is not None and last.first is not None and last.second is not None and not any(problems):
        more = last.second - last.first
        same = abs(more) <= 2 * scene.comparison.loss_noise
        words = "the same within noise" if same else f"{metric(abs(more))} {'higher' if more > 0 else 'lower'}"
        parts.append((f"its loss after {last.samples:,} samples {words}", last, same))
    subject = f"{second} " if speed in [row for _, row, _ in parts] else f"{second} against {first}: "
    spans = [
        TextSpan(f"{'' if at else subject}{text}", "strong" if same else _tone(scene.comparison, row) or "strong")
        for at, (text, row, same) in enumerate(parts)
    ]
    broken = zip(scene.names, problems, strict=True)
    return spans + [TextSpan(f"the {problem} of {name}", "warn") for name, problem in broken if problem]


def _is_alike(comparison: Comparison) -> bool:
    """Whether nothing that is recorded of the runs differs: then speed says something of the machine's load only."""
    changes = comparison.settings, comparison.environment, comparison.in_effect, comparison.versions, comparison.code
    return not comparison.doubt and not any(changes)


EQUAL_PEAK = 0.01
"""Peaks that differ by a smaller share are called the same."""


def _tone(comparison: Comparison, row: MeasuredFigure | LossAt) -> Style:
    """Return whether the second value is better or worse; neither within noise or where it depends on other things."""
    first, second, more = row.first, row.second, False
    if first is None or second is None or comparison.doubt:
        return ""
    noise = 2 * comparison.loss_noise
    if isinstance(row, MeasuredFigure):
        noise = EQUAL_SPEED * abs(first)
        if row.name not in MORE_IS_BETTER or (row.name in SPEEDS and _is_alike(comparison)):
            return ""
        more = MORE_IS_BETTER[row.name]
    return "" if abs(second - first) <= noise else "good" if (second > first) == more else "warn"


def _settings_section(scene: ComparisonScene, width: int, origins: bool = True) -> list[Line]:
    # What a command names may differ without being known as a setting.
    is_same = all(scene.comparison.observed) and not any(row.name == "job" for row in scene.comparison.code)
    none = "identical" if is_same else "no known difference"
    entries = (*map(_setting, scene.comparison.settings), *map(_variable, scene.comparison.environment))
    shown = [entry if origins else entry._replace(remark="") for entry in entries if UNKNOWN_KIND not in entry]
    unknown = ", ".join(entry.name for entry in entries if UNKNOWN_KIND in entry)
    rows = _section("Settings", scene, shown, width, none="" if unknown else none)
    return rows + (wrapped_rows(f"unknown in one of them: {unknown}", width, "dim") if unknown else [])


def _measured(scene: ComparisonScene, width: int) -> list[Line]:
    comparison = scene.comparison
    # Steps of different batches cannot be compared.
    batch_differs = any(setting.name in KNOBS[:2] for setting in comparison.settings)
    rows = (row for row in comparison.figures if not (batch_differs and row.name == "step time"))
    figures = [_figure(comparison, row) for row in rows]
    loss = partial(_loss, comparison)
    return join_sections(
        [
            _section("Measured", scene, (each for each in figures if each.first != each.second), width, aligned="lrrr"),
            _section("Loss at equal samples", scene, map(loss, comparison.loss), width, aligned="rrrr"),
            _section("Eval loss at equal samples", scene, map(loss, comparison.eval_loss), width, aligned="rrrr"),
        ]
    )


def _other_sections(scene: ComparisonScene, width: int) -> list[Line]:
    comparison = scene.comparison
    silent = [name for name, observed in zip(scene.names, comparison.observed, strict=True) if not observed]
    none = f"unknown for {' and '.join(silent)}" if silent else ""
    parts = (("In effect", comparison.in_effect), ("Versions", comparison.versions), ("From", comparison.code))
    return join_sections(
        _section(title, scene, _others(rows), width, none if title == "In effect" else "") for title, rows in parts
    )


def _section(
    title: str, scene: ComparisonScene, entries: Iterable[Entry], width: int, none: str = "", aligned: str = "llll"
) -> list[Line]:
    rows = list(entries)
    if not rows:
        text = TextSpan(shorten(none, width - len(title) - 2), "dim")
        return [line(TextSpan(f"{title}: ", "strong"), text)] if none else []
    heading = (title, *scene.names, "")
    texts = [(row.name, row.first, row.second, row.remark) for row in rows]
    most = (max(MAX_COLUMN_WIDTHS[0], len(title)), *MAX_COLUMN_WIDTHS[1:])
    columns = column_widths([(*heading[:3], ""), *((*text[:3], "") for text in texts)], most, width)
    # A remark is shortened before any value is, and left out where it would say nothing.
    remark, rest = max(text_width(text[3]) for text in texts), width - sum(columns) - GAP * 3
    columns[3] = min(remark, most[3], rest) if rest >= min(remark, LEAST_REMARK) else 0
    lines = [table_line(heading, columns, ("strong", *RUN_STYLES, "dim"), "l" + aligned[1:])]
    for row, cells in zip(rows, texts, strict=True):
        styles: tuple[Style, ...] = ("", RUN_STYLES[0], row.tone or RUN_STYLES[1], row.tone or "dim")
        lines.append(table_line(cells, columns, styles, aligned))
    return lines


def _setting(row: ChangedSetting) -> Entry:
    sides = ((row.first, row.first_origin), (row.second, row.second_origin))
    first, second = (
        UNKNOWN_KIND if origin.kind == UNKNOWN_KIND else format_value(row.name, value) or "none"
        for value, origin in sides
    )
    # A recommendation is named without its reasons, which are long, a remedy without the id of its cause.
    names = (
        origin.kind if origin.kind in ("recommended", "remedy") else f"{origin.kind} {origin.name}"
        for _, origin in sides
    )
    origins = " → ".join(dict.fromkeys(shorten(name.rstrip(), MAX_VALUE_WIDTH) for name in names))
    return Entry(FIELDS[row.name].label, first, second, origins)


def _variable(row: Difference) -> Entry:
    first, second = (shorten(value or "not set", MAX_VALUE_WIDTH) for value in (row.first, row.second))
    return Entry(row.name, first, second, "variable")


def _figure(comparison: Comparison, row: MeasuredFigure) -> Entry:
    first, second = format_figure(row.first, row.unit), format_figure(row.second, row.unit)
    return Entry(row.name.replace("_", " "), first, second, format_ratio(row), _tone(comparison, row))


def _loss(comparison: Comparison, row: LossAt) -> Entry:
    first, second = (format_figure(value, "") for value in (row.first, row.second))
    return Entry(f"{row.samples:,} samples", first, second, format_loss_difference(row), _tone(comparison, row))


def _others(rows: Iterable[Difference]) -> Iterator[Entry]:
    """Of the parts of a job those that differ."""
    for row in rows:
        if isinstance(row.first, Mapping) and isinstance(row.second, Mapping):
            yield from _others(find_differences(row.first, row.second))
        elif row.name not in HOW_PASSED and (row.first or row.second):  # None and off say nothing
            values = _from_difference(row.first, row.second)
            first, second = (shorten(format_observed(value), MAX_VALUE_WIDTH) for value in values)
            yield Entry(row.name.replace("_", " "), first, second, "")


def _from_difference(first: Any, second: Any) -> tuple[Any, Any]:
    """Both values; of two commands the words from the first that differs, which may stand at the end of a long line."""
    if not isinstance(first or second, (list, tuple)):
        return first, second
    commands = [list(map(str, words or ())) for words in (first, second)]
    same = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(*commands, strict=False)))
    before, after = (" ".join(["…"] * bool(same) + words[same:]) for words in commands)
    return before or None, after or None
