"""Several hosts as rows: for each one its load, its GPUs and its runs, or why it does not answer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tuner_tui.core.units import format_gib, format_percent
from tuner_tui.runs.read.machine_monitor import format_gpu_indices
from tuner_tui.ui.drawing.cells import (
    WARN,
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
from tuner_tui.ui.drawing.machine_rows import GpuDetail, GpuScene, gpu_rows
from tuner_tui.ui.drawing.watch_rows import job_description, jobs_by_gpu, remark_rows, training_cards

if TYPE_CHECKING:
    from tuner_tui.hosts.watcher import HostView
    from tuner_tui.runs.read.machine_monitor import WatchedJob

NAME_WIDTH, INDENT = 18, 4


def host_rows(view: HostView, width: int) -> list[Row]:
    """Return a header, then a row for each GPU and run; of a host that does not answer one row that says why."""
    name = TextSpan(shorten(align_left(view.name, NAME_WIDTH) + "  ", width), "strong")
    room = width - text_width(name.text)
    machine = view.machine
    if machine is None:
        style: Style = "dim" if view.problem is None else "bad"
        return [Row(line(name, TextSpan(shorten(view.problem or "connecting …", room), style)))]
    host = machine.sample.host
    ram = f"RAM {format_gib(host.ram_used_bytes, 0)} of {format_gib(host.ram_total_bytes, 0)}"
    load = [] if host.ram_total_bytes is None else [f"CPU {format_percent(host.cpu_pct)}", ram]
    rows = [Row(line(name, TextSpan(join_fitting(load, room))))]
    problem = [] if machine.problem is None else remark_rows(machine.problem.sentence, width - INDENT, WARN, "warn")
    scene = GpuScene(machine.sample, (), training_cards(machine), jobs_by_gpu(machine))
    below = [*problem, *gpu_rows(scene, width - INDENT, GpuDetail())[1:]]
    below += [_run_row(job, width - INDENT) for job in machine.jobs if job.run is not None]
    return rows + [Row(line(" " * INDENT, *row.line)) for row in below]


def _run_row(job: WatchedJob, width: int) -> Row:
    gpus = f"GPU {format_gpu_indices(job.gpus)}" if job.gpus else ""
    text = job_description(job, max(0, width - 2 - text_width(gpus)), "")
    gap = " " * max(2, width - line_width(text) - text_width(gpus))
    return Row(line(*text, gap, TextSpan(gpus, "dim")))
