"""The run and the machine now: figures, loss, GPUs, ranks and host, as detailed as there is room."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from tuner_tui.core.units import format_duration, format_size
from tuner_tui.view import number_format as f
from tuner_tui.view.cells import LABEL, WARN, Row, TextSpan, fit, join_sections, labelled_row, line, shorten
from tuner_tui.view.charts import Curve, curve_rows
from tuner_tui.view.machine_rows import GpuScene, gpu_rows, history_height, host_gauges, host_rows, training_gpus
from tuner_tui.view.run_rows import RunScene, rank_rows, run_rows

if TYPE_CHECKING:
    from tuner_tui.hardware.sample import Sample
    from tuner_tui.runs.events.progress import History, Series
    from tuner_tui.runs.events.run_state import RunState
    from tuner_tui.view.end_card import EndScene

MAX_CPU_CHART, MAX_CPU_CHART_BELOW_GPUS = 16, 5
PLOT_HEIGHTS = ((True, True, 8), (False, True, 6), (False, False, 4))
"""With details or not, sections apart or not: the least rows that the loss curve then has."""
PLOT_MAX_HEIGHT = 16
OLD_SAMPLE_S = 5.0


class LiveScene(NamedTuple):
    """What there is to show: a run or none, the newest sample or none, recent ones, and now (epoch seconds).

    `limit_bytes` is the memory that the run may take at most. `plots_loss` is False where the loss curve is drawn in
    another panel. `next_training` is what would be trained, as labels and texts, shown while there is no run. `end` is
    how the run ended, `usual_startup_s` how long earlier ones took until their first step.
    """

    now_s: float
    state: RunState | None
    history: History | None
    sample: Sample | None
    recent: Sequence[Sample]
    limit_bytes: int | None = None
    plots_loss: bool = True
    next_training: tuple[tuple[str, str], ...] = ()
    end: EndScene | None = None
    usual_startup_s: float | None = None


def live_rows(scene: LiveScene, width: int, height: int) -> list[Row]:
    """Return the run, then the machine, in an order that is the same at every size; the last rows may not fit."""
    # The first of these that fits is shown: all rows and the loss curve, if need be without details and blank lines;
    # all rows, with histories of GPUs and processor in the rows that are left; all rows without blank lines.
    if scene.end is not None:
        from tuner_tui.view.end_card import end_rows  # not needed for the first frame

        machine = _sections(scene._replace(state=None, next_training=()), width, details=False)
        room = height - len(join_sections(machine)) - 1
        return join_sections([end_rows(scene.end, width, room), *machine])
    loss = None if scene.history is None or scene.state is None else scene.history.loss
    if scene.plots_loss and loss is not None and len(loss.xs) > 1:
        for details, apart, least in PLOT_HEIGHTS:
            run, *machine = _sections(scene, width, details=details)
            room = height - len(join_sections([run, *machine], apart)) - apart
            if room >= least:
                last = None if scene.state is None else scene.state.last_step
                plot = loss_curve(loss, width, min(room, PLOT_MAX_HEIGHT), last)
                return join_sections([run, plot, *machine], apart)
    room = height - len(join_sections(_sections(scene, width)))
    if room < 0:
        return join_sections(_sections(scene, width, all_cores=False), apart=False)
    gpus = 0 if scene.sample is None else len(scene.sample.gpus)
    each = history_height(gpus, room)
    chart = min(MAX_CPU_CHART_BELOW_GPUS if gpus else MAX_CPU_CHART, room - gpus * each)
    return join_sections(_sections(scene, width, each, chart))


def loss_curve(loss: Series, width: int, height: int, last_step: int | None) -> Sequence[Row]:
    """Return the loss over the steps of a run. It is smoothed: the exact figure stands elsewhere."""
    return curve_rows("loss, smoothed", (Curve("", loss.xs, loss.ys),), f.significant, width, height, last=last_step)


def _sections(
    scene: LiveScene, width: int, gpu_chart: int = 0, cpu_chart: int = 0, all_cores: bool = True, details: bool = True
) -> list[list[Row]]:
    """Return the run first, then the parts of the machine; without `details` only what may need attention."""
    if scene.state is None:
        run = [labelled_row(label, shorten(text, width - LABEL)) for label, text in scene.next_training]
        trains, ranks = False, []
    else:
        shown = RunScene(scene.state, scene.sample, scene.now_s, scene.limit_bytes, scene.usual_startup_s)
        run = run_rows(shown, width)
        trains, ranks = True, rank_rows(scene.state, width)
    if scene.sample is None:
        return [run, ranks]
    judged = trains and scene.state is not None and scene.state.phase == "training"
    gpus = _gpus(scene.sample, scene.recent, scene.now_s, width, judged, gpu_chart)
    host = (
        host_rows(scene.sample, scene.recent, width, cpu_chart, all_cores)
        if details
        else host_gauges(scene.sample, width)
    )
    return [run, gpus, ranks, host]


def _gpus(sample: Sample, recent: Sequence[Sample], now_s: float, width: int, judged: bool, height: int) -> list[Row]:
    """Return the age of an old sample, then its GPUs, which are to be busy if they are `judged`."""
    training = training_gpus(sample) if judged else frozenset()
    age = now_s - sample.time_s
    old = [Row(line(TextSpan(f"{WARN} sampled {format_duration(age)} ago", "warn")))] if age > OLD_SAMPLE_S else []
    return old + gpu_rows(GpuScene(sample, recent, training), width, height)


NARROWEST_PLOT, SHORTEST_PLOT = 36, 6


def plots_rows(history: History, last_step: int | None, width: int, height: int) -> list[Row]:
    """Return as many plots as fit, most important first."""
    columns = next((columns for columns in (4, 2) if width // columns >= NARROWEST_PLOT), 1)
    lines = max(1, min(-(-4 // columns), height // SHORTEST_PLOT))
    cell_width, cell_height = width // columns, height // lines

    def plot(title: str, series: Series, number: Callable[[float | None], str], from_zero: bool) -> Sequence[Row]:
        newest = next((number(y) for y in reversed(series.ys) if y is not None and math.isfinite(y)), number(None))
        curve = Curve(newest, series.xs, series.ys)
        return curve_rows(title, (curve,), number, cell_width - 1, cell_height, from_zero=from_zero, last=last_step)

    drawn = (
        loss_curve(history.loss, cell_width - 1, cell_height, last_step),
        plot("eval loss", history.eval_loss, f.significant, False),
        plot(f"throughput, {history.samples_s.unit}", history.samples_s, f.significant, True),
        plot("peak memory", history.memory_bytes, format_size, True),
    )[: columns * lines]
    return [
        Row(line(*(fit(row.line, cell_width) for row in together)))
        for start in range(0, len(drawn), columns)
        for together in zip(*drawn[start : start + columns], strict=False)
    ]
