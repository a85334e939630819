"""What the trials measured over their micro batch: throughput, and memory with the limit across it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from tuner_tui.ui import format as f
from tuner_tui.ui.drawing.cells import Row, fit, line
from tuner_tui.ui.drawing.marks import BAD
from tuner_tui.ui.drawing.scatter import LEAST_HEIGHT, Point, Scatter, scatter_rows
from tuner_tui.ui.drawing.tuning_words import Standing

if TYPE_CHECKING:
    from tuner_tui.tuning.process.tuning_reader import TuningView
    from tuner_tui.tuning.trial import CompletedTrial, Measurement

BESIDE = 60
"""From this width on the two plots stand side by side."""
FOOT = "micro batch"


def tuning_plots(view: TuningView | None, width: int, height: int) -> list[Row]:
    """Both plots, side by side where there is room, else one above the other; the one that fits where only one does."""
    if view is None:
        return []
    plots = [_throughput(view), _memory(view)]
    if width >= BESIDE:
        half = width // 2
        drawn = [scatter_rows(plot, half - 1, height) for plot in plots]
        return [Row(line(*fit(one.line, half), *other.line)) for one, other in zip(*drawn, strict=True)]
    if height < 2 * LEAST_HEIGHT:
        return scatter_rows(plots[0], width, height)
    return scatter_rows(plots[0], width, height // 2) + scatter_rows(plots[1], width, height - height // 2)


def _throughput(view: TuningView) -> Scatter:
    standing = Standing.of(view)
    return Scatter(standing.unit, list(_points(view, standing, standing.rate)), f.figure, FOOT, _ends(view))


def _memory(view: TuningView) -> Scatter:
    points = list(_points(view, Standing.of(view), lambda found: found.peak_bytes))
    top = view.capacity_bytes
    ceiling = top or max((point.y for point in points), default=0)
    points += [
        Point(_micro(one), ceiling, BAD, "bad", 2) for one in view.tried if one.measurement.outcome == "out-of-memory"
    ]
    limit = view.limit_bytes
    words = "" if limit is None else f"limit {f.size(limit)}"
    return Scatter("peak GiB", points, f.gib, FOOT, _ends(view), top, limit, words)


def _ends(view: TuningView) -> tuple[int, int]:
    micros = [_micro(one) for one in view.tried] or [1]
    return min(micros), max(micros)


def _points(view: TuningView, standing: Standing, figure: Callable[[Measurement], float | None]) -> Iterator[Point]:
    """A point a measured trial; the best stands out by its mark."""
    for one in view.tried:
        value = figure(one.measurement) if one.measurement.outcome == "measured" else None
        if value is not None:
            best = one.trial.settings == standing.best
            yield Point(_micro(one), value, "◆" if best else "•", "good" if best else "", int(best))


def _micro(one: CompletedTrial) -> int:
    return one.trial.settings.per_device_train_batch_size
