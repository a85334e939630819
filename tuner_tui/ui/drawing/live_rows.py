"""The live picture for any size: the richest that fits, and the least important rows go first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tuner_tui.hardware.sample import Sample
from tuner_tui.runs.events.history import History
from tuner_tui.runs.events.run_state import RunState
from tuner_tui.ui import format as f
from tuner_tui.ui.drawing.cells import Row, Run, fit, line, width_of
from tuner_tui.ui.drawing.gpu_rows import Detail, GpuScene, gpu_rows, rows_more
from tuner_tui.ui.drawing.host_rows import host_rows
from tuner_tui.ui.drawing.marks import WARN
from tuner_tui.ui.drawing.rank_rows import rank_rows
from tuner_tui.ui.drawing.run_rows import RunScene, run_rows

WITH_CARDS = (
    (Detail(6, 3), 4), (Detail(4, 3), 3), (Detail(3, 3), 2), (Detail(2, 3), 1), (Detail(1, 3), 1), (Detail(1, 3), 0),
    (Detail(1, 2), 0), (Detail(1, 1), 0), (Detail(1, 0), 0),
)  # fmt: skip
WITHOUT_CARDS = tuple((Detail(), chart) for chart in (10, 8, 6, 4, 3, 2, 1))
"""Rich to plain: what each card gets, and the lines of the processor's history."""
OLD_SAMPLE_S = 5.0
BLANK = Row(())


@dataclass(frozen=True, slots=True)
class LiveScene:
    """What there is to show: a run or none, the newest sample or none, recent ones, and now (epoch seconds).

    `limit_bytes` is the memory that the run may take at most.
    """

    now_s: float
    state: RunState | None
    history: History
    sample: Sample | None
    recent: Sequence[Sample]
    limit_bytes: int | None = None


def live_rows(scene: LiveScene, width: int, height: int) -> list[Row]:
    """At most `height` rows for a panel of `width` cells; a sign in the first says how many are left out."""
    run = _run_sections(scene, width)
    plain = [*run, *_box(scene, width, Detail(), 0, all_cores=True)]
    rows = _joined(plain, apart=True)
    if len(rows) <= height:
        detail, chart = _richest(scene, width, height - len(rows))
        return _joined([*run, *_box(scene, width, detail, chart, True)], apart=True) if chart or detail.chart else rows
    for sections, apart in ((plain, False), ([*run, *_box(scene, width, Detail(), 0, all_cores=False)], False)):
        rows = _joined(sections, apart)
        if len(rows) <= height:
            return rows
    left_out = len(rows) - height
    kept = without_least(rows, left_out)
    return [_signed(kept[0], left_out, width), *kept[1:]] if kept else []


def _richest(scene: LiveScene, width: int, room: int) -> tuple[Detail, int]:
    """The most detail that `room` more rows hold."""
    if scene.sample is None:
        return Detail(), 0
    cards = len(scene.sample.gpus)
    levels = WITH_CARDS if cards else WITHOUT_CARDS
    fitting = (level for level in levels if rows_more(cards, width, level[0]) + level[1] <= room)
    return next(fitting, (Detail(), 0))


def _box(scene: LiveScene, width: int, detail: Detail, chart: int, all_cores: bool) -> list[list[Row]]:
    """The cards and the host."""
    if scene.sample is None:
        return []
    gpus = gpu_rows(GpuScene(scene.sample, scene.recent), width, detail)
    host = host_rows(scene.sample, scene.recent, width, chart, all_cores)
    return [section for section in (_age_rows(scene.sample, scene.now_s) + gpus, host) if section]


def _run_sections(scene: LiveScene, width: int) -> list[list[Row]]:
    if scene.state is None:
        return [[Row(line(Run("no run followed", "dim")))]]
    run = RunScene(scene.state, scene.history, scene.sample, scene.now_s, scene.limit_bytes)
    return [section for section in (run_rows(run, width), rank_rows(scene.state, width)) if section]


def _age_rows(sample: Sample, now_s: float) -> list[Row]:
    age = now_s - sample.time_s
    return [Row(line(Run(f"{WARN} sampled {f.duration(age)} ago", "warn")))] if age > OLD_SAMPLE_S else []


def _joined(sections: Sequence[Sequence[Row]], apart: bool) -> list[Row]:
    rows: list[Row] = []
    for section in sections:
        rows += [BLANK, *section] if rows and apart else section
    return rows


def without_least(rows: Sequence[Row], number: int) -> list[Row]:
    """`rows` without the `number` that are least important; of equals the last go first."""
    order = sorted(range(len(rows)), key=lambda index: (rows[index].rank, index))
    kept = sorted(order[: len(rows) - number])
    return [rows[index] for index in kept]


def _signed(row: Row, left_out: int, width: int) -> Row:
    sign = f"+{left_out} row{'s' if left_out > 1 else ''}"
    room = width - len(sign)
    if room < width_of(row.line) + 1:
        return row
    return Row(line(*fit(row.line, room), Run(sign, "dim")), row.rank)
