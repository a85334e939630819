"""The live panel: what the run does now and what the box does under it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from textual.reactive import reactive

from tuner_tui.hardware.sample import Sample
from tuner_tui.runs.events.history import History
from tuner_tui.ui.drawing.cells import Row
from tuner_tui.ui.drawing.live_rows import LiveScene, live_rows
from tuner_tui.ui.drawing.recent import Recent, within_after
from tuner_tui.ui.widgets.canvas import Canvas

if TYPE_CHECKING:
    from tuner_tui.runs.read.reader import RunView

REMEMBERED_SAMPLES = 600
OWN_SAMPLE_AFTER_S = 4.0


class LivePanel(Canvas):
    """Shows `view`, the followed run; without one, the box alone by `sample`. `now_s` is seconds since the epoch."""

    view: reactive[RunView | None] = reactive(None, repaint=False)
    sample: reactive[Sample | None] = reactive(None, repaint=False)
    now_s: reactive[float] = reactive(0.0, repaint=False)

    def __init__(self, *, id: str | None = None, classes: str | None = None) -> None:
        super().__init__(id=id, classes=classes)
        self._seen = Recent(REMEMBERED_SAMPLES)
        self._of_run = Recent(REMEMBERED_SAMPLES)

    def watch_view(self, view: RunView | None) -> None:
        samples = () if view is None else view.samples
        if not samples or (self._of_run and samples[-1].time_s < self._of_run[-1].time_s):
            self._of_run.clear()
        for sample in within_after(samples, self._of_run[-1].time_s) if self._of_run else samples:
            self._of_run.append(sample)
        self.redraw()

    def watch_sample(self, sample: Sample | None) -> None:
        if sample is not None:
            self._seen.append(sample)
        self.redraw()

    def watch_now_s(self) -> None:
        self.redraw()

    def rows(self, width: int, height: int) -> Sequence[Row]:
        return live_rows(self._scene(), width, height)

    def _scene(self) -> LiveScene:
        view, seen = self.view, self._seen
        if view is None:
            return LiveScene(self.now_s, None, History(), self.sample, seen)
        limit = None if view.record is None else view.record.memory_limit_bytes
        if view.sample is not None and not self._is_behind(view.sample):
            return LiveScene(self.now_s, view.state, view.history, view.sample, self._of_run, limit)
        return LiveScene(self.now_s, view.state, view.history, self.sample, seen, limit)

    def _is_behind(self, sample: Sample) -> bool:
        """Whether the run's own samples have ended; while they come, both are new and only one is shown."""
        return self.sample is not None and sample.time_s < self.sample.time_s - OWN_SAMPLE_AFTER_S
