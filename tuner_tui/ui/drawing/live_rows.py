"""The live picture for any size: what is richest of what fits, and the least important rows go first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tuner_tui.hardware.sample import Sample
from tuner_tui.runs.history import History
from tuner_tui.runs.state import RunState
from tuner_tui.ui.drawing.cells import Row, Run, line
from tuner_tui.ui.drawing.glyphs import UNICODE, Glyphs
from tuner_tui.ui.drawing.gpu_rows import GpuScene, gpu_detail, gpu_table, trouble_rows
from tuner_tui.ui.drawing.host_rows import host_rows
from tuner_tui.ui.drawing.run_rows import RunScene, run_rows

CHART_HEIGHTS = (6, 4, 3, 2, 1)
BLANK = Row((), rank=9)


@dataclass(frozen=True, slots=True)
class LiveScene:
    """What there is to show: a run or none, the newest sample or none, the recent ones, and now (epoch seconds)."""

    now_s: float
    state: RunState | None = None
    history: History = History()
    sample: Sample | None = None
    recent: tuple[Sample, ...] = ()


def live_rows(scene: LiveScene, width: int, height: int, glyphs: Glyphs = UNICODE) -> list[Row]:
    """At most `height` rows of `width` cells."""
    run = _run(scene, width, glyphs)
    host = host_rows(scene.sample, scene.recent, width, glyphs) if scene.sample else []
    for gpus in _gpu_variants(scene, width, glyphs):
        rows = _joined(run, gpus, host)
        if len(rows) <= height:
            return rows
    return drop(_joined(run, gpus, host), height)


def _run(scene: LiveScene, width: int, glyphs: Glyphs) -> list[Row]:
    if scene.state is None:
        return (
            [] if scene.sample else [Row(line(Run("No run followed, no sample of the hardware yet.", "dim")))]
        )
    return run_rows(RunScene(scene.state, scene.now_s, scene.history, scene.sample), width, glyphs)


def _gpu_variants(scene: LiveScene, width: int, glyphs: Glyphs) -> Sequence[list[Row]]:
    """From rich to plain."""
    if scene.sample is None or not scene.sample.gpus:
        return [[]]
    gpus = GpuScene(scene.sample, scene.recent, scene.now_s)
    rich = []
    if len(scene.sample.gpus) <= 2:
        for height in CHART_HEIGHTS:
            details = [
                row for gpu in scene.sample.gpus for row in gpu_detail(gpus, gpu, width, height, glyphs)
            ]
            rich.append(details + trouble_rows(gpus, width, glyphs))
    return [*rich, gpu_table(gpus, width, glyphs)]


def _joined(*sections: list[Row]) -> list[Row]:
    rows: list[Row] = []
    for section in sections:
        if section:
            rows += [BLANK, *section] if rows else section
    return rows


def drop(rows: list[Row], height: int) -> list[Row]:
    """Leave out the rows of highest rank, the last first, until the rest fits."""
    surplus = len(rows) - height
    going = sorted(range(len(rows)), key=lambda i: (rows[i].rank, i), reverse=True)[: max(0, surplus)]
    return [row for index, row in enumerate(rows) if index not in going]
