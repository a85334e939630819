"""The watch screen: the GPUs, the host, and the jobs that run on them. It is read-only."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

from textual.app import ComposeResult
from textual.binding import BindingType
from textual.content import Content
from textual.reactive import reactive

from tuner_tui.core.units import format_short_duration
from tuner_tui.ui.keys import GLOSSARIES, KEYS
from tuner_tui.ui.panels.bars import KeyFooter
from tuner_tui.ui.screens.full_screen import FullScreen
from tuner_tui.ui.terminal.base_widgets import Canvas, RowsPanel, set_border_text
from tuner_tui.view.cells import Line, join_fitting, text_width
from tuner_tui.view.host_rows import LOW_CHART, host_rows
from tuner_tui.view.sample_history import WINDOWS, SampleHistory, Window, following_window, shown_past
from tuner_tui.view.watch_rows import (
    SORTS,
    JobScene,
    Place,
    gpus_in_sum,
    gpus_title,
    job_places,
    job_rows,
    sorted_jobs,
    watched_gpu_rows,
)

if TYPE_CHECKING:
    from tuner_tui.hardware.sample import Sample
    from tuner_tui.runs.read.machine_monitor import MachineView, WatchedJob


RESORT_EVERY_S = 5.0
"""Rows that move every second cannot be read."""


class WatchedJobsPanel(Canvas, can_focus=True):
    """Shows the jobs of `view`, or the text `empty` if there are none."""

    BINDINGS: ClassVar[list[BindingType]] = [*KEYS["watch jobs"], *KEYS["watch rows"]]

    view: reactive[MachineView | None] = reactive(None, repaint=False)
    sort: reactive[str] = reactive(SORTS[0][0], repaint=False)
    opened: reactive[frozenset[int]] = reactive(frozenset(), repaint=False)
    cursor: reactive[Place | None] = reactive(None, repaint=False)
    empty: reactive[str] = reactive("no jobs", repaint=False)

    _order: Sequence[int] = ()
    _ordered_s = float("-inf")

    def watch_view(self, before: MachineView | None, view: MachineView | None) -> None:
        if before is None or view is None or before.jobs is not view.jobs:
            self.redraw()

    @property
    def wanted_rows(self) -> int:
        """Rows of the heading, of all jobs, and of the processes of open ones."""
        jobs = () if self.view is None else self.view.jobs
        return 1 + sum(1 + (len(job.processes) if job.pid in self.opened else 0) for job in jobs)

    def watch_sort(self) -> None:
        self._ordered_s = float("-inf")
        self.redraw()

    def rows(self, width: int, height: int) -> Sequence[Line]:
        view = self.view
        if view is None:
            return []
        jobs = self._ordered()
        return job_rows(
            JobScene(jobs, view.sample.time_s, self.sort, self.opened, self._place(), self.empty), width, height
        )

    def action_sort(self) -> None:
        names = [name for name, _ in SORTS]
        self.sort = names[(names.index(self.sort) + 1) % len(names)]

    def action_move(self, by: int) -> None:
        """Move the cursor by rows: jobs, and the processes of expanded ones."""
        cursor = self._place()
        if cursor is not None:
            places = job_places(self._ordered(), self.opened)
            self.cursor = places[max(0, min(len(places) - 1, places.index(cursor) + by))]

    def action_open(self) -> None:
        cursor = self._place()
        if cursor is not None:
            self.cursor = (cursor[0], None)
            self.opened = self.opened ^ {cursor[0]}

    def _place(self) -> Place | None:
        """Return the row of the cursor; that of its job if its process has ended, the first if its job has ended."""
        if self.view is None or not self.view.jobs:
            return None
        places = job_places(self._ordered(), self.opened)
        job = None if self.cursor is None else (self.cursor[0], None)
        return next((candidate for candidate in (self.cursor, job) if candidate in places), places[0])

    def action_open_all(self) -> None:
        pids = frozenset(self._order)
        self.opened = frozenset() if pids <= self.opened else pids

    def _ordered(self) -> list[WatchedJob]:
        """Return the jobs in order; the order is updated every few seconds, and when jobs start or end."""
        assert self.view is not None
        jobs = {job.pid: job for job in self.view.jobs}
        now_s = self.view.sample.time_s
        if set(self._order) != jobs.keys() or not 0 <= now_s - self._ordered_s < RESORT_EVERY_S:
            self._order = [job.pid for job in sorted_jobs(self.view.jobs, self.sort)]
            self._ordered_s = now_s
        return [jobs[pid] for pid in self._order]


FRAME = 2
"""Rows taken by a panel's border; border and padding take twice as many columns."""
LOW_HEIGHT = 30
"""Height below which the host gets a single row."""
MIN_JOB_ROWS = 5


class WatchScreen(FullScreen):
    """Shows `view`. With `one_job` it shows the processes of a single job, and only its GPUs.

    Histories begin with samples from `earlier` on.
    """

    BINDINGS: ClassVar[list[BindingType]] = [*KEYS["watch"]]
    HELP_KEYS = (*KEYS["watch jobs"], *KEYS["watch rows"], *KEYS["watch"], *KEYS["app"])
    GLOSSARY = GLOSSARIES["watch"]

    view: reactive[MachineView | None] = reactive(None, repaint=False)
    window: reactive[Window] = reactive(WINDOWS[0], repaint=False)

    def __init__(self, one_job: bool, heading: str, earlier: Sequence[Sample] = ()) -> None:
        super().__init__()
        self.gpus, self.host = (RowsPanel(lambda rows, _: rows, (), classes="panel") for _ in range(2))
        self.jobs = WatchedJobsPanel(classes="panel")
        self._one_job = one_job
        self._only: tuple[int, ...] = ()
        self._seen = SampleHistory()
        for sample in earlier:
            self._seen.append(sample)
        self._rows = (0, 0)
        self._job_rows = MIN_JOB_ROWS
        self.gpus.border_title = "GPUs"
        self.host.border_title = Content(heading)
        self.jobs.border_title = "Job" if one_job else "Jobs"

    def compose(self) -> ComposeResult:
        yield self.gpus
        yield self.host
        yield self.jobs
        yield KeyFooter()

    def on_mount(self) -> None:
        self.jobs.focus()
        self.watch(self.jobs, "opened", self.on_resize, init=False)

    def on_resize(self) -> None:
        self._rows, self._job_rows = (0, 0), MIN_JOB_ROWS
        self._arrange()

    def action_window(self) -> None:
        """Show the next longer past in histories, after the longest the shortest."""
        self.window = following_window(self.window)
        self._arrange()

    def watch_view(self, view: MachineView | None) -> None:
        if view is None:
            return
        self._seen.append(view.sample)
        job = next(iter(view.jobs), None)
        if self._one_job:
            self.jobs.empty = "The job has ended."
            if job is not None:
                self._only = job.gpus
                if self.jobs.view is None or not self.jobs.view.jobs:
                    self.jobs.opened = frozenset({job.pid})
        self.jobs.view = view
        self._arrange()

    def _arrange(self) -> None:
        """Give GPUs, host and jobs the rows they need, and the rest to histories of the GPUs, or of the CPU.

        Panels do not shrink until the size changes, a job is opened or closed, or the jobs need more rows than ever:
        a GPU that is throttled every other second, or a short job, would move the whole screen each time.
        """
        view, width = self.view, max(1, self.size.width - 2 * FRAME)
        past_s = shown_past(self._seen, self.window, 0.0 if view is None else view.sample.time_s)
        if view is not None:
            states = gpus_in_sum(view, self._seen).split(" · ") if view.sample.gpus else []
            shown = f"last {format_short_duration(past_s)} · z {following_window(self.window).name}"
            title = join_fitting([gpus_title(view), *states], width - text_width(shown) - FRAME)
            set_border_text(self.gpus, f"{title} · {shown}")
        if self.jobs.wanted_rows > self._job_rows:
            self._rows, self._job_rows = (0, 0), self.jobs.wanted_rows
        low = self.size.height < LOW_HEIGHT
        host = [] if view is None else host_rows(view.sample, self._seen, width, 0)
        host = host[:1] if low else host
        room = self.size.height - 1 - (max(1, len(host)) + FRAME) - 2 * FRAME
        left = room - self._job_rows
        gpus = watched_gpu_rows(view, self._seen, self._only, width, left - LOW_CHART, past_s)
        # Until the driver has answered there may be GPUs, whose histories come first.
        if view is not None and (view.problem is not None or view.sample.gpus) and not low:
            host = host_rows(view.sample, self._seen, width, left - len(gpus), past_s)
        self.gpus.values, self.host.values = (gpus,), (host,)
        most = max(3, room - MIN_JOB_ROWS)
        rows = max(min(len(gpus), most), self._rows[0]), max(1, len(host), self._rows[1])
        if rows != self._rows:
            self._rows = rows
            self.gpus.styles.height, self.host.styles.height = rows[0] + FRAME, rows[1] + FRAME
