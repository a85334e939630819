"""The jobs on the box as a table: a row a job, its processes below it where it is open."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from tuner_tui.runs.read.box_monitor import WatchedJob, WatchedProcess, format_command, format_gpu_indices
from tuner_tui.runs.read.live_runs import LiveRun
from tuner_tui.ui import format as f
from tuner_tui.ui.drawing.cells import Line, Row, Run, Style, left, line, right, shorten, text_width

MARK = 2
SORTED = "▾"
NOWHERE = "not to be seen from here"


@dataclass(frozen=True, slots=True)
class Figures:
    """What a row of the table shows, whether of a job or of one process. Percent of one core; bytes; seconds."""

    pid: int
    user: str | None
    gpus: tuple[int, ...]
    gpu_memory_bytes: int | None
    sm_pct: float | None
    cpu_pct: float | None
    rss_bytes: int | None
    age_s: float | None
    crew: str


@dataclass(frozen=True, slots=True)
class Column:
    """A column: its heading, width, the narrowest table that has room for it, its figure."""

    name: str
    heading: str
    width: int
    from_width: int
    figure: Callable[[Figures], str]
    flush: Callable[[str, int], str] = right


COLUMNS = (
    Column("pid", "pid", 7, 0, lambda row: str(row.pid)),
    Column("user", " user", 10, 88, lambda row: f" {row.user or f.UNKNOWN}", left),
    Column("gpu", "GPU", 6, 0, lambda row: format_gpu_indices(row.gpus) or f.UNKNOWN),
    Column("memory", "GiB", 7, 0, lambda row: f.gib(row.gpu_memory_bytes)),
    Column("sm", "SM %", 6, 0, lambda row: f.whole(row.sm_pct)),
    Column("cpu", "CPU %", 7, 0, lambda row: f.whole(row.cpu_pct)),
    Column("rss", "RSS", 9, 64, lambda row: f.short_size(row.rss_bytes)),
    Column("age", "age", 8, 72, lambda row: age(row.age_s)),
    Column("crew", "processes", 11, 104, lambda row: row.crew),
)
"""`sm` is the share of its cards' time, `crew` trainers + loader workers + others."""
SORTS: tuple[tuple[str, Callable[[WatchedJob], float]], ...] = (
    ("memory", lambda job: job.gpu_memory_bytes or 0),
    ("sm", lambda job: job.sm_pct or 0.0),
    ("cpu", lambda job: job.cpu_pct or 0.0),
    ("rss", lambda job: job.rss_bytes or 0),
    ("age", lambda job: -(job.started_s or 0.0)),
)
"""What jobs can be sorted by, the largest first."""


@dataclass(frozen=True, slots=True)
class JobScene:
    """The jobs in the order shown, what they are sorted by, which are open, and where the cursor is (job's pid)."""

    jobs: Sequence[WatchedJob]
    now_s: float
    sort: str = "memory"
    opened: frozenset[int] = field(default_factory=frozenset)
    cursor: int | None = None
    empty: str = "no job to be seen"


def sorted_jobs(jobs: Sequence[WatchedJob], sort: str) -> list[WatchedJob]:
    """The largest first; equals by age."""
    key = dict(SORTS)[sort]
    return sorted(jobs, key=lambda job: (-key(job), job.started_s or 0.0, job.pid))


def job_rows(scene: JobScene, width: int, height: int) -> list[Row]:
    """The heading and as many rows as fit, the cursor among them; signs say what lies beyond."""
    columns = [column for column in COLUMNS if width >= column.from_width]
    top = heading(columns, scene.sort, width)
    if not scene.jobs:
        return [top, Row(line(Run(f"  {scene.empty}", "dim")))]
    rows: list[Row] = []
    at = 0
    for job in scene.jobs:
        if job.pid == scene.cursor:
            at = len(rows)
        rows.append(job_row(job, scene, columns, width))
        if job.pid in scene.opened:
            rows += [process_row(process, scene.now_s, columns, width) for process in job.processes]
    return [top, *window(rows, at, max(1, height - 1))][:height]


def window(rows: list[Row], at: int, height: int) -> list[Row]:
    """`height` of the rows with row `at` in sight; a sign stands for those beyond either end."""
    if len(rows) <= height:
        return rows
    top = max(0, min(at - height // 2, len(rows) - height))
    shown = rows[top : top + height]
    if top:
        shown[0] = more(top + 1)
    if top + height < len(rows):
        shown[-1] = more(len(rows) - top - height + 1)
    return shown


def more(rows: int) -> Row:
    """The sign for rows that are out of sight."""
    return Row(line(Run(f"  … {rows} more lines", "dim")))


def heading(columns: Sequence[Column], sort: str, width: int) -> Row:
    """The columns' names, a mark at what is sorted by."""
    cells = "".join(
        column.flush(column.heading if column.name != sort else SORTED + column.heading, column.width)
        for column in columns
    )
    return Row(line(Run(shorten(" " * MARK + cells + "  job", width), "dim")))


def job_row(job: WatchedJob, scene: JobScene, columns: Sequence[Column], width: int) -> Row:
    """One job."""
    chosen = job.pid == scene.cursor
    mark = Run("▾ " if job.pid in scene.opened else "▸ ", "strong" if chosen else "dim")
    figures = Figures(
        job.pid, job.user, job.gpus, job.gpu_memory_bytes, job.sm_pct, job.cpu_pct, job.rss_bytes,
        age_of(job.started_s, scene.now_s), crew_figures(job),
    )  # fmt: skip
    row = cells_of_row(figures, columns, "strong" if chosen else "")
    room = max(0, width - MARK - sum(column.width for column in columns) - 2)
    what = job_words(job, room, "strong" if chosen else "")
    return Row(line(mark, row, "  ", what))


def process_row(process: WatchedProcess, now_s: float, columns: Sequence[Column], width: int) -> Row:
    """One process of an open job, quieter than its job."""
    figures = Figures(
        process.pid, process.user, process.gpus, process.gpu_memory_bytes, process.sm_pct, process.cpu_pct,
        process.rss_bytes, age_of(process.started_s, now_s), process.role,
    )  # fmt: skip
    row = cells_of_row(figures, columns, "dim")
    room = max(0, width - MARK - sum(column.width for column in columns) - 4)
    command = shorten(format_command(process.command) or NOWHERE, room)
    return Row(line(" " * MARK, row, Run("    " + command, "dim")))


def cells_of_row(figures: Figures, columns: Sequence[Column], style: Style) -> Run:
    """The figures in their columns."""
    return Run("".join(column.flush(column.figure(figures), column.width) for column in columns), style)


def job_words(job: WatchedJob, room: int, style: Style) -> Line:
    """What the job is: a run of ours by name and step, anything else by its command line."""
    if job.run is None:
        command = format_command(job.command)
        return line(Run(shorten(command or NOWHERE, room), style if command else "dim"))
    name = " ".join(part for part in (job.run.run, job.run.preset) if part)
    state = "  ".join(part for part in run_words(job.run) if part)
    if state:
        state = "  " + state
    state = shorten(state, max(0, room - text_width(name)))
    return line(Run(shorten(name, room), "good" if job.run.phase != "stalled" else "warn"), Run(state, style))


def run_words(run: LiveRun) -> tuple[str, ...]:
    """How far one of our runs is: phase, step, time left."""
    step = "" if run.step is None else f"{run.step:,}" + (f"/{run.total_steps:,}" if run.total_steps else "")
    share = f.share(run.step / run.total_steps) if run.step is not None and run.total_steps else ""
    left_s = "" if run.eta_s is None else f"{f.roughly(run.eta_s)} left"
    return ("" if run.phase == "training" else run.phase or "", step, share, left_s)


def crew_figures(job: WatchedJob) -> str:
    """`8+64+1`: trainers, loader workers, others; a single process is `1`."""
    roles = [process.role for process in job.processes]
    counts = [roles.count("main"), roles.count("worker"), roles.count("other")]
    while len(counts) > 1 and not counts[-1]:
        counts.pop()
    return "+".join(map(str, counts)) if counts[0] else str(len(roles))


def age(seconds: float | None) -> str:
    """An age in whole minutes at the finest: seconds would be painted anew each second, in every row."""
    return "<1 min" if seconds is not None and seconds < 60 else f.short(seconds and max(90.0, seconds))


def age_of(started_s: float | None, now_s: float) -> float | None:
    """Seconds since a start."""
    return None if started_s is None else max(0.0, now_s - started_s)
