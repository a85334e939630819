"""The watch screen: the GPUs, the host, and the jobs that run on them. It is read-only."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

from textual.binding import BindingType
from textual.content import Content
from textual.reactive import reactive

from tuner_tui.core.text import wrap_text
from tuner_tui.hardware.sample import Sample
from tuner_tui.runs.read.machine_monitor import format_command
from tuner_tui.ui.drawing.cells import WARN, Row, Style, TextSpan, line
from tuner_tui.ui.drawing.machine_rows import GpuDetail, GpuScene, extra_rows, gpu_rows, host_rows, most_detail
from tuner_tui.ui.drawing.sample_history import SampleHistory
from tuner_tui.ui.drawing.watch_rows import SORTS, JobScene, Place, job_places, job_rows, sorted_jobs
from tuner_tui.ui.keys import APP_KEYS, WATCH_JOB_KEYS, WATCH_KEYS
from tuner_tui.ui.panels.bars import KeyFooter
from tuner_tui.ui.panels.live import REMEMBERED_SAMPLES
from tuner_tui.ui.screens.sub_screen import SubScreen
from tuner_tui.ui.terminal.base_widgets import Canvas

if TYPE_CHECKING:
    from textual.app import ComposeResult

    from tuner_tui.runs.read.machine_monitor import MachineView, WatchedJob


class WatchedCardsPanel(Canvas):
    """Shows the GPUs of `view`, or only those in `only`, with the histories of `detail`."""

    view: reactive[MachineView | None] = reactive(None, repaint=False)
    only: reactive[tuple[int, ...]] = reactive((), repaint=False)
    detail: reactive[GpuDetail] = reactive(GpuDetail(), repaint=False)

    def __init__(self, *, id: str | None = None, classes: str | None = None) -> None:
        super().__init__(id=id, classes=classes)
        self._seen = SampleHistory(REMEMBERED_SAMPLES)
        self._drawn: tuple[MachineView | None, int, GpuDetail] | None = None
        self._rows: list[Row] = []

    def watch_view(self, view: MachineView | None) -> None:
        if view is not None:
            self._seen.append(view.sample)
        self.redraw()

    @property
    def cards(self) -> int:
        """Number of GPUs shown."""
        return 0 if self.view is None else len(filter_gpus(self.view.sample, self.only).gpus)

    def rows(self, width: int, height: int) -> Sequence[Row]:
        return self.picture(width)

    def picture(self, width: int) -> list[Row]:
        """Return all rows, drawn once per view: the screen asks for their number before they are shown."""
        drawn = (self.view, width, self.detail)
        if self._drawn is None or self._drawn[0] is not self.view or self._drawn != drawn:
            self._drawn, self._rows = drawn, self._draw_rows(width)
        return self._rows

    def _draw_rows(self, width: int) -> list[Row]:
        view = self.view
        if view is None:
            return [Row(line(TextSpan("asking the driver …", "dim")))]
        if view.problem is not None:
            return [*remark_rows(view.problem.sentence, width, WARN, "warn"), *remark_rows(view.problem.advice, width)]
        if not view.sample.gpus:
            return [Row(line(TextSpan("asking the driver …", "dim")))]
        scene = GpuScene(filter_gpus(view.sample, self.only), self._seen, training_cards(view), jobs_by_gpu(view))
        rows = gpu_rows(scene, width, self.detail)
        return rows + [row for note in view.notes for row in remark_rows(note, width)]


def training_cards(view: MachineView) -> frozenset[int]:
    """Return the GPUs of the runs of this program that train now, which should be busy."""
    return frozenset(
        gpu for job in view.jobs if job.run is not None and job.run.phase == "training" for gpu in job.gpus
    )


def jobs_by_gpu(view: MachineView) -> dict[int, str]:
    """Return what runs on each GPU: the run of this program, or the command of the job with most memory."""
    found: dict[int, str] = {}
    for job in sorted(view.jobs, key=lambda job: (job.run is not None, job.gpu_memory_bytes or 0)):
        run = "" if job.run is None else " ".join(filter(None, (job.run.run, job.run.preset)))
        words = run or format_command(job.command)
        if words:
            found.update(dict.fromkeys(job.gpus, words))
    return found


def filter_gpus(sample: Sample, only: Sequence[int]) -> Sample:
    """Return the sample with only the GPUs named, or with all if none is."""
    if not only:
        return sample
    return Sample(sample.time_s, tuple(gpu for gpu in sample.gpus if gpu.index in only), sample.host)


def remark_rows(text: str, width: int, mark: str = " ", style: Style = "dim") -> list[Row]:
    """Return a remark wrapped to the width, behind its mark."""
    parts = wrap_text(text, max(20, width), initial_indent=f"{mark} ", subsequent_indent="  ")
    return [Row(line(TextSpan(part, style))) for part in parts]


class WatchedHostPanel(Canvas):
    """Shows the host of `view`, with a history of the CPU of `chart` rows."""

    view: reactive[MachineView | None] = reactive(None, repaint=False)
    chart: reactive[int] = reactive(0, repaint=False)

    def __init__(self, *, id: str | None = None, classes: str | None = None) -> None:
        super().__init__(id=id, classes=classes)
        self._seen = SampleHistory(REMEMBERED_SAMPLES)
        self._drawn: tuple[MachineView | None, int, int] | None = None
        self._rows: list[Row] = []

    def watch_view(self, view: MachineView | None) -> None:
        if view is not None:
            self._seen.append(view.sample)
        self.redraw()

    def rows(self, width: int, height: int) -> Sequence[Row]:
        return self.picture(width)[:height]

    def picture(self, width: int) -> list[Row]:
        """Return all rows, drawn once per view."""
        view, drawn = self.view, (self.view, width, self.chart)
        if view is not None and (self._drawn is None or self._drawn[0] is not view or self._drawn != drawn):
            self._drawn = drawn
            self._rows = host_rows(view.sample, self._seen, width, self.chart, all_cores=False)
        return self._rows


RESORT_EVERY_S = 5.0
"""Rows that move every second cannot be read."""


class WatchedJobsPanel(Canvas, can_focus=True):
    """Shows the jobs of `view`, or the text `empty` if there are none."""

    BINDINGS: ClassVar[list[BindingType]] = [*WATCH_JOB_KEYS]
    REDRAW_ON = ("opened", "cursor")

    view: reactive[MachineView | None] = reactive(None, repaint=False)
    sort: reactive[str] = reactive(SORTS[0][0], repaint=False)
    opened: reactive[frozenset[int]] = reactive(frozenset(), repaint=False)
    cursor: reactive[Place | None] = reactive(None, repaint=False)
    empty: reactive[str] = reactive("no jobs", repaint=False)

    def __init__(self, *, id: str | None = None, classes: str | None = None) -> None:
        super().__init__(id=id, classes=classes)
        self._order: list[int] = []
        self._ordered_s = float("-inf")

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

    def rows(self, width: int, height: int) -> Sequence[Row]:
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
        place = self._place()
        if place is not None:
            places = job_places(self._ordered(), self.opened)
            self.cursor = places[max(0, min(len(places) - 1, places.index(place) + by))]

    def action_open(self) -> None:
        """Show the processes of the job under the cursor, or hide them."""
        place = self._place()
        if place is not None:
            self.cursor = (place[0], None)
            self.opened = self.opened ^ {place[0]}

    def _place(self) -> Place | None:
        """Return the row of the cursor; that of its job if its process has ended, the first if its job has ended."""
        if self.view is None or not self.view.jobs:
            return None
        places = job_places(self._ordered(), self.opened)
        job = None if self.cursor is None else (self.cursor[0], None)
        return next((place for place in (self.cursor, job) if place in places), places[0])

    def action_open_all(self) -> None:
        """Show the processes of all jobs, or hide them."""
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
MOST_HOST_CHART = 16
WATCH_GLOSSARY = (
    ("job", "a training with its loader workers, the ranks of a launcher, or a container's or shell's command"),
    ("SM %", "share of time its kernels ran on its GPUs; not how full the chip was"),
    ("GPU %", "share of time any kernel ran; power shows how hard the GPU works"),
    ("CPU %", "of one core: four busy threads are 400"),
    ("RSS", "resident memory; pages shared between processes count in each"),
    ("processes", "trainers + loader workers + others"),
    ("r007", "a run of tuner-tui with preset, step and time left"),
)


class WatchScreen(SubScreen):
    """Shows `view`. With `one_job` it shows the processes of a single job, and only its GPUs."""

    BINDINGS: ClassVar[list[BindingType]] = [*WATCH_KEYS]
    HELP_KEYS = (*WATCH_JOB_KEYS, *WATCH_KEYS, *APP_KEYS)
    GLOSSARY = WATCH_GLOSSARY
    DEFAULT_CSS = """
    WatchScreen { overflow: hidden; }
    WatchScreen > WatchedJobsPanel { height: 1fr; }
    """

    view: reactive[MachineView | None] = reactive(None, repaint=False)

    def __init__(self, one_job: bool, heading: str) -> None:
        super().__init__()
        self.cards = WatchedCardsPanel(classes="panel")
        self.host = WatchedHostPanel(classes="panel")
        self.jobs = WatchedJobsPanel(classes="panel")
        self._one_job = one_job
        self._rows = (0, 0)
        self._job_rows = MIN_JOB_ROWS
        self.cards.border_title = "GPUs"
        self.host.border_title = Content(heading)
        self.jobs.border_title = "Job" if one_job else "Jobs"

    def compose(self) -> ComposeResult:
        yield self.cards
        yield self.host
        yield self.jobs
        yield KeyFooter()

    def on_mount(self) -> None:
        self.jobs.focus()
        self.watch(self.jobs, "opened", self.on_resize, init=False)

    def on_resize(self) -> None:
        self._rows, self._job_rows = (0, 0), MIN_JOB_ROWS
        self._arrange()

    def watch_view(self, view: MachineView | None) -> None:
        if view is None:
            return
        if self._one_job:
            self._follow_one(view)
        for panel in (self.cards, self.host, self.jobs):
            panel.view = view
        self.set_panel_title(self.cards, cards_title(view))
        self._arrange()

    def _follow_one(self, view: MachineView) -> None:
        job = next(iter(view.jobs), None)
        self.jobs.empty = "The job has ended."
        if job is not None:
            self.cards.only = job.gpus
            if self.jobs.view is None or not self.jobs.view.jobs:
                self.jobs.opened = frozenset({job.pid})

    def _arrange(self) -> None:
        """Give GPUs, host and jobs the rows they need, and the rest to histories of the GPUs, or of the CPU.

        Panels do not shrink until the size changes, a job is opened or closed, or the jobs need more rows than ever:
        a GPU that is throttled every other second, or a short job, would move the whole screen each time.
        """
        width = max(1, self.size.width - 2 * FRAME)
        if self.jobs.wanted_rows > self._job_rows:
            self._rows, self._job_rows = (0, 0), self.jobs.wanted_rows
        number, charts = self.cards.cards, self.host.chart
        host = len(self.host.picture(width)) - charts if self.size.height >= LOW_HEIGHT else 1
        room = self.size.height - 1 - (max(1, host) + FRAME) - 2 * FRAME
        plain = len(self.cards.picture(width)) - extra_rows(number, self.cards.detail)
        cards = min(plain, max(3, room - MIN_JOB_ROWS))
        left = room - cards - self._job_rows
        if number:
            self.cards.detail = most_detail(number, left)
            cards += extra_rows(number, self.cards.detail)
        elif self.size.height >= LOW_HEIGHT and self.view is not None:
            self.host.chart = max(0, min(MOST_HOST_CHART, left))
            host += self.host.chart
        rows = max(cards, self._rows[0]), max(1, host, self._rows[1])
        if rows != self._rows:
            self._rows = rows
            self.cards.styles.height, self.host.styles.height = rows[0] + FRAME, rows[1] + FRAME


def cards_title(view: MachineView) -> str:
    """Return a title such as `GPUs · 8 × A100-SXM4-80GB`."""
    names: dict[str, int] = {}
    for gpu in view.sample.gpus:
        name = gpu.name.removeprefix("NVIDIA ")
        names[name] = names.get(name, 0) + 1
    return " · ".join(["GPUs", *(f"{number} × {name}" for name, number in names.items())])
