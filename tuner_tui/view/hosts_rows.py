"""Several hosts as rows: for each one its load, its GPUs and its runs, or why it does not answer."""

from __future__ import annotations

from collections.abc import Sequence

from tuner_tui.core.units import format_gib, format_percent
from tuner_tui.hosts import HostView
from tuner_tui.view.cells import (
    WARN,
    Row,
    Style,
    TextSpan,
    align_left,
    join_fitting,
    line,
    shorten,
    text_width,
)
from tuner_tui.view.gpu_rows import GpuScene, gpu_rows
from tuner_tui.view.watch_rows import gpus_title, job_description, jobs_by_gpu, remark_rows, training_cards

NAME_WIDTH, INDENT = 18, 4


def hosts_rows(views: Sequence[HostView], width: int) -> list[Row]:
    """Return the rows of all hosts."""
    return [row for view in views for row in host_rows(view, width)]


def host_rows(view: HostView, width: int) -> list[Row]:
    """Return a header, labelled gauges of the GPUs, and the runs; of a host that is silent a row that says why."""
    name = TextSpan(shorten(align_left(view.name, NAME_WIDTH) + "  ", width), "strong")
    room = width - text_width(name.text)
    machine = view.machine
    if machine is None:
        style: Style = "dim" if view.problem is None else "bad"
        return [Row(line(name, TextSpan(shorten(view.problem or "connecting …", room), style)))]
    host = machine.sample.host
    ram = f"RAM {format_gib(host.ram_used_bytes, 0)} of {format_gib(host.ram_total_bytes, 0)}"
    load = [gpus_title(machine).removeprefix("GPUs · ")] if machine.sample.gpus else []
    load += [] if host.ram_total_bytes is None else [f"CPU {format_percent(host.cpu_pct)}", ram]
    rows = [Row(line(name, TextSpan(join_fitting(load, room))))]
    problem = [] if machine.problem is None else remark_rows(machine.problem.sentence, width - INDENT, WARN, "warn")
    scene = GpuScene(machine.sample, (), training_cards(machine), jobs_by_gpu(machine))
    below = [*problem, *gpu_rows(scene, width - INDENT)]
    below += [Row(job_description(job, width - INDENT, "")) for job in machine.jobs if job.run is not None]
    return rows + [Row(line(" " * INDENT, *row.line)) for row in below]
