"""The jobs of the watch screen: a table with a cursor, sorted as asked, each job open or closed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

from textual.binding import BindingType
from textual.reactive import reactive

from tuner_tui.ui.drawing.cells import Row
from tuner_tui.ui.drawing.job_rows import SORTS, JobScene, job_rows, sorted_jobs
from tuner_tui.ui.keys import WATCH_JOB_KEYS
from tuner_tui.ui.widgets.canvas import Canvas

if TYPE_CHECKING:
    from tuner_tui.runs.read.box_monitor import BoxView, WatchedJob

RESORT_EVERY_S = 5.0
"""Rows that change places each second cannot be read."""


class WatchedJobsPanel(Canvas, can_focus=True):
    """Shows the jobs of `view`. `empty` is what stands there where there is none."""

    BINDINGS: ClassVar[list[BindingType]] = [*WATCH_JOB_KEYS]

    view: reactive[BoxView | None] = reactive(None, repaint=False)
    sort: reactive[str] = reactive(SORTS[0][0], repaint=False)
    opened: reactive[frozenset[int]] = reactive(frozenset(), repaint=False)
    cursor: reactive[int | None] = reactive(None, repaint=False)
    empty: reactive[str] = reactive("no job to be seen", repaint=False)

    def __init__(self, *, id: str | None = None, classes: str | None = None) -> None:
        super().__init__(id=id, classes=classes)
        self._order: list[int] = []
        self._ordered_s = float("-inf")

    def watch_view(self, before: BoxView | None, view: BoxView | None) -> None:
        if before is None or view is None or before.jobs is not view.jobs:
            self.redraw()

    def watch_sort(self) -> None:
        self._ordered_s = float("-inf")
        self.redraw()

    def watch_opened(self) -> None:
        self.redraw()

    def watch_cursor(self) -> None:
        self.redraw()

    def rows(self, width: int, height: int) -> Sequence[Row]:
        view = self.view
        if view is None:
            return []
        jobs = self._ordered()
        pids = [job.pid for job in jobs]
        cursor = self.cursor if self.cursor in pids or not pids else pids[0]
        return job_rows(JobScene(jobs, view.sample.time_s, self.sort, self.opened, cursor, self.empty), width, height)

    def action_sort(self) -> None:
        """Sort by the next figure."""
        names = [name for name, _ in SORTS]
        self.sort = names[(names.index(self.sort) + 1) % len(names)]

    def action_move(self, by: int) -> None:
        """The cursor some jobs on, or back where `by` is negative."""
        if self._order:
            at = self._order.index(self.cursor) if self.cursor in self._order else 0
            self.cursor = self._order[max(0, min(len(self._order) - 1, at + by))]

    def action_open(self) -> None:
        """Show the processes of the job under the cursor, or hide them."""
        if self._order:
            pid = self.cursor if self.cursor in self._order else self._order[0]
            self.opened = self.opened ^ {pid}

    def action_open_all(self) -> None:
        """Show the processes of all jobs, or hide them."""
        pids = frozenset(self._order)
        self.opened = frozenset() if pids <= self.opened else pids

    def _ordered(self) -> list[WatchedJob]:
        """The jobs in their order, which is kept for a while; new ones come at once."""
        assert self.view is not None
        jobs = {job.pid: job for job in self.view.jobs}
        now_s = self.view.sample.time_s
        if set(self._order) != jobs.keys() or not 0 <= now_s - self._ordered_s < RESORT_EVERY_S:
            self._order = [job.pid for job in sorted_jobs(self.view.jobs, self.sort)]
            self._ordered_s = now_s
        return [jobs[pid] for pid in self._order]
