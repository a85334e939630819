"""A curve over the length of the run: each column stands for its steps for ever, so progress only adds."""

from __future__ import annotations

import math
from collections.abc import Sequence

from tuner_tui.runs.events.history import Series
from tuner_tui.ui.drawing.bars import FULLEST, LEVELS


def run_curve(series: Series, total: float | None, width: int) -> str:
    """`series` as blocks on `width` cells that span the whole run of `total` steps; blank where there is nothing."""
    columns = run_columns(series, total, width)
    known = [value for value in columns if value is not None]
    if not known:
        return " " * max(0, width)
    low, high = scale(known)
    return "".join(_block(value, low, high) for value in columns)


def _block(value: float | None, low: float, high: float) -> str:
    if value is None:
        return " "
    return LEVELS[1 + round((value - low) / (high - low) * (FULLEST - 1))] if high > low else LEVELS[1]


def run_columns(series: Series, total: float | None, width: int) -> list[float | None]:
    """The mean of each column's values; a column without a point between two that have one repeats the one before."""
    points = [(x, y) for x, y in zip(series.xs, series.ys, strict=True) if y is not None and math.isfinite(y)]
    if not points or width < 1:
        return [None] * max(0, width)
    whole = max(total or 0, points[-1][0]) or 1.0
    if not total:
        whole = 2.0 ** math.ceil(math.log2(max(2.0, whole)))
    gathered: list[list[float]] = [[] for _ in range(width)]
    for x, y in points:
        gathered[min(width - 1, int(x / whole * width))].append(y)
    return _filled(gathered)


def _filled(gathered: Sequence[Sequence[float]]) -> list[float | None]:
    last = max(index for index, values in enumerate(gathered) if values)
    columns: list[float | None] = []
    for index, values in enumerate(gathered):
        before = columns[-1] if columns and index <= last else None
        columns.append(sum(values) / len(values) if values else before)
    return columns


def scale(ys: Sequence[float]) -> tuple[float, float]:
    """The ends of an axis that holds `ys`, rounded outwards so that a new point seldom moves them."""
    low, high = min(ys), max(ys)
    step = 10 ** math.floor(math.log10(high - low)) / 2 if low < high else 0.0
    if not step:  # all alike, or so near to it that no number lies between
        room = abs(low) * 0.1
        return (low - room, high + room) if room else (low, low + 1.0)
    return math.floor(low / step) * step, math.ceil(high / step) * step
