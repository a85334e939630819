"""Charts as rows of styled text: gauges, stacked bars, curves with axes, and areas of the recent past."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import groupby, pairwise
from operator import itemgetter
from typing import Any, Literal, NamedTuple

from tuner_tui.core.units import format_percent
from tuner_tui.view.cells import (
    Line,
    Style,
    TextSpan,
    align_left,
    align_right,
    fit,
    line,
    line_width,
    shorten,
    text_width,
)
from tuner_tui.view.number_format import PREFIXES

# A cell is drawn in eighths. Blank means "not known": zero is the lowest block, so that an idle GPU and a GPU that was
# not sampled look different.
LEVELS = " ▁▂▃▄▅▆▇█"
BLOCK_STEPS = len(LEVELS) - 2


def quantise(value: float | None, full: float, steps: int) -> int:
    """Return `value` on a scale of 0 to `steps`, where `full` is `steps`: at least 1 if positive, 0 if unknown."""
    return min(steps, max(1, round(value / full * steps))) if value and value > 0 and full > 0 else 0


def blocks(values: Iterable[float | None], full: float) -> str:
    """Return one block character per value: the lowest for 0, blank for unknown values, never up to the row above."""
    return "".join(" " if value is None else LEVELS[max(1, quantise(value, full, BLOCK_STEPS))] for value in values)


def gauge(part: float | None, width: int, style: Style) -> Line:
    """Return a bar filled by `part` (0 to 1) in steps of half a cell, the rest a thin line; None fills nothing."""
    whole, half = divmod(quantise(part, 1.0, width * 2), 2)
    parts = TextSpan("━" * whole + "╸" * half, style), TextSpan("─" * max(0, width - whole - half), "dim")
    return tuple([part for part in parts if part.text])


class BarPart(NamedTuple):
    """A part of a stacked bar: its name, its share of the whole (0 to 1) and its style, such as `fill-curve`.

    Where there is room, the `meaning` stands in place of the name.
    """

    name: str
    share: float
    style: Style
    meaning: str = ""


PART_START = "▏"
"""What begins a part of a stacked bar of more than a cell: without colours it tells the part from the one before."""


def part_percents(parts: Sequence[BarPart]) -> list[str]:
    """Return the percentages of the parts, rounded so that they add up (by the largest remainders).

    That of an amber part is rounded as in its finding.
    """
    shares = [100 * max(0.0, part.share) for part in parts]
    whole = [int(share) for share in shares]

    def remainder(n: int) -> float:
        fraction = shares[n] - whole[n]
        return fraction if parts[n].style != "fill-warn" else 2 * round(fraction) - 0.5

    for n in sorted(range(len(parts)), key=remainder, reverse=True)[: round(sum(shares)) - sum(whole)]:
        whole[n] += 1
    return [format_percent(share if share < 0.5 else max(1, n)) for share, n in zip(shares, whole, strict=True)]


def stacked_bar(parts: Sequence[BarPart], width: int) -> tuple[Line, list[Line]]:
    """Return a bar of `width` cells with its parts one after the other, and a legend.

    Each part has its name and percentage in it. Where both do not fit, the legend has them behind the part's colour, in
    the order of the parts: in what is free at the end of the bar, or to be shown below it. A part above zero has at
    least a cell; what the parts leave of the whole stays blank.
    """
    spans: list[TextSpan] = []
    legend: list[Line] = []
    filled, total = 0, 0.0
    for part, percent in zip(parts, part_percents(parts), strict=True):
        total += max(0.0, part.share)
        # The end of each part is rounded, not its length: rounding errors do not add up.
        end = min(width, max(filled + (part.share > 0), round(total * width)))
        room, filled = end - filled, end
        texts = [f"{name} {percent}" for name in (part.meaning, part.name) if name]
        text = next((text for text in texts if len(text) < room), "")
        if part.style == "dim":  # free: as thin as the rest of a gauge
            names = line(*(line("  ", *name) for name in legend), " " * bool(legend))
            free = line(TextSpan(f"{PART_START}{text} "[:room], "dim"))
            if text and line_width(free) + line_width(names) <= room:
                free, legend = line(*free, *names), []
            elif room and not text:
                legend.append(line(TextSpan(f"─ {texts[-1]}", "dim")))
            spans += [*free, TextSpan("─" * (room - line_width(free)), "dim")]
        elif room:
            if not text:
                legend.append(line(TextSpan(" ", part.style), TextSpan(f" {texts[-1]}", "dim")))
                text = percent if len(percent) < room else ""
            spans.append(TextSpan(align_left((PART_START if room > 1 else "") + text, room), part.style))
    return line(*spans, " " * (width - filled)), legend


BRAILLE = 0x2800
DOT_BITS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))
"""Bits of the dots of a braille character, by row and column."""
DOTTED_BITS = 0x47
"""The left dots of a cell: a curve drawn with only these looks dotted."""
DASH = 4
"""Columns of dots in a dash and in the gap after it."""


class BrailleGrid:
    """Cells of 2 × 4 dots, of one style each: what is drawn later replaces dots of another style in the same cell."""

    def __init__(self, width: int, height: int) -> None:
        self._cells = [[" "] * width for _ in range(height)]
        self._styles: list[list[Style]] = [[""] * width for _ in range(height)]

    def draw(self, dots: Iterable[tuple[int, int]], style: Style, bits: int = 0xFF) -> None:
        """Set dots, given by column and row from the top left; of each cell only those in `bits`."""
        for x, y in dots:
            cells, styles, column = self._cells[y // 4], self._styles[y // 4], x // 2
            if dot := DOT_BITS[y % 4][x % 2] & bits:
                is_drawn = cells[column] > "\u2800" and styles[column] == style
                cells[column], styles[column] = chr((ord(cells[column]) if is_drawn else BRAILLE) | dot), style

    def write(self, column: int, row: int, text: str, style: Style) -> None:
        """Write text over what is drawn, cut at the right edge."""
        for at, character in enumerate(text[: len(self._cells[row]) - column], column):
            self._cells[row][at], self._styles[row][at] = character, style

    def is_blank(self, column: int, row: int, width: int) -> bool:
        """Return whether nothing is drawn in so many cells."""
        return not "".join(self._cells[row][column : column + width]).strip()

    def cells(self) -> list[list[tuple[str, Style]]]:
        """Return the cells of each row, the top one first: characters with their styles."""
        return [list(zip(*row, strict=True)) for row in zip(self._cells, self._styles, strict=True)]


def _joined_cells(cells: Iterable[tuple[str, Style]]) -> Line:
    # Neighbours of one style are joined here: one by one it would be most of the work of a chart.
    runs = groupby(cells, itemgetter(1))
    return line(*(TextSpan("".join([cell for cell, _ in run]), style) for style, run in runs))


FLAT_SHARE = 0.05
Values = tuple[float | None, ...]


def is_flat(values: Values, full: float) -> bool:
    """True if known values differ by less than a twentieth of `full`: a row says as much as many would."""
    levels = [value for value in values if value is not None]
    return not levels or max(levels) - min(levels) < FLAT_SHARE * full or not full


SHADES = ("low-", "mid-", "high-", "")
COLUMNS_A_CELL = 2
"""Values of an area in a cell."""
FILLED_BITS = ((0, 0x40, 0x44, 0x46, 0x47), (0, 0x80, 0xA0, 0xB0, 0xB8))
"""Bits of the left and of the right column of a braille character that is filled so many dots high."""


def area_lines(values: Values, full: float, height: int, style: Style) -> tuple[Line, ...]:
    """Return `height` lines of dots with an area below `values`, two in a cell.

    Each line has a shade of its style, the brighter the higher it is. Zero is the lowest dot, unknown is blank.
    """
    # The newest cell changes with each sample, those before it every few seconds only.
    parts = (slice(-COLUMNS_A_CELL), slice(-COLUMNS_A_CELL, None))
    drawn = (_area_lines(values[part], full, height, style) for part in parts)
    return tuple(line(*before, *newest) for before, newest in zip(*drawn, strict=True))


@lru_cache(maxsize=64)
def _area_lines(values: Values, full: float, height: int, style: Style) -> tuple[Line, ...]:
    levels = [0 if value is None else max(1, quantise(value, full, 4 * height)) for value in values]
    lines: list[Line] = []
    for row in range(height - 1, -1, -1):
        shade: Any = SHADES[len(SHADES) * (2 * row + 1) // (2 * height)] + style  # an area's style has all shades
        left, right = (
            [bits[max(0, min(4, level - 4 * row))] for level in levels[side::COLUMNS_A_CELL]]
            for side, bits in enumerate(FILLED_BITS)
        )
        dots = zip(left, right, strict=True)
        lines.append(_joined_cells((chr(BRAILLE | a | b) if a | b else " ", shade) for a, b in dots))
    return tuple(lines)


Pattern = Literal["line", "points", "dotted", "dashed"]
SIGNS: Mapping[Pattern, str] = {"line": "⠒⠒", "points": "⠐⠂", "dotted": "⠂⠂", "dashed": "╌╌"}
"""The signs of patterns in a legend."""


class Curve(NamedTuple):
    """Points by their `xs` (ascending) and `ys`, of which None is a gap."""

    name: str
    xs: tuple[float, ...]
    ys: tuple[float | None, ...]
    style: Style = "curve"
    pattern: Pattern = "line"

    @property
    def points(self) -> list[tuple[float, float]]:
        """The points with a finite value."""
        pairs = zip(self.xs, self.ys, strict=True)
        return [(x, y) for x, y in pairs if y is not None and math.isfinite(y)]


class Mark(NamedTuple):
    """A sign at a point of a chart, at its edge if beyond it. A longer text ends at the point, in a free row."""

    x: float
    y: float
    text: str
    style: Style


class Axes(NamedTuple):
    """The axes of a chart: how values are written, the planned end of x and its unit, and the ends of y, if given.

    `margin` is the least number of cells to the left of the y axis.
    """

    number: Callable[[float | None], str]
    end: float | None = None
    unit: str = "steps"
    y_range: tuple[float, float] | None = None
    from_zero: bool = False
    margin: int = 0


LEAST_LABEL = 5
MOST_LABELS, LABELS_A_ROW = 6, 0.4
"""Labels of a y axis, at most, and by its rows."""
ROUND_STEPS = (1, 2, 2.5, 5)
"""Steps of an axis, times a power of ten."""
EDGE = 1e-6
"""The part of a step by which a multiple of it may lie outside an axis."""
NARROWEST_CURVES = 8
MOST_DIGITS = 9
YOUNG = 4
"""The x axis ends with what is planned if that is at most so many times the round number above the last x."""
FEW_POINTS, POINT = 5, "●"
"""Points below which each is marked on the line: between two or three it would look like measurements."""


@lru_cache(maxsize=32)
def curve_rows(
    heading: Line, curves: tuple[Curve, ...], axes: Axes, width: int, height: int, marks: tuple[Mark, ...] = ()
) -> tuple[Line, ...]:
    """Return `height` rows: the heading, the curves in the order in which they are drawn, and the ends of the x axis.

    The y axis has the range of `axes`, or that of the curves, rounded outwards. The x axis begins at 0.
    """
    first = fit(heading, width)
    points = [curve.points for curve in curves]
    body = height - 2
    if height < 4:
        return (first,)[:height]
    if not any(points):
        return (first, line(TextSpan("no points yet", "dim")), *[()] * body)
    end, low, high = axis_ends(curves, axes)
    levels = axis_levels(low, high, min(MOST_LABELS, 1 + int(body * LABELS_A_ROW)))
    at = (body - 1 - round(axis_share(level, low, high) * (body - 1)) for level in levels)
    labels = dict(zip(at, axis_labels(levels, axes.number), strict=True))
    margin = max(LEAST_LABEL, axes.margin, text_width(axes.unit), *map(text_width, labels.values()))
    room = width - margin - 1
    if room < NARROWEST_CURVES:
        return (first,)
    grid = BrailleGrid(room, body)

    def dot(x: float, y: float) -> tuple[int, int]:
        column, row = axis_share(x, 0.0, end) * 2 * room, axis_share(y, low, high) * 4 * body
        return min(2 * room - 1, int(column)), 4 * body - 1 - min(4 * body - 1, int(row))

    for curve, pairs in zip(curves, points, strict=True):
        measured = [dot(x, y) for x, y in pairs]
        dots = iter(measured) if curve.pattern == "points" else _joined_dots(measured)
        if curve.pattern == "dashed":
            dots = ((x, y) for x, y in dots if x % (2 * DASH) < DASH)
        grid.draw(dots, curve.style, DOTTED_BITS if curve.pattern == "dotted" else 0xFF)
        for x, y in measured if curve.pattern == "line" and len(measured) < FEW_POINTS else ():
            grid.write(x // 2, y // 4, POINT, curve.style)
    for mark in sorted(marks, key=lambda mark: len(mark.text)):
        x, y = dot(mark.x, mark.y)
        start, row = max(0, x // 2 + 1 - len(mark.text)), y // 4
        rows = [row] if len(mark.text) == 1 else [*range(row - 1, -1, -1), *range(row, body)]
        free = (y for y in rows if len(rows) == 1 or grid.is_blank(start, y, len(mark.text) - 1))
        if (chosen := next(free, None)) is not None:
            grid.write(start, chosen, mark.text, mark.style)
    body_rows = (
        line(TextSpan(align_right(labels.get(y, ""), margin) + ("┤" if y in labels else "│"), "dim"), *cells)
        for y, cells in enumerate(map(_joined_cells, grid.cells()))
    )
    foot = axis_text("0", "" if end % 2 else f"{end / 2:,.0f}", end_label(end, axes), room)
    return (first, *body_rows, line(TextSpan(f"{align_right(axes.unit, margin)} {foot}", "dim")))


def axis_ends(curves: Sequence[Curve], axes: Axes) -> tuple[float, float, float]:
    """Return the end of the x axis and both ends of the y axis of a chart of these curves."""
    end = axis_end(max(curve.xs[-1] for curve in curves if curve.xs), axes.end)
    ys = [y for curve in curves for _, y in curve.points] + [0.0] * axes.from_zero
    return (end, *(axes.y_range or axis_range(ys)))


def end_label(end: float, axes: Axes) -> str:
    """Return the end of the x axis, and how much is planned where that is more."""
    return f"{end:,.0f}{f' of {axes.end:,.0f}' if axes.end and end < axes.end else ''}"


def axis_levels(low: float, high: float, most: int = MOST_LABELS) -> list[float]:
    """Return at most so many values on an axis: the multiples of a round step, or the ends where these are fewer."""
    step = round_step((high - low) / most)
    levels: list[float] = []
    while most > 2 and not 0 < len(levels) <= most:
        levels = [n * step for n in range(math.ceil(low / step - EDGE), math.floor(high / step + EDGE) + 1)]
        step = round_step(step * 2.001)  # the next one, or the one after it
    return levels if len(levels) > 1 else [low, high]


def round_step(size: float) -> float:
    """Return the largest of the round steps up to `size`; 0 where no number lies so near to 0."""
    power = 10.0 ** math.floor(math.log10(size)) if size else 0.0
    return max(factor * power for factor in ROUND_STEPS if factor == 1 or factor * power <= size)


def axis_labels(values: Sequence[float], number: Callable[[float | None], str]) -> list[str]:
    """Return the values as `number` writes them; plain numbers all with the fewest digits after the point that do.

    They have the prefix of the largest: `60k`, `45k`, `30k`.
    """
    texts = [number(value) if value else "0" for value in values]
    if not "".join(texts).translate(dict.fromkeys(map(ord, "-.kMGT"))).isdigit():
        return texts
    largest = number(max(values))[-1:]
    prefix, scale = (largest, PREFIXES[largest]) if largest in PREFIXES else ("", 1.0)
    scaled, slack = [value / scale for value in values], (max(values) - min(values)) / scale / 1000
    fixed = ([f"{value:.{digits}f}" for value in scaled] for digits in range(MOST_DIGITS))
    exact = (
        each
        for each in fixed
        if all(abs(float(text) - value) <= slack for text, value in zip(each, scaled, strict=True))
    )
    return [text + prefix * bool(value) for text, value in zip(next(exact, texts), values, strict=True)]


def legend(title: str, curves: Sequence[Curve], width: int) -> Line:
    """Return the title of a chart with the names of its curves, each with its pattern if there are several."""
    if len(curves) == 1:
        return line(TextSpan(title, "strong"), f"  {curves[0].name}" if curves[0].name else "")
    room = (width - text_width(title)) // len(curves) - 8
    names = (TextSpan(f"   {SIGNS[curve.pattern]} {shorten(curve.name, room)}", curve.style) for curve in curves)
    return line(TextSpan(title, "strong"), *names)


def axis_text(start: str, middle: str, end: str, room: int) -> str:
    """Return the labels of the x axis in `room` cells: its ends, and its middle where there is room."""
    left = f"{start} "
    if middle and room >= 3 * len(end) + len(left):
        left = f"{left:─<{room // 2 - len(middle) // 2 - 1}} {middle} "
    return left + f" {end}".rjust(max(0, room - len(left)), "─")


def axis_range(ys: Sequence[float]) -> tuple[float, float]:
    """Return the ends of an axis for `ys`, rounded outwards: up to eighths of their span, down to quarters, at most.

    A new end moves the whole curve, which costs bytes: a falling loss does so a few times, not with each point.
    """
    low, high = min(ys), max(ys)
    step, lower_step = (round_step((high - low) / parts) for parts in (8, 4))
    if not step:  # all alike, or so near to it that no number lies between
        room = abs(low) * 0.1
        return (low - room, high + room) if room else (low, low + 1.0)
    return math.floor(low / lower_step) * lower_step, math.ceil(high / step) * step


def axis_end(last: float, total: float | None) -> float:
    """Return the end of the x axis: a round number, twice the last step or less, or the `total` that is planned.

    The beginning has the whole width: a few points at its left edge would be an upright stroke.
    """
    power = 10.0 ** math.floor(math.log10(max(1.0, last)))
    end = 1.0 if last <= 1 else next(end for end in (n * power for n in (1, 2, 3, 5, 10, 20)) if end >= last)
    return total if total and last <= total <= YOUNG * end else end


def _joined_dots(dots: Sequence[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    # Between neighbouring points as many dots are set as the longer of both distances has places, so a steep part has
    # no holes. A point of its own is a dot.
    yield from dots[:1]
    for (x0, y0), (x1, y1) in pairwise(dots):
        steps = max(abs(x1 - x0), abs(y1 - y0), 1)
        yield from ((x0 + round((x1 - x0) * i / steps), y0 + round((y1 - y0) * i / steps)) for i in range(1, steps + 1))


def axis_share(value: float, low: float, high: float) -> float:
    """Return where `value` lies on an axis from `low` to `high`, 0 to 1."""
    return max(0.0, min(1.0, (value - low) / (high - low)))
