"""The live panel: run, GPUs and host, as detailed as the panel has room for; the least important rows go first."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from textual.reactive import reactive

from tuner_tui.core.units import format_duration
from tuner_tui.ui.drawing import number_format as f
from tuner_tui.ui.drawing.cells import (
    BLANK,
    LABEL,
    WARN,
    Row,
    TextSpan,
    fit,
    join_sections,
    labelled_row,
    line,
    line_width,
    shorten,
)
from tuner_tui.ui.drawing.charts import Plot, plot_rows, run_curve
from tuner_tui.ui.drawing.machine_rows import (
    GpuDetail,
    GpuScene,
    extra_rows,
    gpu_rows,
    host_rows,
    most_detail,
    training_gpus,
)
from tuner_tui.ui.drawing.run_rows import RunScene, rank_rows, run_rows
from tuner_tui.ui.drawing.sample_history import SampleHistory, samples_after
from tuner_tui.ui.terminal.base_widgets import Canvas

if TYPE_CHECKING:
    from tuner_tui.hardware.sample import Sample
    from tuner_tui.runs.events.history import History, Series
    from tuner_tui.runs.events.run_state import RunState
    from tuner_tui.runs.read.reader import RunView


HOST_CHARTS = (16, 13, 10, 8, 6, 5, 4, 3, 2, 1, 0)
"""Heights of the history of the CPU, for the rows that the GPUs leave."""
MAX_HOST_CHART_BELOW_GPUS = 5
PLOT_MIN_HEIGHT, PLOT_MAX_HEIGHT = 6, 16
WIDEST_CURVE = 60
DETAIL_RANK = 4
"""Rows of this rank and above make room for the loss curve."""
OLD_SAMPLE_S = 5.0


class LiveScene(NamedTuple):
    """What there is to show: a run or none, the newest sample or none, recent ones, and now (epoch seconds).

    `limit_bytes` is the memory that the run may take at most. `plots_loss` is False where the loss curve is drawn in
    another panel. `next_training` is what would be trained, as labels and texts, shown while there is no run.
    """

    now_s: float
    state: RunState | None
    history: History | None
    sample: Sample | None
    recent: Sequence[Sample]
    limit_bytes: int | None = None
    plots_loss: bool = True
    next_training: tuple[tuple[str, str], ...] = ()


def live_rows(scene: LiveScene, width: int, height: int) -> list[Row]:
    """Return at most `height` rows of `width` cells; one of them says how many were dropped."""
    # The first of these that fits is shown:
    # 1. all rows and a plot of the loss below them, if need be without details and blank lines;
    # 2. all rows, with charts of GPUs and processor in the rows that are left;
    # 3. all rows without blank lines, then with one row for all cores;
    # 4. the rows of the lowest ranks, and a sign that counts the others.
    run = _run_sections(scene, width)
    plain = _arranged(scene, run, _machine(scene, width, GpuDetail(), 0, all_cores=True))
    rows = join_sections(plain)
    loss = None if scene.history is None else scene.history.loss
    if scene.plots_loss and scene.state is not None and loss is not None and len(loss.xs) > 1:
        with_plot = _with_plot(loss, scene.state.last_step, plain, width, height)
        if with_plot:
            return with_plot
        if scene.state.finished is None:
            run = _with_curve(loss, scene.state, run, width)
        plain = _arranged(scene, run, _machine(scene, width, GpuDetail(), 0, all_cores=True))
        rows = join_sections(plain)
    room = height - len(rows)
    if room >= 0:
        detail, chart = _most_detail(scene, room)
        if chart or detail.chart:
            return join_sections(_arranged(scene, run, _machine(scene, width, detail, chart, True)))
        return rows
    few = _arranged(scene, run, _machine(scene, width, GpuDetail(), 0, all_cores=False))
    for sections in (plain, few):
        rows = join_sections(sections, apart=False)
        if len(rows) <= height:
            return rows
    left_out = len(rows) - height
    remaining = drop_least_important(rows, left_out)
    return _with_hidden_count(remaining, left_out, width)


def _with_plot(
    loss: Series, last_step: int | None, sections: Sequence[Sequence[Row]], width: int, height: int
) -> list[Row]:
    """Return the rows with the loss curve below them, at the cost of details and blank lines; none without room."""
    without_details = [[row for row in section if row.rank < DETAIL_RANK] for section in sections]
    for kept, apart in ((sections, True), (without_details, True), (without_details, False)):
        rows = join_sections(kept, apart) + [BLANK] * apart
        room = height - len(rows)
        if room >= PLOT_MIN_HEIGHT + apart:
            plot = Plot("loss, smoothed", loss, f.significant, False, False, last_step)
            return [*rows, *plot_rows(plot, width, min(room, PLOT_MAX_HEIGHT))]
    return []


def _with_curve(loss: Series, state: RunState, run: list[list[Row]], width: int) -> list[list[Row]]:
    """Return the rows of the run and one of the loss curve, for which a plot has no room."""
    curve = run_curve(loss, state.total_steps, min(WIDEST_CURVE, width - LABEL))
    return [[*run[0], labelled_row("curve", TextSpan(curve, "gauge"), rank=3)], *run[1:]]


def _arranged(scene: LiveScene, run: list[list[Row]], machine: list[list[Row]]) -> list[list[Row]]:
    """While a run goes on its gauges come first; what would be trained, or how a run ended, comes before them."""
    runs = scene.state is not None and scene.state.finished is None
    return [*machine, *run] if runs else [*run, *machine]


def _most_detail(scene: LiveScene, room: int) -> tuple[GpuDetail, int]:
    """Return the most detailed level that fits into `room` more rows."""
    if scene.sample is None:
        return GpuDetail(), 0
    cards = len(scene.sample.gpus)
    detail = most_detail(cards, room)
    left = room - extra_rows(cards, detail)
    return detail, next(
        chart for chart in HOST_CHARTS if chart <= min(left, MAX_HOST_CHART_BELOW_GPUS if cards else left)
    )


def _machine(scene: LiveScene, width: int, detail: GpuDetail, chart: int, all_cores: bool) -> list[list[Row]]:
    if scene.sample is None:
        return []
    trains = scene.state is not None and scene.state.finished is None and scene.state.phase == "training"
    training = training_gpus(scene.sample) if trains else frozenset()
    gpus = gpu_rows(GpuScene(scene.sample, scene.recent, training), width, detail)
    host = host_rows(scene.sample, scene.recent, width, chart, all_cores)
    found = (_age_rows(scene.sample, scene.now_s) + gpus, host)
    return [section for section in found if section]


def _run_sections(scene: LiveScene, width: int) -> list[list[Row]]:
    if scene.state is None:
        ready = [
            labelled_row(label, shorten(text, width - LABEL), rank=DETAIL_RANK) for label, text in scene.next_training
        ]
        return [ready] if ready else []
    run = RunScene(scene.state, scene.sample, scene.now_s, scene.limit_bytes)
    return [section for section in (run_rows(run, width), rank_rows(scene.state, width)) if section]


def _age_rows(sample: Sample, now_s: float) -> list[Row]:
    age = now_s - sample.time_s
    return [Row(line(TextSpan(f"{WARN} sampled {format_duration(age)} ago", "warn")))] if age > OLD_SAMPLE_S else []


def drop_least_important(rows: Sequence[Row], number: int) -> list[Row]:
    """Return `rows` without the `number` rows of highest rank; among equals the last are dropped first."""
    order = sorted(range(len(rows)), key=lambda index: (rows[index].rank, index))
    remaining = sorted(order[: len(rows) - number])
    return [rows[index] for index in remaining]


def _with_hidden_count(rows: list[Row], left_out: int, width: int) -> list[Row]:
    """Say at the end of the first row with room how many rows were left out."""
    sign = f"+{left_out} row{'s' if left_out > 1 else ''}"
    room = width - len(sign)
    at = next((at for at, row in enumerate(rows) if line_width(row.line) < room), None)
    if at is None:
        return rows
    signed = Row(line(*fit(rows[at].line, room), TextSpan(sign, "dim")), rows[at].rank)
    return [*rows[:at], signed, *rows[at + 1 :]]


def _extend(history: SampleHistory, samples: Sequence[Sample]) -> None:
    """Append what is new of `samples`; those of another run replace the history."""
    # A view holds the recent samples of its run, most of which are known already: only newer ones are appended, because
    # the history keeps ten minutes and sums over them. Older ones mean that another run is followed.
    if not samples or (history and samples[-1].time_s < history[-1].time_s):
        history.clear()
    for sample in samples_after(samples, history[-1].time_s) if history else samples:
        history.append(sample)


REMEMBERED_SAMPLES = 600
# The supervisor samples once a second; four seconds allow for a busy disk. After that its process hangs or is dead.
RUN_SAMPLES_STALE_S = 4.0


class LivePanel(Canvas):
    """Shows `view`, the followed run, or only the machine by `sample`. `now_s` is in seconds since the epoch.

    `plots_loss`: the loss curve is drawn here, and nowhere else on the screen.
    """

    REDRAW_ON = ("now_s", "plots_loss", "next_training")

    view: reactive[RunView | None] = reactive(None, repaint=False)
    sample: reactive[Sample | None] = reactive(None, repaint=False)
    now_s: reactive[float] = reactive(0.0, repaint=False)
    plots_loss: reactive[bool] = reactive(True, repaint=False)
    next_training: reactive[tuple[tuple[str, str], ...]] = reactive((), repaint=False)

    def __init__(self, *, id: str | None = None, classes: str | None = None) -> None:
        super().__init__(id=id, classes=classes)
        self._seen = SampleHistory(REMEMBERED_SAMPLES)
        self._of_run = SampleHistory(REMEMBERED_SAMPLES)

    def watch_view(self, view: RunView | None) -> None:
        _extend(self._of_run, () if view is None else view.samples)
        self.redraw()

    def watch_sample(self, sample: Sample | None) -> None:
        if sample is not None:
            self._seen.append(sample)
        self.redraw()

    def rows(self, width: int, height: int) -> Sequence[Row]:
        return live_rows(self._scene(), width, height)

    def _scene(self) -> LiveScene:
        view, seen = self.view, self._seen
        if view is None:
            return LiveScene(self.now_s, None, None, self.sample, seen, next_training=self.next_training)
        limit = None if view.record is None else view.record.memory_limit_bytes
        if view.sample is not None and not self._is_behind(view.sample):
            return LiveScene(self.now_s, view.state, view.history, view.sample, self._of_run, limit, self.plots_loss)
        return LiveScene(self.now_s, view.state, view.history, self.sample, seen, limit, self.plots_loss)

    def _is_behind(self, sample: Sample) -> bool:
        """True if the samples of the run's supervisor have stopped; until then they are shown instead of our own."""
        return self.sample is not None and sample.time_s < self.sample.time_s - RUN_SAMPLES_STALE_S
