"""The cards of the watch screen: one row each, and in words what is wrong with them or why there are none."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from textual.reactive import reactive

from tuner_tui.core.text import wrap_text
from tuner_tui.hardware.sample import Sample
from tuner_tui.ui.drawing.cells import Row, Run, line
from tuner_tui.ui.drawing.gpu_rows import Detail, GpuScene, gpu_rows
from tuner_tui.ui.drawing.marks import WARN
from tuner_tui.ui.drawing.recent import Recent
from tuner_tui.ui.panels.live import REMEMBERED_SAMPLES
from tuner_tui.ui.widgets.canvas import Canvas

if TYPE_CHECKING:
    from tuner_tui.runs.read.box_monitor import BoxView


class WatchedCardsPanel(Canvas):
    """Shows the cards of `view`, and only those of the job where `only` names them."""

    view: reactive[BoxView | None] = reactive(None, repaint=False)
    only: reactive[tuple[int, ...]] = reactive((), repaint=False)

    def __init__(self, *, id: str | None = None, classes: str | None = None) -> None:
        super().__init__(id=id, classes=classes)
        self._seen = Recent(REMEMBERED_SAMPLES)
        self._drawn: tuple[BoxView | None, int] | None = None
        self._rows: list[Row] = []

    def watch_view(self, view: BoxView | None) -> None:
        if view is not None:
            self._seen.append(view.sample)
        self.redraw()

    def rows(self, width: int, height: int) -> Sequence[Row]:
        return self.picture(width)

    def picture(self, width: int) -> list[Row]:
        """All rows, drawn once a view: the screen asks how many they are before the panel shows them."""
        if self._drawn is None or self._drawn[0] is not self.view or self._drawn[1] != width:
            self._drawn = (self.view, width)
            self._rows = self._draw_rows(width)
        return self._rows

    def _draw_rows(self, width: int) -> list[Row]:
        view = self.view
        if view is None:
            return [Row(line(Run("asking the driver …", "dim")))]
        if view.problem is not None:
            return [*sentences(view.problem.sentence, width), *quiet(view.problem.advice, width)]
        if not view.sample.gpus:
            return [Row(line(Run("asking the driver …", "dim")))]
        rows = gpu_rows(GpuScene(kept(view.sample, self.only), self._seen), width, Detail())
        return rows + [row for note in view.notes for row in quiet(note, width)]


def kept(sample: Sample, only: Sequence[int]) -> Sample:
    """The sample with those cards only; with all of them where none is named."""
    if not only:
        return sample
    return Sample(sample.time_s, tuple(gpu for gpu in sample.gpus if gpu.index in only), sample.host)


def sentences(text: str, width: int) -> list[Row]:
    """A problem, folded to the width."""
    return [
        Row(line(Run(part, "warn"))) for part in wrap_text(f"{WARN} {text}", max(20, width), subsequent_indent="  ")
    ]


def quiet(text: str, width: int) -> list[Row]:
    """A remark, folded to the width."""
    return [
        Row(line(Run(part, "dim")))
        for part in wrap_text(text, max(20, width), initial_indent="  ", subsequent_indent="  ")
    ]
