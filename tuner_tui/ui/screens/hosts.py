"""The hosts page: for each machine its GPUs and runs, what is free and what is wrong; enter opens a run there."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import ClassVar, NamedTuple

from textual.binding import BindingType
from textual.reactive import reactive

from tuner_tui.core.text import wrap_text
from tuner_tui.core.units import format_gib, format_percent, format_share, format_short_duration
from tuner_tui.hosts.host_state import HostState, HostView, describe_free, describe_problems, summarize
from tuner_tui.hosts.report import EndedRun, HostReport
from tuner_tui.runs.read.machine_monitor import WatchedJob, format_command, format_gpu_indices
from tuner_tui.ui.drawing.cells import (
    BAD,
    WARN,
    Line,
    Row,
    Style,
    TextSpan,
    align_left,
    join_fitting,
    line,
    line_width,
    shorten,
    text_width,
)
from tuner_tui.ui.drawing.machine_rows import GpuDetail, GpuScene, gpu_mark, gpu_problem_rows, gpu_rows, memory_share
from tuner_tui.ui.drawing.watch_rows import job_description, visible_rows
from tuner_tui.ui.keys import APP_KEYS, HOST_KEYS, HOSTS_KEYS
from tuner_tui.ui.messages import HostOpenWanted, HostsRetryWanted
from tuner_tui.ui.screens.sub_screen import PanelScreen
from tuner_tui.ui.screens.watch import jobs_by_gpu, training_cards
from tuner_tui.ui.terminal.base_widgets import Canvas

STYLES: dict[HostState, Style] = {
    HostState.CONNECTING: "dim", HostState.LIVE: "good", HostState.STALE: "warn", HostState.ABSENT: "warn",
    HostState.OLDER: "warn",
}  # fmt: skip
"""Of the other states: bad."""
GOOD_OUTCOMES = frozenset({"completed", "stopped"})
NAME, STATE, INDENT, RUN = 18, 15, 4, 7
MOST_OTHER_JOBS = 4
COMPACT, HARD_SPACE = "busy, memory: ", "\N{NO-BREAK SPACE}"
# The name becomes part of a command line on the host, so nothing but the form that this program gives is accepted.
_RUN_NAME = re.compile(r"r\d{1,9}", re.ASCII)


class HostPlace(NamedTuple):
    """What the cursor is on: a run of a host, or the host itself."""

    host: str
    run: str | None = None


def places_of(views: Sequence[HostView]) -> list[HostPlace]:
    """Return all places in the order of the page."""
    found: list[HostPlace] = []
    for view in views:
        found += [HostPlace(view.name), *(HostPlace(view.name, run) for run in _runs_of(view.report))]
    return found


def _runs_of(report: HostReport | None) -> list[str]:
    """Return the names of the runs that can be opened; a host may have called one anything."""
    if report is None:
        return []
    names = [job.run.run for job in report.jobs if job.run is not None] + [run.run for run in report.ended]
    return [name for name in dict.fromkeys(names) if _RUN_NAME.fullmatch(name)]


def hosts_rows(views: Sequence[HostView], cursor: HostPlace | None, width: int, height: int) -> list[Row]:
    """Return as many rows as fit, with the one under the cursor.

    Where not all fit, the GPUs of the hosts without the cursor share a row; then those of all hosts do.
    """
    rows, at = list[Row](), 0
    for in_full in ({view.name for view in views}, {"" if cursor is None else cursor.host}, set[str]()):
        rows, at = [], 0
        for view in views:
            chosen = cursor is not None and cursor.host == view.name
            found, place = host_rows(view, cursor if chosen else None, view.name in in_full, width)
            at = len(rows) + place if chosen else at
            rows += found
        if len(rows) <= height:
            return rows
    return visible_rows(rows, at, height)


def host_rows(view: HostView, cursor: HostPlace | None, in_full: bool, width: int) -> tuple[list[Row], int]:
    """Return the rows of a host, and the index of the one under the cursor."""
    rows = [Row(_head(view, cursor is not None and cursor.run is None, width))]
    rows += _problem_rows(view, width)
    report, at = view.report, 0
    if report is None:
        return rows, at
    rows += _indented(_gpu_rows(report, in_full, width - INDENT) if report.sample.gpus else [])
    known = _runs_of(report)
    others: list[WatchedJob] = []
    for job in report.jobs:
        if job.run is None:
            others.append(job)
            continue
        chosen = cursor is not None and cursor.run == job.run.run and job.run.run in known
        at = len(rows) if chosen else at
        rows.append(_run_row(job, chosen, width))
    rows += _other_rows(others, report.hidden_jobs, in_full, width)
    for ended in report.ended:
        chosen = cursor is not None and cursor.run == ended.run and ended.run in known
        at = len(rows) if chosen else at
        rows.append(_ended_row(ended, report.sample.time_s, chosen, width))
    return rows, at


def _head(view: HostView, chosen: bool, width: int) -> Line:
    emphasis: Style = "strong" if chosen else ""
    report = view.report
    age = "" if view.age_s is None else f"{format_short_duration(view.age_s // 10 * 10)} old"
    figures: list[str] = []
    if report is not None:
        host = report.sample.host
        figures = [
            describe_free(report),
            f"CPU {format_percent(host.cpu_pct)}",
            f"RAM {_ram(host.ram_used_bytes, host.ram_total_bytes)}",
        ]
    head = line(
        TextSpan("▸ " if chosen else "  ", "strong"),
        TextSpan(align_left(view.name, NAME) + " ", "strong"),
        TextSpan(align_left(view.state.value, STATE), STYLES.get(view.state, "bad")),
    )
    rest = join_fitting([age, *figures], max(0, width - line_width(head)))
    return line(*head, TextSpan(rest, emphasis if view.current is not None else "dim"))


def _ram(used: int | None, total: int | None) -> str:
    return f"{format_gib(used, 0).removesuffix(' GiB')}/{format_gib(total, 0)}"


def _problem_rows(view: HostView, width: int) -> list[Row]:
    style: Style = "warn" if view.state in STYLES else "bad"
    room = max(20, width - INDENT)
    rows = [
        Row(line(" " * INDENT, TextSpan(part, style)))
        for text in describe_problems(view)
        for part in wrap_text(f"{WARN} {text}", room, subsequent_indent="  ")
    ]
    advice = wrap_text(view.advice, room - 2) if view.advice else []
    return rows + [Row(line(" " * (INDENT + 2), TextSpan(part, "dim"))) for part in advice]


def _gpu_rows(report: HostReport, in_full: bool, width: int) -> list[Row]:
    scene = GpuScene(report.sample, (), training_cards(report), jobs_by_gpu(report))
    if in_full:
        return gpu_rows(scene, width, GpuDetail())[1:]
    cards = [
        f"{gpu.index}{gpu_mark(gpu)[0].strip()} {format_percent(gpu.utilisation_pct)} {format_share(memory_share(gpu))}"
        for gpu in report.sample.gpus
    ]
    shown = wrap_text(" · ".join(card.replace(" ", HARD_SPACE) for card in cards), max(20, width - len(COMPACT)))
    rows = [
        Row(line(TextSpan(" " * len(COMPACT) if number else COMPACT, "dim"), text.replace(HARD_SPACE, " ")))
        for number, text in enumerate(shown)
    ]
    return rows + gpu_problem_rows(scene, width)


def _run_row(job: WatchedJob, chosen: bool, width: int) -> Row:
    gpus = f"GPU {format_gpu_indices(job.gpus)}" if job.gpus else ""
    room = max(0, width - INDENT - 2 - text_width(gpus))
    what = job_description(job, room, "strong" if chosen else "")
    gap = " " * max(2, width - INDENT - line_width(what) - text_width(gpus))
    return Row(line(_mark(chosen), *what, gap, TextSpan(gpus, "dim")))


def _ended_row(run: EndedRun, now_s: float, chosen: bool, width: int) -> Row:
    good = run.outcome in GOOD_OUTCOMES
    ago = "" if run.ended_t is None else f"{format_short_duration(max(0.0, now_s - run.ended_t) // 60 * 60)} ago"
    name = TextSpan(f"{run.run:<{RUN}}", "strong" if chosen else "dim" if good else "")
    state = TextSpan(f"{'' if good else BAD + ' '}{run.outcome} ", "dim" if good else "bad")
    text = " ".join(filter(None, (ago, run.sentence)))
    room = max(0, width - INDENT - text_width(name.text) - text_width(state.text))
    return Row(line(_mark(chosen), name, state, TextSpan(shorten(text, room), "dim")))


def _other_rows(jobs: Sequence[WatchedJob], hidden: int, in_full: bool, width: int) -> list[Row]:
    """Return the jobs that are no runs: who uses the machine, the most GPU memory first."""
    shown = jobs[:MOST_OTHER_JOBS] if in_full else ()
    rows = []
    for job in shown:
        use = f"GPU {format_gpu_indices(job.gpus)} {format_gib(job.gpu_memory_bytes)} " if job.gpus else ""
        text = f"{job.user or '–'}  {use} {format_command(job.command)}"
        rows.append(Row(line(" " * INDENT, TextSpan(shorten(text, max(0, width - INDENT)), "dim"))))
    left = len(jobs) - len(shown) + hidden
    if left:
        words = f"{left} {'more' if shown else 'other'} job{'s' if left > 1 else ''}"
        rows.append(Row(line(" " * INDENT, TextSpan(words, "dim"))))
    return rows


def _mark(chosen: bool) -> TextSpan:
    return TextSpan("  ▸ " if chosen else " " * INDENT, "strong")


def _indented(rows: Sequence[Row]) -> list[Row]:
    return [Row(line(" " * INDENT, *row.line)) for row in rows]


class HostsPanel(Canvas, can_focus=True):
    """Shows `views`; `cursor` is a run or a host."""

    BINDINGS: ClassVar[list[BindingType]] = [*HOST_KEYS]
    REDRAW_ON = ("views", "cursor")

    views: reactive[tuple[HostView, ...]] = reactive((), repaint=False)
    cursor: reactive[HostPlace | None] = reactive(None, repaint=False)

    @property
    def chosen(self) -> HostPlace | None:
        """The place under the cursor; its host, where a run is gone; the first one at the start."""
        places = places_of(self.views)
        wanted = self.cursor
        if wanted is not None and wanted not in places:
            wanted = HostPlace(wanted.host)
        return wanted if wanted in places else next(iter(places), None)

    def rows(self, width: int, height: int) -> Sequence[Row]:
        return hosts_rows(self.views, self.chosen, width, height)

    def action_move(self, by: int) -> None:
        places, chosen = places_of(self.views), self.chosen
        if chosen is not None:
            self.cursor = places[max(0, min(len(places) - 1, places.index(chosen) + by))]

    def action_open(self) -> None:
        """Open the run under the cursor, or the screen of the host."""
        chosen = self.chosen
        if chosen is not None:
            self.post_message(HostOpenWanted(chosen.host, chosen.run))

    def action_retry(self) -> None:
        """Connect now to the hosts that could not be reached."""
        self.post_message(HostsRetryWanted())


HOSTS_GLOSSARY = (
    ("free", "a GPU without a job, with less than 1 GiB in use"),
    ("enter", "opens the run on its machine, in this terminal; q there comes back"),
    ("stale", "connected, but without news for 20 s: the figures are old"),
    ("needs login", "it asks for a password: enter logs in here, and the page uses that connection"),
    ("key changed", "another machine answers under this name, or it was installed anew; ssh refuses it"),
    ("bad data", "it sent too much, or other text than reports; it is tried again after five minutes, or with r"),
    ("clock", "ages of runs are by the clock of their machine"),
)


class HostsScreen(PanelScreen):
    """Shows `views`, which the app sets."""

    BINDINGS: ClassVar[list[BindingType]] = [*HOSTS_KEYS]
    HELP_KEYS = (*HOST_KEYS, *HOSTS_KEYS, *APP_KEYS)
    GLOSSARY = HOSTS_GLOSSARY

    panel: HostsPanel
    views: reactive[tuple[HostView, ...]] = reactive((), init=False, repaint=False)

    def __init__(self) -> None:
        super().__init__(HostsPanel(), "Hosts")

    def watch_views(self, views: tuple[HostView, ...]) -> None:
        self.panel.views = views
        self.set_panel_title(self.panel, f"Hosts · {summarize(views)}")
