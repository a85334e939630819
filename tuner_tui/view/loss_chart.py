"""The loss of a run as a chart: what was measured, its evaluations, an earlier run, and where it will end."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import lru_cache
from operator import itemgetter
from statistics import median, quantiles
from typing import TYPE_CHECKING, NamedTuple

from tuner_tui.view import number_format as f
from tuner_tui.view.cells import BAD, LABEL, Line, Style, TextSpan, flowing_rows, line
from tuner_tui.view.charts import FEW_POINTS, SIGNS, Axes, Curve, Mark, axis_end, axis_range, curve_rows

if TYPE_CHECKING:
    from tuner_tui.runs.events.loss_forecast import LossForecast
    from tuner_tui.runs.events.progress import Series
    from tuner_tui.runs.events.run_state import RunState
    from tuner_tui.runs.read.run_context import EarlierLoss

EVALUATION, OTHER_EVALUATION, SPIKE, RESUMED = "◆", "◇", "▴", "▸"
SMOOTHED_SHARE = 1 / 40
"""Share of the points on either side of a point that are averaged to smooth it."""
FORECASTS_A_RUN = 50
"""How often a run has a new forecast: one that moves with each point cannot be read, and costs bytes."""
FORECAST_ROOM = 0.5
"""Spans of what is measured that its axis has for the forecast above and below it, or the curve would be a flat row."""
SPIKE_DEVIATIONS, SPIKE_SHARE = 8.0, 0.5
"""A spike is that many median deviations above the smoothed loss, and that share of it; judgement."""
MOST_EVALUATIONS = 16
"""Above it evaluations are dashes with a mark at the best: their marks would hide the loss."""
GAP_MARKS = 250
"""Marks of a loss that is no number over the whole course: more than a chart has columns."""
CLIPPED_SPANS = 1.5
"""The axis ends that many spans of the middle nine tenths of the loss above them: the rest is marked at its edge."""


class LossScene(NamedTuple):
    """The losses of a run and of its evaluations over its steps, of which the last planned one is `last_step`.

    `newest` is the exact newest loss. `earlier` is the loss of an earlier run of the same training, or of what this one
    resumed, drawn in grey. There is a forecast while the run is `live`. `best` names the lowest loss of an evaluation.
    """

    loss: Series
    evaluations: Series
    last_step: float | None = None
    newest: float | None = None
    earlier: EarlierLoss | None = None
    live: bool = False
    best: str = "best eval"


def best_label(state: RunState) -> str:
    """Return what the lowest known loss of an evaluation is called."""
    return "best eval" if state.knows_evaluations else "eval"


@lru_cache(maxsize=4)  # a sample comes each second, a loss more seldom
def loss_rows(scene: LossScene, width: int, height: int) -> Sequence[Line]:
    """Return `height` rows: a heading that explains the signs, the curves, and the steps."""
    curves, axes, marks = loss_drawing(scene)
    return curve_rows(_heading(scene, width), curves, axes, width, height, marks)


def loss_drawing(scene: LossScene) -> tuple[tuple[Curve, ...], Axes, tuple[Mark, ...]]:
    """Return the curves in the order in which they are drawn, the axes and the marks.

    Raw losses are dim dots, the smoothed loss is a line, evaluations are `◇` or dashes, the best is `◆`, an earlier run
    is dotted, the forecast is dashed between the dotted edges of its range; `▴` is a spike above the axis or the noise,
    `✗` a loss that was no number.
    """
    xs, ys = scene.loss.xs, scene.loss.ys
    smoothed = smooth(xs, ys)
    forecast = _forecast(scene)
    curves = [Curve("", xs, ys, "dim", "points"), Curve("", xs, smoothed)]
    evaluations = Curve("", scene.evaluations.xs, scene.evaluations.ys).points
    shown = [y for y in smoothed if y is not None] + [y for _, y in evaluations]
    best = min(evaluations, key=itemgetter(1), default=None)
    marks = [Mark(*each, EVALUATION if each == best else OTHER_EVALUATION, "second") for each in evaluations]
    if len(marks) > MOST_EVALUATIONS:
        curves.append(Curve("", scene.evaluations.xs, scene.evaluations.ys, "second", "dashed"))
        marks = [mark for mark in marks if mark.text == EVALUATION]
    if forecast is not None:
        span = f"forecast {f.significant(forecast.low)} – {f.significant(forecast.high)}"
        marks.append(Mark(forecast.end, forecast.high, span, "curve"))
    earlier = scene.earlier
    before = sum(x < xs[0] for x in earlier.loss.xs) if earlier is not None and earlier.continued and xs else 0
    if earlier is not None and before:
        # One course with what it resumed, and one axis over both.
        past_xs, past_ys = earlier.loss.xs[:before], smooth(earlier.loss.xs[:before], earlier.loss.ys[:before])
        curves.insert(0, Curve("", (*past_xs, xs[0]), (*past_ys, smoothed[0]), "dim", "dotted"))
        shown += [y for y in past_ys if y is not None]
        marks.append(Mark(xs[0], math.inf, RESUMED, "dim"))
    y_range = loss_range(shown, [y for y in ys if y is not None and math.isfinite(y)]) if shown else None
    low, top = y_range or (-math.inf, math.inf)
    if y_range and forecast is not None:
        room = (top - low) * FORECAST_ROOM
        y_range = low, top = axis_range([low, top, max(low - room, forecast.low), min(top + room, forecast.high)])
        curves[:0] = _forecast_curves(forecast, low, top)
    if y_range and before:  # upright, from the label to the axis
        curves.insert(0, Curve("", (xs[0],) * FEW_POINTS, (low, *[top] * (FEW_POINTS - 1)), "dim"))
    marks = _trouble_marks(xs, ys, smoothed, top) + marks
    if earlier is not None and not earlier.continued:
        # What lies outside of the axis is left out: at its edge it would read as a loss that stays the same.
        end = axis_end(max((curve.xs[-1] for curve in curves if curve.xs), default=0.0), scene.last_step)
        past_xs = tuple(x for x in earlier.loss.xs if x <= end)
        past_ys = smooth(earlier.loss.xs, earlier.loss.ys)[: len(past_xs)]
        curves.insert(0, Curve("", past_xs, _within(past_ys, low, top), "dim", "dotted"))
    axes = Axes(f.significant, scene.last_step, y_range=y_range, margin=LABEL - 1)
    return tuple(curves), axes, tuple(marks)


def _heading(scene: LossScene, width: int) -> Line:
    """Return the newest loss, the best evaluation and what the patterns mean, as far as there is room."""
    newest, evaluations = scene.newest, Curve("", scene.evaluations.xs, scene.evaluations.ys).points
    if newest is None:
        newest = next((y for y in reversed(scene.loss.ys) if y is not None), None)
    style: Style = "bad" if newest is not None and not math.isfinite(newest) else "strong"
    parts = [line(TextSpan("loss ", "dim"), TextSpan(f.metric(newest), style))]
    smoothed = smooth(scene.loss.xs, scene.loss.ys)
    if smoothed[-1:] != scene.loss.ys[-1:] and smoothed[-1] is not None:
        parts[0] = line(*parts[0], TextSpan(f" {SIGNS['points']}", "dim"))
        parts.append(line(TextSpan(SIGNS["line"], "curve"), TextSpan(" smoothed ", "dim"), f.significant(smoothed[-1])))
    if evaluations:
        step, best = min(evaluations, key=itemgetter(1))
        at = TextSpan(f" at step {step:,.0f}", "dim")
        parts.append(line(TextSpan(f"{EVALUATION} ", "second"), TextSpan(f"{scene.best} ", "dim"), f.metric(best), at))
    if scene.earlier is not None:
        until = f" until resumed {RESUMED}" * scene.earlier.continued
        parts.append(line(TextSpan(f"{SIGNS['dotted']} {scene.earlier.name}{until}", "dim")))
    return flowing_rows(parts, width)[0]


def _forecast(scene: LossScene) -> LossForecast | None:
    """Return the forecast from the points up to the last fiftieth of the run."""
    from tuner_tui.runs.events.loss_forecast import forecast_loss  # not needed for the first frame

    if not scene.live or not scene.last_step or not scene.loss.xs:
        return None
    part = scene.last_step / FORECASTS_A_RUN
    count = sum(x <= scene.loss.xs[-1] // part * part for x in scene.loss.xs)
    return forecast_loss(scene.loss.xs[:count], scene.loss.ys[:count], scene.last_step)


def _forecast_curves(forecast: LossForecast, low: float, top: float) -> list[Curve]:
    """Return value and range over the steps left, bent as the logarithm of the step, as far as they are on the axis."""
    since, now, end = forecast.since, forecast.now, forecast.end
    steps = tuple(since + (end - since) * n / 20 for n in range(21))
    ways = [math.log(step / since) / math.log(end / since) for step in steps]

    def curve(last: float, style: Style, pattern: str) -> Curve:
        ys = _within([now + (last - now) * way for way in ways], low, top)
        return Curve("", steps, ys, style, pattern)  # type: ignore[arg-type]

    edges = [curve(last, "gauge", "dotted") for last in (forecast.low, forecast.high)]
    return [*edges, curve(forecast.value, "curve", "dashed")]


def _within(ys: Sequence[float | None], low: float, top: float) -> tuple[float | None, ...]:
    return tuple(y if y is not None and low <= y <= top else None for y in ys)


@lru_cache(maxsize=8)
def smooth(xs: tuple[float, ...], ys: tuple[float | None, ...]) -> tuple[float | None, ...]:
    """Return each value averaged with its neighbours: a fortieth of all points on either side, fewer at the beginning.

    The beginning, where a loss falls fastest, is not pulled down by what follows.
    """
    half = int(len(xs) * SMOOTHED_SHARE)
    means: list[float | None] = []
    for n in range(len(ys)):
        near = [y for y in ys[max(0, n - half) : n + min(n, half) + 1] if y is not None and math.isfinite(y)]
        # Of the middle three fifths: a spike of one batch does not bend the line.
        cut = len(near) // 5
        kept = sorted(near)[cut : len(near) - cut]
        means.append(None if ys[n] is None or not kept else sum(kept) / len(kept))
    return tuple(means)


def _trouble_marks(
    xs: tuple[float, ...], ys: tuple[float | None, ...], smoothed: Sequence[float | None], top: float
) -> list[Mark]:
    """Return marks where the loss was no number, and of spikes: above the noise, or above the `top` of the axis.

    What lies above it before the loss first was below is the beginning of a run, which every run has, and no spike.
    """
    pairs = [(x, y, mean) for x, y, mean in zip(xs, ys, smoothed, strict=True) if y is not None and mean is not None]
    began = next((n for n, (_, y, _) in enumerate(pairs) if y <= top), 0)
    deviation = median(abs(y - mean) for _, y, mean in pairs) if pairs else 0.0
    marks = [
        Mark(x, y, SPIKE, "warn")
        for x, y, mean in pairs[began:]
        if y - mean > max(SPIKE_DEVIATIONS * deviation, SPIKE_SHARE * abs(mean)) or y > top >= mean
    ]
    return marks + [Mark(x, math.inf, BAD, "bad") for x in _gap_positions(xs, ys)]


def _gap_positions(xs: tuple[float, ...], ys: tuple[float | None, ...]) -> Iterator[float]:
    """Yield the steps without a number, and places between two in a row: not every step is a point of the series."""
    apart = (xs[-1] - xs[0]) / GAP_MARKS if xs else 0.0
    for n, x in enumerate(xs):
        if ys[n] is None:
            joined = ys[n + 1 : n + 2] == (None,) and apart > 0
            count = int((xs[n + 1] - x) / apart) if joined else 1
            yield from (x + apart * k for k in range(max(1, count)))


def loss_range(ys: Sequence[float], raw: Sequence[float] = ()) -> tuple[float, float]:
    """Return the ends of the axis for losses: rounded, and without the steep beginning that would flatten the rest.

    Of the `raw` losses it has room for the lowest one and for all but a twentieth of the highest.
    """
    noise = [min(raw), quantiles(raw, n=20, method="inclusive")[-1]] if len(raw) > 1 else []
    cuts = quantiles(ys, n=20) if len(ys) > 1 else [max(ys)]
    most = cuts[-1] + CLIPPED_SPANS * (cuts[-1] - cuts[0])
    return axis_range([*(min(y, most) for y in ys), *noise])
