"""The run and the machine now: figures, loss, GPUs, ranks and host, as detailed as there is room."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from msgspec.structs import replace

from tuner_tui.core.units import GIB, MIB, format_duration
from tuner_tui.view import number_format as f
from tuner_tui.view.cells import WARN, Line, Style, TextSpan, fit, join_sections, labelled_rows, line, shorten
from tuner_tui.view.charts import FEW_POINTS, POINT, Axes, Curve, Mark, axis_end, curve_rows, legend
from tuner_tui.view.gpu_rows import (
    TWO_COLUMNS_FROM,
    WALL_FROM,
    GpuScene,
    dense_gpu_rows,
    gpu_columns,
    gpu_rows,
    gpu_wall,
    gpus_in_use,
)
from tuner_tui.view.host_rows import LOW_CHART, TALLEST_CHART, host_details, host_gauges
from tuner_tui.view.loss_chart import LossScene, best_label, loss_rows
from tuner_tui.view.run_bars import memory_rows, step_rows
from tuner_tui.view.run_rows import RunScene, rank_rows, run_rows, slowest_rank, times_of_ranks
from tuner_tui.view.sample_history import WINDOWS, Window, shown_past

if TYPE_CHECKING:
    from tuner_tui.advice.estimate import MemoryOutlook
    from tuner_tui.hardware.sample import Sample
    from tuner_tui.runs.events.progress import History, Series
    from tuner_tui.runs.events.run_state import RunState
    from tuner_tui.runs.read.run_context import RunContext
    from tuner_tui.view.end_card import EndScene

LEAST_LOSS_ROWS, LEAST_LOSS_SHARE, WANTED_LOSS_SHARE = 6, 0.4, 0.55
"""Rows of the loss chart and its share of the panel for which figures and GPUs give way, and its share of the panel
before details and blank rows have any: a third of the screen."""
LEAST_NEXT_ROWS, LEAST_TEXT_ROWS, NEXT_ROWS, HOST_ROWS = 6, 2, 8, 4
"""Rows of what would be trained, at least: two fifths of the panel where that is more, two thirds without GPUs, and all
that the machine leaves. Of them those of its description, at least, those of the rest, and those of the host."""
MOST_HISTORY = 3
"""Rows of histories for each row of GPUs of a run, at most: the loss is more than they."""
OLD_SAMPLE_S = 5.0


class LiveScene(NamedTuple):
    """What there is to show: a run or none, the newest sample or none, recent ones, and now (epoch seconds).

    `next_training` is what would be trained, as labels and texts, shown while there is no run. `end` is how the run
    ended, `outlook` the memory that the next run needs. `causes` are those of the findings, most important first, with
    the share of the time that each costs, `context` are earlier runs. `window` is the past that histories show.
    """

    now_s: float
    state: RunState | None
    history: History | None
    sample: Sample | None
    recent: Sequence[Sample]
    next_training: tuple[tuple[str, str], ...] = ()
    end: EndScene | None = None
    outlook: MemoryOutlook | None = None
    causes: Mapping[str, float | None] = MappingProxyType({})
    context: RunContext | None = None
    window: Window = WINDOWS[0]


class Layout(NamedTuple):
    """What gives way to the loss: the rows that say least, blank rows, figures of the run but its speed, those of each
    rank and the names of small parts of a bar, and at last the row of each of many GPUs."""

    details: bool
    apart: bool
    figures: bool = True
    many_gpus: Callable[[GpuScene, int], list[Line]] | None = None


LAYOUTS = (
    Layout(True, True),
    Layout(False, True),
    Layout(False, False),
    Layout(False, False, False),
    Layout(False, False, False, dense_gpu_rows),
    Layout(False, False, False, gpu_wall),
)


def live_rows(scene: LiveScene, width: int, height: int) -> list[Line]:
    """Return the loss, the run, then the machine, in an order that is the same at every size.

    The loss gets what the other rows leave; where that is more than enough, histories get a part of it. The last rows
    may not fit.
    """
    if scene.end is not None:
        from tuner_tui.view.end_card import end_rows  # not needed for the first frame

        at_rest = scene._replace(state=None, next_training=(), outlook=None)
        machine = _sections(at_rest, width, height)(LAYOUTS[1], 0)
        taken, card = len(join_sections(machine)) + 1, end_rows(scene.end, width, height)
        if len(card) + taken > height:  # the loss of the run says more than a machine at rest
            return card
        return join_sections([end_rows(scene.end, width, height - taken), *machine])
    # Without details and blank rows as soon as the loss would otherwise be too low to read.
    loss = loss_scene(scene)
    least, wanted = max(LEAST_LOSS_ROWS, round(height * LEAST_LOSS_SHARE)), round(height * WANTED_LOSS_SHARE)
    least, wanted = (0, 0) if loss is None else (least, wanted)
    sections = _sections(scene, width, height)
    for layout in LAYOUTS:
        below = join_sections(sections(layout, 0), layout.apart)
        spare = height - len(below) - (layout.apart and loss is not None)
        if spare >= max(least, wanted * layout.apart):
            break
    if loss is None:
        return join_sections(sections(layout, spare), layout.apart) if spare > 0 else below
    histories = spare - max(least, wanted)
    if histories > 0:
        below = join_sections(sections(layout, histories), layout.apart)
    apart = layout.apart or spare > wanted
    rows = loss_rows(loss, width, max(0, height - len(below) - apart))
    return join_sections([rows, below], apart)


def loss_scene(scene: LiveScene) -> LossScene | None:
    """Return what the loss chart shows; None without a run or before its second loss."""
    state, history = scene.state, scene.history
    if state is None or history is None or len(history.loss.xs) < 2:
        return None
    earlier, best = None if scene.context is None else scene.context.earlier_loss, best_label(state)
    return LossScene(history.loss, history.eval_loss, state.last_step, state.loss, earlier, live=True, best=best)


def _sections(scene: LiveScene, width: int, height: int) -> Callable[[Layout, int], list[list[Line]]]:
    """Return what draws the run, then the parts of the machine, in a layout and with histories in so many rows.

    What is the same in every layout is drawn once.
    """
    state, sample = scene.state, scene.sample
    memory = memory_rows(state, sample, scene.outlook, width)
    if state is None:
        many = len(sample.gpus) if sample else 0
        left = height - len(memory) - many // gpu_columns(many, width) - HOST_ROWS
        rows = max(LEAST_NEXT_ROWS, 2 * height // (5 if many else 3), left)
        most = max(LEAST_TEXT_ROWS, rows - NEXT_ROWS)
        run = [row for pair in scene.next_training for row in labelled_rows(*pair, width, most=most)][:rows]
        charted, trains, ranks, ranks_differ = False, False, [], False
    else:
        charted = loss_scene(scene) is not None
        run = run_rows(RunScene(state, sample, scene.now_s, scene.context, charted), width)
        trains = state.finished is None and state.phase == "training"
        in_step = "slow-rank" in scene.causes
        ranks = rank_rows(state, width, in_step)
        ranks_differ = slowest_rank(times_of_ranks(state, in_step)) is not None
    step = [] if state is None else step_rows(state, scene.causes, width)

    def run_sections(layout: Layout) -> list[list[Line]]:
        bars = step + memory if layout.figures else step[:1] + memory[:1]
        figures = run[: None if layout.figures or not charted else 1]
        return [bars, figures, ranks[: None if layout.figures else int(ranks_differ)]]

    if sample is None:
        return lambda layout, room: run_sections(layout)
    age = scene.now_s - sample.time_s
    old = [line(TextSpan(f"{WARN} sampled {format_duration(age)} ago", "warn"))] if age > OLD_SAMPLE_S else []
    device = None if state is None else state.in_effect.get("device")
    training = gpus_in_use(sample, device) if trains else frozenset[int]()
    gpus = GpuScene(sample, scene.recent, training, past_s=shown_past(scene.recent, scene.window, sample.time_s))
    many, gauges, host = len(sample.gpus), gpu_rows(gpus, width), host_gauges(sample, width)

    def all_sections(layout: Layout, room: int) -> list[list[Line]]:
        shown = gauges
        if state is not None or not gauges:
            room = min(room, MOST_HISTORY * len(gauges) or (LOW_CHART if charted else TALLEST_CHART) + 1)
        if layout.many_gpus is not None and many >= TWO_COLUMNS_FROM:
            shown = layout.many_gpus(gpus, width)
        elif room or many >= WALL_FROM:  # they use the rows better that they take anyway
            shown = gpu_rows(gpus, width, room + len(gauges))
        left = room - max(0, len(shown) - len(gauges))
        details = host_details(sample, scene.recent, width, left, gpus.past_s) if layout.details else []
        bars, figures, of_ranks = run_sections(layout)
        return [bars, figures, old + shown, of_ranks, host[: None if layout.apart else 1] + details]

    return all_sections


NARROWEST_PLOT, SHORTEST_PLOT = 36, 6
MAIN_RESULTS = 2
"""So many metrics of the evaluations stand before the figures of the training."""
SAME_SHARE = 0.01
"""Of a value that changes by no more a plot would be a level line."""


def plots_rows(
    history: History, state: RunState | None, width: int, height: int, loss: bool = True, at: float | None = None
) -> list[Line]:
    """Return all plots, most important first, in more rows than `height` if need be; with the values `at` a step.

    The `loss` is left out where it is drawn elsewhere, unless values are asked for. Of what stays the same the value
    alone is shown, in a row below them.
    """
    last_step, newest_loss = (None, None) if state is None else (state.last_step, state.loss)

    def point(series: Series) -> tuple[float, float] | None:
        points = Curve("", series.xs, series.ys).points
        return next((each for each in reversed(points) if at is None or each[0] <= at), None)

    def newest(series: Series, number: Callable[[float | None], str]) -> str:
        return number((point(series) or (0.0, None))[1])

    def plot(series: Series, number: Callable[[float | None], str], from_zero: bool) -> Sequence[Line]:
        title = ", ".join(filter(None, (series.name, series.unit)))
        here = None if at is None else point(series)
        where, marks = ("", ()) if here is None else (f" at step {here[0]:,.0f}", (Mark(*here, POINT, "strong"),))
        style: Style = "second" if series is history.eval_loss or series in history.results else "curve"
        curve = Curve(newest(series, number) + where, series.xs, series.ys, style)
        heading = legend(title, (curve,), cell_width)
        axes = Axes(f.significant if number is f.metric else number, end, from_zero=from_zero)
        return curve_rows(heading, (curve,), axes, cell_width - 1, cell_height, marks)

    memory, results = history.memory_bytes, [(result, f.significant, False) for result in history.results]
    unit, size = ("GiB", GIB) if max(filter(None, memory.ys), default=0.0) >= GIB else ("MiB", MIB)
    series: Sequence[tuple[Series, Callable[[float | None], str], bool]] = (
        (history.eval_loss, f.significant, False),
        *results[:MAIN_RESULTS],
        *((logged, f.significant, False) for logged in history.logged),
        (history.grad_norm, f.significant, True),
        (history.samples_s, f.significant, True),
        (history.learning_rate, f.exponent, True),
        (replace(memory, unit=unit, ys=tuple(None if y is None else y / size for y in memory.ys)), f.significant, True),
        *results[MAIN_RESULTS:],
    )
    recorded = [each for each in series if each[0].xs]
    end = axis_end(max((each[0].xs[-1] for each in recorded), default=0.0), last_step)  # the same for all
    shown = [each for each in recorded if not (each[2] and _stays_the_same(each[0]))] or recorded[:1] or [series[2]]
    plots: list[Callable[[], Sequence[Line]]] = [partial(plot, *each) for each in shown]
    steady = " · ".join(
        f"{each[0].name} {newest(*each[:2])} {each[0].unit}".rstrip() for each in recorded if each not in shown
    )
    if at is not None:
        plots.insert(0, partial(plot, history.loss, f.metric, False))
    elif loss:
        scene = LossScene(history.loss, history.eval_loss, last_step, newest_loss)
        plots.insert(0, lambda: loss_rows(scene, cell_width - 1, cell_height))
    below = [line(TextSpan(shorten(f"unchanged: {steady}", width), "dim"))] if steady and height > SHORTEST_PLOT else []
    columns = max(1, min(len(plots), width // NARROWEST_PLOT))
    lines = -(-len(plots) // columns)
    visible = max(1, min(lines, (height - len(below)) // SHORTEST_PLOT))
    cell_width, cell_height = width // columns, (height - len(below) - (lines > visible)) // visible
    drawn = [draw() for draw in plots]
    rows = [
        line(*(fit(row, cell_width) for row in together))
        for start in range(0, len(drawn), columns)
        for together in zip(*drawn[start : start + columns], strict=False)
    ]
    return rows + below


def _stays_the_same(series: Series) -> bool:
    ys = [y for y in series.ys if y is not None]
    return len(ys) >= FEW_POINTS and max(ys) - min(ys) <= SAME_SHARE * abs(max(ys))
