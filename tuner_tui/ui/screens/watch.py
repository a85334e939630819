"""The watch screen: the GPUs, the host, and the jobs that run on them. It is read-only."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from textual.content import Content
from textual.reactive import reactive

from tuner_tui.ui.drawing.gpu_rows import extra_rows, most_detail
from tuner_tui.ui.keys import APP_KEYS, WATCH_JOB_KEYS, WATCH_KEYS
from tuner_tui.ui.messages import QuitWanted
from tuner_tui.ui.panels.watch import WatchedCardsPanel, WatchedHostPanel, WatchedJobsPanel
from tuner_tui.ui.screens.sub_screen import SubScreen
from tuner_tui.ui.widgets.key_footer import KeyFooter

if TYPE_CHECKING:
    from textual.app import ComposeResult
    from textual.binding import BindingType

    from tuner_tui.runs.read.machine_monitor import MachineView

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

        Panels do not shrink until the size changes, or a job is opened or closed: a GPU that is throttled every other
        second, or a short job, would move the whole screen each time.
        """
        width = max(1, self.size.width - 2 * FRAME)
        self._job_rows = max(self._job_rows, self.jobs.wanted_rows)
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

    def action_leave(self) -> None:
        """Leave the screen."""
        self.post_message(QuitWanted())


def cards_title(view: MachineView) -> str:
    """Return a title such as `GPUs · 8 × A100-SXM4-80GB`."""
    names: dict[str, int] = {}
    for gpu in view.sample.gpus:
        name = gpu.name.removeprefix("NVIDIA ")
        names[name] = names.get(name, 0) + 1
    return " · ".join(["GPUs", *(f"{number} × {name}" for name, number in names.items())])
