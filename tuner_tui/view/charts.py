"""Bars, block charts, braille plots and scatter plots as lines of text."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import chain, pairwise
from typing import TYPE_CHECKING, NamedTuple

from tuner_tui.core.units import format_short_duration
from tuner_tui.view.cells import (
    LABEL,
    Line,
    Row,
    Style,
    TextSpan,
    align_left,
    align_right,
    fit,
    labelled_row,
    line,
    shorten,
    text_width,
)
from tuner_tui.view.number_format import significant
from tuner_tui.view.sample_history import BUCKET_S

if TYPE_CHECKING:
    from tuner_tui.hardware.sample import Sample
    from tuner_tui.runs.events.history import Series

# A cell is drawn in eighths. Blank means "not known": zero is the lowest block, so that an idle GPU and a GPU that was
# not sampled look different.
LEVELS = " ▁▂▃▄▅▆▇█"
BLOCK_STEPS = len(LEVELS) - 1


def quantise(value: float | None, full: float, steps: int) -> int:
    """Return `value` on a scale of 0 to `steps`, where `full` is `steps`: at least 1 if positive, 0 if unknown."""
    if value is None or full <= 0 or value <= 0:
        return 0
    return max(1, min(steps, round(value / full * steps)))


def blocks(values: Iterable[float | None], full: float) -> str:
    """Return one block character per value: the lowest for 0, blank for unknown values, never up to the row above."""
    return "".join(" " if value is None else LEVELS[max(1, quantise(value, full, BLOCK_STEPS - 1))] for value in values)


@lru_cache(maxsize=128)
def tall_blocks(values: tuple[float | None, ...], full: float, height: int) -> tuple[str, ...]:
    """Return a column chart of `height` lines, top line first. A full column leaves a gap to the row above."""
    # Each value becomes a height in eighths of a cell over all rows; a row then shows what is left of that height above
    # its own foot, cut to 0 to 8. One eighth less than the whole chart keeps full columns of two charts apart.
    heights = [0 if value is None else max(1, quantise(value, full, BLOCK_STEPS * height - 1)) for value in values]
    return tuple(
        "".join(LEVELS[max(0, min(BLOCK_STEPS, tall - BLOCK_STEPS * line))] for tall in heights)
        for line in reversed(range(height))
    )


def gauge(part: float | None, width: int, style: Style) -> Line:
    """Return a bar filled by `part` (0 to 1) in steps of half a cell, the rest a thin line; None fills nothing."""
    return half_cell_bar(quantise(part, 1.0, width * 2), width, style)


def half_cell_bar(halves: int, width: int, style: Style) -> Line:
    """Return a bar of `width` cells, at most `halves` half cells of it filled: heavy in `style`, the rest thin, dim."""
    whole, half = divmod(min(halves, 2 * width), 2)
    return line(TextSpan("━" * whole + "╸" * half, style), TextSpan("─" * max(0, width - whole - half), "dim"))


def run_curve(series: Series, total: float | None, width: int) -> str:
    """Return `series` as `width` blocks on the axis of a run of `total` steps; blank where there are no values."""
    columns = run_columns(series, total, width)
    known = [value for value in columns if value is not None]
    if not known:
        return " " * max(0, width)
    low, high = axis_range(known)
    return "".join(_block(value, low, high) for value in columns)


def _block(value: float | None, low: float, high: float) -> str:
    if value is None:
        return " "
    return LEVELS[1 + round((value - low) / (high - low) * (BLOCK_STEPS - 1))] if high > low else LEVELS[1]


def run_columns(series: Series, total: float | None, width: int) -> list[float | None]:
    """Return the mean of each column; an empty column between two others repeats the one before."""
    points = [(x, y) for x, y in zip(series.xs, series.ys, strict=True) if y is not None and math.isfinite(y)]
    if not points or width < 1:
        return [None] * max(0, width)
    whole = axis_end(points[-1][0], total)
    gathered: list[list[float]] = [[] for _ in range(width)]
    for x, y in points:
        gathered[min(width - 1, int(x / whole * width))].append(y)
    return _column_means(gathered)


def _column_means(gathered: Sequence[Sequence[float]]) -> list[float | None]:
    # Losses are logged every so many steps: where the columns are narrower than that, every other one is empty.
    # Repeating the value before closes these holes. Nothing is repeated after the last value: the run has not come so
    # far.
    last = max(index for index, values in enumerate(gathered) if values)
    columns: list[float | None] = []
    for index, values in enumerate(gathered):
        before = columns[-1] if columns and index <= last else None
        columns.append(sum(values) / len(values) if values else before)
    return columns


def axis_range(ys: Sequence[float]) -> tuple[float, float]:
    """Return the ends of an axis for `ys`, rounded outwards to halves of their span at most.

    A new end moves the whole curve, which costs bytes: a falling loss does so a few times, not with each point.
    """
    low, high = min(ys), max(ys)
    half = (high - low) / 2
    step = round_down(half) if half else 0.0
    if not step:  # all alike, or so near to it that no number lies between
        room = abs(low) * 0.1
        return (low - room, high + room) if room else (low, low + 1.0)
    return math.floor(low / step) * step, math.ceil(high / step) * step


def round_down(value: float) -> float:
    """Return the largest of 1, 2 and 5 times a power of ten that is at most `value`, which is positive."""
    power = 10.0 ** math.floor(math.log10(value))
    return max(factor * power for factor in (1, 2, 5) if factor == 1 or factor * power <= value)


AXIS_WIDTH = 9
ROOM_FOR_MIDDLE = 5
"""Rows of a plot from which its y axis has a label in the middle."""
BRAILLE = 0x2800
DOTS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))
"""Bits of the dots of a braille character, by row and column."""


class Plot(NamedTuple):
    """A titled series and the format of its numbers. With `from_zero` the y axis starts at zero.

    `shows_newest`: the heading shows the last point. Not where that is a mean and the exact figure stands elsewhere.
    `last_step`: where the x axis ends at most.
    """

    title: str
    series: Series
    number: Callable[[float | None], str]
    from_zero: bool = False
    shows_newest: bool = True
    last_step: float | None = None


@lru_cache(maxsize=16)
def plot_rows(plot: Plot, width: int, height: int) -> tuple[Row, ...]:
    """Return `height` rows: heading, curve, and the ends of both axes."""
    xs, ys, number = plot.series.xs, plot.series.ys, plot.number
    points = [(x, y) for x, y in zip(xs, ys, strict=True) if y is not None and math.isfinite(y)]
    newest = number(points[-1][1]) if points else number(None)
    heading = Row(line(TextSpan(plot.title, "strong"), f"  {newest}" if plot.shows_newest else ""))
    if height < 4 or width < AXIS_WIDTH + 8:
        return (heading,)[:height]
    body = height - 2
    if len(points) < 2:
        return (heading, Row(line(TextSpan("no points yet", "dim"))), *[Row(())] * body)
    low, high = axis_range([y for _, y in points] + ([0.0] if plot.from_zero else []))
    end = axis_end(points[-1][0], plot.last_step)
    curve = braille_curve(points, (0.0, end), (low, high), width - AXIS_WIDTH - 1, body)
    labels = {0: number(high), body - 1: number(low)}
    if body >= ROOM_FOR_MIDDLE:
        labels[(body - 1) // 2] = number(high - (high - low) * ((body - 1) // 2) / (body - 1))
    axis = [align_right(labels.get(y, ""), AXIS_WIDTH) + ("┤" if y in labels else "│") for y in range(body)]
    rows = [Row(line(TextSpan(tick, "dim"), TextSpan(text, "curve"))) for tick, text in zip(axis, curve, strict=True)]
    return (heading, *rows, _plot_foot(end, width))


def axis_end(last: float, total: float | None) -> float:
    """Return the end of the x axis: round, twice the last step or less, and at most the `total` of the run.

    A short history is drawn wide, and a growing one moves only when it reaches the end.
    """
    end = 1.0 if last <= 1 else next(end for end in _round_numbers(last) if end >= last)
    return min(end, total) if total and total >= last else end


def _round_numbers(value: float) -> Iterator[float]:
    """Yield the round numbers from about `value` up."""
    power = 10.0 ** math.floor(math.log10(value))
    return (factor * power for factor in (1, 2, 3, 5, 10, 20))


def _plot_foot(end: float, width: int) -> Row:
    """Return the labels of the x axis: its ends, and its middle where there is room."""
    room = max(0, width - AXIS_WIDTH - 1)
    last, middle = f"step {end:,.0f}", f"{end / 2:,.0f}"
    left = "0"
    if room >= 3 * len(last) and end >= 2:
        left = align_left(left, room // 2 - len(middle) // 2) + middle
    return Row(line(TextSpan(" " * (AXIS_WIDTH + 1) + left + align_right(last, max(0, room - len(left))), "dim")))


def braille_curve(
    points: Sequence[tuple[float, float]],
    x_span: tuple[float, float],
    y_span: tuple[float, float],
    width: int,
    height: int,
) -> list[str]:
    """Return the curve through `points` as `height` lines of `width` cells, top line first."""
    # A braille character has 2 × 4 dots: the curve is placed on a grid of twice the columns and four times the lines,
    # and each of its dots sets one bit of the character that holds it.
    cells = [[0] * width for _ in range(height)]
    for x, y in _curve_dots(points, x_span, y_span, width * 2, height * 4):
        cells[y // 4][x // 2] |= DOTS[y % 4][x % 2]
    return ["".join(chr(BRAILLE + bits) if bits else " " for bits in row) for row in cells]


def _curve_dots(
    points: Sequence[tuple[float, float]],
    x_span: tuple[float, float],
    y_span: tuple[float, float],
    columns: int,
    lines: int,
) -> list[tuple[int, int]]:
    # Between neighbouring points as many dots are set as the longer of both distances has places, so a steep part has
    # no holes. A point of its own is a dot.
    placed = [(_dot_index(x, x_span, columns), lines - 1 - _dot_index(y, y_span, lines)) for x, y in points]
    dots = placed[:1]
    for (x0, y0), (x1, y1) in pairwise(placed):
        steps = max(abs(x1 - x0), abs(y1 - y0), 1)
        dots += [(x0 + round((x1 - x0) * i / steps), y0 + round((y1 - y0) * i / steps)) for i in range(1, steps + 1)]
    return dots


def _dot_index(value: float, span: tuple[float, float], places: int) -> int:
    whole = span[1] - span[0]
    return max(0, min(places - 1, int((value - span[0]) / whole * places))) if whole else 0


Points = Sequence[tuple[float, float]]
DOTTED_BITS = 0x47
"""The left dots of a cell: a curve drawn with only these looks dotted."""
TWO_CURVES_MIN_WIDTH = AXIS_WIDTH + 12


def two_curves(title: str, names: tuple[str, str], curves: tuple[Points, Points], width: int, height: int) -> list[Row]:
    """Return `height` rows: heading, both curves on common axes, end of the x axis; none without two points."""
    if width < TWO_CURVES_MIN_WIDTH or height < 4 or not any(len(curve) > 1 for curve in curves):
        return []
    points = list(chain(*curves))
    low, high = axis_range([y for _, y in points])
    last = max(x for x, _ in points)
    end = axis_end(last, last)
    body, room = height - 2, width - AXIS_WIDTH - 1
    dotted, through = (
        braille_curve(curve, (0.0, end), (low, high), room, body) if curve else [" " * room] * body for curve in curves
    )
    labels = {0: significant(high), body - 1: significant(low)}
    rows = [
        Row(line(TextSpan(align_right(labels.get(y, ""), AXIS_WIDTH) + "│", "dim"), *_overlay(dotted[y], through[y])))
        for y in range(body)
    ]
    foot = " " * (AXIS_WIDTH + 1) + "0" + align_right(f"{end:,.0f} samples", room - 1)
    return [_two_curves_heading(title, names, width), *rows, Row(line(TextSpan(foot, "dim")))]


def _two_curves_heading(title: str, names: tuple[str, str], width: int) -> Row:
    first, second = (shorten(name, (width - text_width(title)) // 2 - 8) for name in names)
    legend = TextSpan(f"   ⠁⠁ {first}", "dim"), TextSpan(f"   ⠒⠒ {second}", "curve")
    return Row(fit(line(TextSpan(title, "strong"), *legend), width))


def _overlay(dotted: str, through: str) -> list[TextSpan]:
    return [_overlay_cell(one, other) for one, other in zip(dotted, through, strict=True)]


def _overlay_cell(dotted: str, through: str) -> TextSpan:
    """Return both curves of a cell merged in the colour of the second; a cell of the first alone is dotted and dim."""
    # A cell has one colour. Where both curves pass through it the second one gives the colour, because the first can
    # still be told apart by its missing dots.
    if through != " ":
        return TextSpan(chr(BRAILLE | (_braille_bits(dotted) & DOTTED_BITS) | _braille_bits(through)), "curve")
    sparse = _braille_bits(dotted) & DOTTED_BITS
    return TextSpan(chr(BRAILLE | sparse) if sparse else " ", "dim")


def _braille_bits(cell: str) -> int:
    return 0 if cell == " " else ord(cell) - BRAILLE


SCATTER_MIN_WIDTH, SCATTER_MIN_HEIGHT = AXIS_WIDTH + 10, 5
LEAST_TOP = 1e-12
"""Smaller values count as zero: an axis for them could not be divided."""


class ScatterPoint(NamedTuple):
    """One mark. Of several in one cell the one with the highest `rank` is shown."""

    x: float
    y: float
    mark: str = "•"
    style: Style = ""
    rank: int = 0


class ScatterPlot(NamedTuple):
    """Points over a logarithmic x axis; the y axis starts at zero.

    `ends` are those of the x axis, `top` that of the y axis where it is known; `limit` is drawn across at its height,
    with `limit_words`.
    """

    title: str
    points: Sequence[ScatterPoint]
    number: Callable[[float | None], str]
    foot: str
    ends: tuple[float, float]
    top: float | None = None
    limit: float | None = None
    limit_words: str = ""


def scatter_rows(shown: ScatterPlot, width: int, height: int) -> list[Row]:
    """Return `height` rows: heading, points, and the ends of both axes."""
    heading = Row(fit(line(TextSpan(shown.title, "strong")), width))
    if width < SCATTER_MIN_WIDTH or height < SCATTER_MIN_HEIGHT:
        return [heading][:height]
    body, room = height - 2, width - AXIS_WIDTH - 1
    points = [point for point in shown.points if math.isfinite(point.y)]
    if not points:
        return [heading, Row(line(TextSpan("no values yet", "dim"))), *[Row(())] * body]
    top = shown.top or _scatter_top(max([point.y for point in points] + [shown.limit or 0.0]))
    grid = _scatter_grid(shown, points, top, room, body)
    labels = {0: shown.number(top), body - 1: shown.number(0.0)}
    rows = [
        Row(line(TextSpan(align_right(labels.get(y, ""), AXIS_WIDTH) + "│", "dim"), *cells))
        for y, cells in enumerate(grid)
    ]
    return [heading, *rows, _scatter_foot(shown, room)]


def _scatter_top(largest: float) -> float:
    """Return the end of the y axis: rounded up to two digits, with room above the largest value."""
    if largest < LEAST_TOP:
        return 1.0
    step = 10.0 ** math.floor(math.log10(largest)) / 2
    return math.ceil(largest * 1.02 / step) * step


def _scatter_grid(
    shown: ScatterPlot, points: Sequence[ScatterPoint], top: float, width: int, height: int
) -> list[list[TextSpan]]:
    grid = [[TextSpan(" ")] * width for _ in range(height)]
    if shown.limit is not None:
        words = f" {shown.limit_words} "
        across = "╌" * max(0, width - len(words)) + words
        grid[_scatter_row(shown.limit, top, height)] = [TextSpan(cell, "dim") for cell in across[:width]]
    # Micro batches are doubled, so equal distances are equal factors. Points are set in the order of their rank: the
    # last one in a cell is the one that is seen.
    low, high = (math.log(end) for end in shown.ends)
    for point in sorted(points, key=lambda point: point.rank):
        part = 0.5 if high == low else (math.log(point.x) - low) / (high - low)
        grid[_scatter_row(point.y, top, height)][min(width - 1, round(part * (width - 1)))] = TextSpan(
            point.mark, point.style
        )
    return grid


def _scatter_row(y: float, top: float, height: int) -> int:
    return height - 1 - max(0, min(height - 1, round(y / top * (height - 1))))


def _scatter_foot(shown: ScatterPlot, room: int) -> Row:
    low, high = shown.ends
    first, last = f"{low:,.0f}", f"{shown.foot} {high:,.0f}"
    if low == high:
        text = f"{shorten(last, room):^{room}}"
    else:
        text = first + align_right(shorten(last, room - len(first) - 1), room - len(first))
    return Row(line(TextSpan(" " * (AXIS_WIDTH + 1) + text, "dim")))


SCALE = 13
"""Cells to the right of a chart, for the value of its full height and its span."""
MOST_COLUMNS = 120
CHART_BUCKETS = 2
"""Buckets per column of a chart of several rows: all its columns move every ten seconds, which costs bytes."""
COLUMN_CELLS = (12, 6, 4, 3, 2, 1)
"""Widths of a column: a short history is drawn wide, so that it can be read."""


class ChartScale(NamedTuple):
    """The columns of a chart of the recent past, the cells that each takes, and those there are for all of them."""

    columns: int
    cells: int
    room: int

    @property
    def span(self) -> str:
        """The time that the chart spans, such as `last 10 min`."""
        return f"last {format_short_duration(self.columns * CHART_BUCKETS * BUCKET_S)}"


def chart_scale(recent: Sequence[Sample], now_s: float, width: int) -> ChartScale:
    """Return the widest columns with which the history fits between the label of a chart and its scale."""
    room = max(0, min(MOST_COLUMNS, width - LABEL - SCALE))
    # `known` columns have values so far. The widest cells with which they fit are taken, so a chart starts wide and
    # becomes finer a few times in its life, instead of growing from the right edge for an hour.
    known = 1 + math.ceil((now_s - recent[0].time_s) / (CHART_BUCKETS * BUCKET_S)) if recent else room
    cells = next((cells for cells in COLUMN_CELLS if known * cells <= room), 1)
    return ChartScale(room // cells, cells, room)


class Chart(NamedTuple):
    """A history by its label and columns. `full` is the value of its full height, and `maximum` that in words."""

    label: str
    columns: tuple[float | None, ...]
    full: float
    maximum: str


def chart_rows(chart: Chart, scale: ChartScale, height: int, rank: int) -> list[Row]:
    """Return the lines of a chart between its label and its scale; a second line has its span."""
    words = [f"max {chart.maximum}", scale.span]
    wide = tuple(value for value in chart.columns for _ in range(scale.cells))
    return [
        labelled_row(
            "" if number else chart.label,
            TextSpan(align_right(text, scale.room), "gauge"),
            TextSpan(align_right("".join(words[number : number + 1]), SCALE), "dim"),
            rank=rank,
        )
        for number, text in enumerate(tall_blocks(wide, chart.full, height))
    ]
