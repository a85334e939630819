"""Charts as lines of text: bars, curves with axes, and block charts of the recent past."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import pairwise
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
from tuner_tui.view.sample_history import BUCKET_S, SampleValue, history_columns

if TYPE_CHECKING:
    from tuner_tui.hardware.sample import Sample

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
    return tall_blocks(tuple(values), full, 1)[0]


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


def stacked_bar(parts: Iterable[tuple[float, str, Style]], width: int) -> Line:
    """Return a bar of `width` cells with parts one after the other, the rest a thin dim line.

    Each of `parts` is its share of the whole, the character that fills it, and its style; one above zero has a cell.
    """
    spans: list[TextSpan] = []
    filled, total = 0, 0.0
    for share, mark, style in parts:
        total += share
        # The end of each part is rounded, not its length: rounding errors do not add up.
        end = min(width, max(filled + (share > 0), round(total * width)))
        spans.append(TextSpan(mark * (end - filled), style))
        filled = end
    return line(*spans, TextSpan("─" * (width - filled), "dim"))


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
"""Rows of a chart from which its y axis has a label in the middle."""
BRAILLE = 0x2800
DOTS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))
"""Bits of the dots of a braille character, by row and column."""
DOTTED_BITS = 0x47
"""The left dots of a cell: a curve drawn with only these looks dotted."""


class Curve(NamedTuple):
    """Points by their `xs` (ascending) and `ys`, of which None is a gap. A dim curve is drawn dotted."""

    name: str
    xs: tuple[float, ...]
    ys: tuple[float | None, ...]
    style: Style = "curve"


@lru_cache(maxsize=16)
def curve_rows(
    title: str,
    curves: tuple[Curve, ...],
    number: Callable[[float | None], str],
    width: int,
    height: int,
    unit: str = "steps",
    from_zero: bool = False,
    last: float | None = None,
) -> tuple[Row, ...]:
    """Return `height` rows: heading with the names of the curves, the curves, and the ends of both axes.

    `number` formats the values of the y axis, which starts at zero if `from_zero`. The x axis counts `unit` and ends at
    `last` at most.
    """
    points = [
        [(x, y) for x, y in zip(curve.xs, curve.ys, strict=True) if y is not None and math.isfinite(y)]
        for curve in curves
    ]
    heading = Row(fit(_heading(title, curves, width), width))
    if height < 4 or width < AXIS_WIDTH + 8:
        return (heading,)[:height]
    body = height - 2
    if all(len(curve) < 2 for curve in points):
        return (heading, Row(line(TextSpan("no points yet", "dim"))), *[Row(())] * body)
    low, high = axis_range([y for curve in points for _, y in curve] + [0.0] * from_zero)
    end = axis_end(max(curve[-1][0] for curve in points if curve), last)
    labels = {0: number(high), body - 1: number(low)}
    if body >= ROOM_FOR_MIDDLE:
        labels[(body - 1) // 2] = number(high - (high - low) * ((body - 1) // 2) / (body - 1))
    cells = [[TextSpan(" ")] * (width - AXIS_WIDTH - 1) for _ in range(body)]
    for curve, dots in zip(curves, points, strict=True):
        _draw_curve(cells, _curve_dots(dots, (0.0, end), (low, high), len(cells[0]) * 2, body * 4), curve.style)
    rows = [
        Row(line(TextSpan(align_right(labels.get(y, ""), AXIS_WIDTH) + ("┤" if y in labels else "│"), "dim"), *row))
        for y, row in enumerate(cells)
    ]
    return (heading, *rows, _curve_foot(end, unit, width))


def _heading(title: str, curves: Sequence[Curve], width: int) -> Line:
    if len(curves) == 1:
        return line(TextSpan(title, "strong"), f"  {curves[0].name}" if curves[0].name else "")
    room = (width - text_width(title)) // len(curves) - 8
    marks = (("⠁⠁" if curve.style == "dim" else "⠒⠒") for curve in curves)
    legend = (
        TextSpan(f"   {mark} {shorten(curve.name, room)}", curve.style)
        for mark, curve in zip(marks, curves, strict=True)
    )
    return line(TextSpan(title, "strong"), *legend)


def _draw_curve(cells: list[list[TextSpan]], dots: Iterable[tuple[int, int]], style: Style) -> None:
    # A braille character has 2 × 4 dots: a curve is placed on a grid of twice the columns and four times the lines, and
    # each of its dots sets one bit of the character that holds it. A cell has one colour, that of the last curve: one
    # drawn before can still be told apart by its missing dots.
    for x, y in dots:
        bits = DOTS[y % 4][x % 2] & (DOTTED_BITS if style == "dim" else 0xFF)
        text = cells[y // 4][x // 2].text
        if bits:
            cells[y // 4][x // 2] = TextSpan(chr((BRAILLE if text == " " else ord(text)) | bits), style)


def _curve_foot(end: float, unit: str, width: int) -> Row:
    """Return the labels of the x axis: its ends, and its middle where there is room."""
    room = max(0, width - AXIS_WIDTH - 1)
    last, middle = f"{end:,.0f} {unit}", f"{end / 2:,.0f}"
    left = "0"
    if room >= 3 * len(last) and end >= 2:
        left = align_left(left, room // 2 - len(middle) // 2) + middle
    return Row(line(TextSpan(" " * (AXIS_WIDTH + 1) + left + align_right(last, max(0, room - len(left))), "dim")))


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


SCALE = 13
"""Cells to the right of a chart, for the value of its full height and its span."""
MOST_COLUMNS = 120
CHART_BUCKETS = 2
"""Buckets per column of a chart of several rows: all its columns move every ten seconds, which costs bytes."""
COLUMN_CELLS = (12, 6, 4, 3, 2, 1)
"""Widths of a column: a short history is drawn wide, so that it can be read."""


class Trace(NamedTuple):
    """A history: its label, the value of a sample and the key under which that is remembered.

    `full` is the value of the full height, and `maximum` that in words.
    """

    label: str
    key: Hashable
    value: SampleValue
    full: float
    maximum: str


def history_rows(trace: Trace, recent: Sequence[Sample], now_s: float, width: int, height: int) -> list[Row]:
    """Return `height` rows with the recent past between the label and the scale; a second row has the time it spans."""
    if height < 1:
        return []
    room = max(0, min(MOST_COLUMNS, width - LABEL - SCALE))
    # `filled` columns have values so far. The widest cells with which they fit are taken, so a chart starts wide and
    # becomes finer a few times in its life, instead of growing from the right edge for an hour.
    filled = 1 + math.ceil((now_s - recent[0].time_s) / (CHART_BUCKETS * BUCKET_S)) if recent else room
    cells = next((cells for cells in COLUMN_CELLS if filled * cells <= room), 1)
    columns = history_columns(recent, trace.key, trace.value, now_s, room // cells, CHART_BUCKETS)
    span = format_short_duration(len(columns) * CHART_BUCKETS * BUCKET_S)
    scale = [f"max {trace.maximum}", f"last {span}", *[""] * height]
    wide = tuple(value for value in columns for _ in range(cells))
    return [
        labelled_row(
            "" if at else trace.label,
            TextSpan(align_right(text, room), "gauge"),
            TextSpan(align_right(scale[at], SCALE), "dim"),
        )
        for at, text in enumerate(tall_blocks(wide, trace.full, height))
    ]
