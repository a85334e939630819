"""A watched machine: its GPUs, and its jobs as a table with their processes where they are expanded."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from msgspec.structs import replace

from tuner_tui.core.units import UNKNOWN, format_rough_duration, format_share, format_short_duration
from tuner_tui.view import number_format as f
from tuner_tui.view.cells import (
    WARN,
    Line,
    Part,
    Style,
    TextSpan,
    align_left,
    align_right,
    join_fitting,
    line,
    line_width,
    shorten,
    text_width,
    visible_rows,
    wrapped_rows,
)
from tuner_tui.view.gpu_rows import GpuScene, format_indices, gpu_rows, is_busy, is_known
from tuner_tui.view.host_rows import host_rows
from tuner_tui.view.status_line import progress_bar

if TYPE_CHECKING:
    from tuner_tui.hardware.sample import GpuSample, Sample
    from tuner_tui.runs.read.machine_monitor import LiveRun, MachineView, WatchedJob, WatchedProcess
    from tuner_tui.runs.read.reader import RunRow

MARK = 2
WIDEST_GPUS = 16
PROGRESS = 16
"""Cells of a run's progress."""
SORTED = "▾"
UNKNOWN_COMMAND = "not visible from here"


class JobColumn(NamedTuple):
    """A column of the table; `from_width` is the narrowest table that shows it.

    `figure` formats the value of a job or a process at a time in seconds since the epoch.
    """

    name: str
    heading: str
    width: int
    from_width: int
    figure: Callable[[WatchedJob | WatchedProcess, float], str]
    flush: Callable[[str, int], str] = align_right


COLUMNS = (
    JobColumn("pid", "pid", 7, 0, lambda row, now_s: str(row.pid)),
    JobColumn("user", " user", 10, 88, lambda row, now_s: f" {row.user or UNKNOWN}", align_left),
    JobColumn("gpu", "GPU", 6, 0, lambda row, now_s: format_indices(row.gpus, ",") or UNKNOWN),
    JobColumn("memory", "GiB", 7, 0, lambda row, now_s: f.gib(row.gpu_memory_bytes)),
    JobColumn("sm", "busy", 6, 0, lambda row, now_s: f.integer(row.sm_pct)),
    JobColumn("cpu", "CPU %", 7, 0, lambda row, now_s: f.integer(row.cpu_pct)),
    JobColumn("rss", "RSS", 9, 64, lambda row, now_s: f.short_size(row.rss_bytes)),
    JobColumn("age", "age", 8, 72, lambda row, now_s: format_age(row.started_s, now_s)),
    JobColumn("crew", "processes", 15, 104, lambda row, now_s: row.role),
)
"""`sm` is the share of its GPUs' time, `crew` the number of trainers and of loader workers."""
SORTS: tuple[tuple[str, Callable[[WatchedJob], float]], ...] = (
    ("memory", lambda job: job.gpu_memory_bytes or 0),
    ("sm", lambda job: job.sm_pct or 0.0),
    ("cpu", lambda job: job.cpu_pct or 0.0),
    ("rss", lambda job: job.rss_bytes or 0),
    ("age", lambda job: -(job.started_s or 0.0)),
)
"""Sort keys of jobs, largest first."""


Place = tuple[int, int | None]
"""A row: the pid of its job, and that of the process where it is a row of one."""


class JobScene(NamedTuple):
    """Jobs in display order, the sort key, the pids of the expanded jobs, and the row under the cursor."""

    jobs: Sequence[WatchedJob]
    now_s: float
    sort: str = "memory"
    opened: frozenset[int] = frozenset()
    cursor: Place | None = None
    empty: str = "no jobs"


def sorted_jobs(jobs: Sequence[WatchedJob], sort: str) -> list[WatchedJob]:
    """Return the jobs by `sort`, largest first, then by age."""
    key = dict(SORTS)[sort]
    return sorted(jobs, key=lambda job: (-key(job), job.started_s or 0.0, job.pid))


def job_rows(scene: JobScene, width: int, height: int) -> list[Line]:
    """Return the heading and as many rows as fit, always with the cursor; `↓ more lines` stands for hidden rows."""
    widest = max((text_width(format_indices(job.gpus, ",")) for job in scene.jobs), default=0)
    gpu_width = min(WIDEST_GPUS, 2 + widest)
    columns = [
        column._replace(width=max(column.width, gpu_width if column.name == "gpu" else 0))
        for column in COLUMNS
        if width >= column.from_width
    ]
    names = ((column, SORTED * (column.name == scene.sort) + column.heading) for column in columns)
    cells = "".join(column.flush(name, column.width) for column, name in names)
    top = line(TextSpan(shorten(" " * MARK + cells + "  job", width), "dim"))
    if not scene.jobs:
        return [top, line(TextSpan(f"  {scene.empty}", "dim"))]
    rows = [
        table_row(job, process, scene, columns, width)
        for job in scene.jobs
        for process in (None, *(job.processes if job.pid in scene.opened else ()))
    ]
    places = job_places(scene.jobs, scene.opened)
    at = places.index(scene.cursor) if scene.cursor in places else 0
    room = max(1, height - 1)
    return [top, *visible_rows(rows, max(0, min(at - room // 2, len(rows) - room)), room)][:height]


def job_places(jobs: Sequence[WatchedJob], opened: frozenset[int]) -> list[Place]:
    """Return what the rows below the heading stand for, in order."""
    opened_jobs = {job.pid: job.processes for job in jobs if job.pid in opened}
    return [(job.pid, at) for job in jobs for at in (None, *(each.pid for each in opened_jobs.get(job.pid, ())))]


def table_row(
    job: WatchedJob, process: WatchedProcess | None, scene: JobScene, columns: Sequence[JobColumn], width: int
) -> Line:
    """Return the row of a job, or of one of its processes, which is dim unless the cursor is on it."""
    at_cursor = scene.cursor == (job.pid, process and process.pid)
    style: Style = "strong" if at_cursor else "" if process is None else "dim"
    figures = (column.flush(column.figure(process or job, scene.now_s), column.width) for column in columns)
    cells, room = TextSpan("".join(figures), style), width - MARK - sum(column.width for column in columns)
    if process is None:
        mark = TextSpan("▾ " if job.pid in scene.opened else "▸ ", style or "dim")
        return line(mark, cells, "  ", job_description(job, max(0, room - 2), style))
    command = shorten(format_command(process.command) or UNKNOWN_COMMAND, max(0, room - 4))
    return line(" " * MARK, cells, TextSpan(f"    {command}", style))


def job_description(job: WatchedJob, room: int, style: Style) -> Line:
    """Return name and progress of a run of this program, or the command line of any other job."""
    if job.run is None:
        command = format_command(job.command)
        return line(TextSpan(shorten(command or UNKNOWN_COMMAND, room), style if command else "dim"))
    name = " ".join(part for part in (job.run.run, job.run.preset) if part)
    state = join_fitting(run_description(job.run), room - text_width(name) - 2)
    run_style: Style = "good" if job.run.phase != "stalled" else "warn"
    parts: list[Part] = [TextSpan(shorten(name, room), run_style), TextSpan(f"  {state}" if state else "", style)]
    if job.run.step is not None and job.run.total_steps and line_width(line(*parts)) + PROGRESS + 2 <= room:
        parts[1:1] = ["  ", *progress_bar(job.run.step / job.run.total_steps, PROGRESS, run_style)]
    return line(*parts)


def run_description(run: LiveRun | RunRow) -> tuple[str, ...]:
    """Return phase, step, share done and time left of a run."""
    step = "" if run.step is None else f"{run.step:,}/{run.total_steps:,}" if run.total_steps else f"step {run.step:,}"
    share = format_share(run.step / run.total_steps) if run.step is not None and run.total_steps else ""
    left = "" if run.eta_s is None or run.phase == "ending" else f"{format_rough_duration(run.eta_s)} left"
    return ("" if run.phase == "training" else run.phase or "", step, share, left)


QUIET_FLAGS = frozenset({"-u", "-O", "-I", "-P", "-B", "-E", "-s"})
"""Interpreter options that say nothing about the job."""


def format_command(command: Sequence[str]) -> str:
    """Return a command line without folders of programs and scripts, and without interpreter options."""
    words = [*(path.rpartition("/")[2] for path in command[:1]), *command[1:]]
    if words and words[0].startswith("python"):
        rest = [word for word in words[1:] if word not in QUIET_FLAGS]
        if rest and not rest[0].startswith("-"):
            script = rest[0].rpartition("/")[2]
            return " ".join([script, *rest[1:]] if not script.endswith(".py") else ["python", script, *rest[1:]])
        words = ["python", *rest]
    return " ".join(" ".join(words).split())


def format_age(started_s: float | None, now_s: float) -> str:
    """Return an age in minutes at the finest: seconds would repaint every row each second."""
    age_s = None if started_s is None else now_s - started_s
    return "<1 min" if age_s is not None and age_s < 60 else format_short_duration(age_s and max(90.0, age_s))


def watched_gpu_rows(
    view: MachineView | None,
    recent: Sequence[Sample],
    only: Sequence[int],
    width: int,
    room: int = 0,
    past_s: float = 1.0,
) -> list[Line]:
    """Return the GPUs of a machine, or only those in `only`, with histories in the rest of `room`; or the problem."""
    if view is not None and view.problem is not None:
        sentence = wrapped_rows(view.problem.sentence, width, "warn", f"{WARN} ")
        return [*sentence, *wrapped_rows(view.problem.advice, width, "dim", "  ")]
    if view is None or not view.sample.gpus:
        return [line(TextSpan("asking the driver …", "dim"))]
    scene = watched_scene(view, recent, only, past_s)
    notes = [row for note in view.notes for row in wrapped_rows(note, width, "dim", "  ")]
    return gpu_rows(scene, width, room - len(notes), 1) + notes  # in one column there is room for histories and jobs


def watched_scene(
    view: MachineView, recent: Sequence[Sample], only: Sequence[int] = (), past_s: float = 1.0
) -> GpuScene:
    """Return the GPUs of a machine, or only those in `only`, with what runs on them."""
    sample, runs = view.sample, [(job.run, job.gpus) for job in view.jobs if job.run is not None]
    shown = replace(sample, gpus=tuple(gpu for gpu in sample.gpus if gpu.index in only)) if only else sample
    training = frozenset(gpu for run, gpus in runs if run.phase == "training" for gpu in gpus)
    run_gpus = frozenset(gpu for _, gpus in runs for gpu in gpus)
    return GpuScene(shown, recent, training, jobs_by_gpu(view), run_gpus, past_s)


def jobs_by_gpu(view: MachineView) -> dict[int, str]:
    """Return what runs on each GPU: the run of this program, or the command of the job with most memory."""
    descriptions: dict[int, str] = {}
    for job in sorted(view.jobs, key=lambda job: (job.run is not None, job.gpu_memory_bytes or 0)):
        run = "" if job.run is None else " ".join(filter(None, (job.run.run, job.run.preset)))
        program = format_command(job.command).removeprefix("python ").removeprefix("-m ")
        words = run or " ".join(filter(None, (job.user, program)))
        if words:
            descriptions.update(dict.fromkeys(job.gpus, words))
    return descriptions


def gpus_title(view: MachineView) -> str:
    """Return a title such as `GPUs · 8 × A100-SXM4-80GB`."""
    names = Counter("unknown" if gpu.name == f"GPU {gpu.index}" else gpu.name for gpu in view.sample.gpus)
    return " · ".join(["GPUs", *(f"{number} × {name.removeprefix('NVIDIA ')}" for name, number in names.items())])


def gpus_in_sum(view: MachineView, recent: Sequence[Sample]) -> str:
    """Return what all GPUs do, such as `6 busy, 1 idle, 1 lost · 4.1 of 5.6 kW`."""
    scene, gpus = watched_scene(view, recent), [gpu for gpu in view.sample.gpus if not gpu.lost]
    states = Counter(
        "lost" if gpu.lost else "unknown" if not is_known(scene, gpu) else "busy" if is_busy(scene, gpu) else "idle"
        for gpu in view.sample.gpus
    )
    counts = (f"{states[state]} {state}" for state in ("busy", "idle", "lost", "unknown") if states[state])
    return join_fitting([", ".join(counts), power_in_sum(gpus)], 99)


def power_in_sum(gpus: Sequence[GpuSample]) -> str:
    """Return `4.1 of 5.6 kW`; empty where it is not known."""
    power, limit = (sum(getattr(gpu, name) or 0 for gpu in gpus) / 1000 for name in ("power_w", "power_limit_w"))
    return f"{power:.1f}{f' of {limit:.1f}' if limit else ''} kW" if power else ""


def snapshot_rows(view: MachineView, width: int) -> list[Line]:
    """Return one snapshot of a machine: time, GPUs, host and jobs."""
    sample = view.sample
    time_text = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(sample.time_s))
    jobs = JobScene(sorted_jobs(view.jobs, SORTS[0][0]), sample.time_s)
    return [
        line(f"{time_text}  {gpus_title(view)}" if sample.gpus else time_text),
        *(watched_gpu_rows(view, (), (), width) if sample.gpus or view.problem is not None else []),
        *host_rows(sample, (), width, 0),
        *job_rows(jobs, width, 1 + len(jobs.jobs)),
    ]
