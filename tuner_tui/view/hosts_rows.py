"""Several hosts as rows: for each one its load, its GPUs and its runs, or why it does not answer."""

from __future__ import annotations

from collections.abc import Sequence

from tuner_tui.core.units import format_gib, format_percent
from tuner_tui.hosts import HostView
from tuner_tui.view.cells import WARN, Row, Style, TextSpan, align_left, join_fitting, line, shorten, text_width
from tuner_tui.view.gpu_rows import GpuScene, gpu_rows
from tuner_tui.view.watch_rows import gpus_title, job_description, jobs_by_gpu, remark_rows, training_gpus

LONGEST_NAME, INDENT = 30, 4


def hosts_rows(views: Sequence[HostView], width: int) -> list[Row]:
    """Return the rows of all hosts, in columns that are the same for each."""
    name_width = min(LONGEST_NAME, width // 4, max((text_width(view.name) for view in views), default=0))
    has_jobs = any(jobs_by_gpu(view.machine) for view in views if view.machine is not None)
    return [row for view in views for row in host_rows(view, width, name_width, has_jobs)]


def host_rows(view: HostView, width: int, name_width: int = 18, has_jobs: bool = False) -> list[Row]:
    """Return a header, labelled gauges of the GPUs, and the runs; of a host that is silent a row that says why.

    With `has_jobs` there is room for what runs on each GPU, even if nothing does.
    """
    name = TextSpan(shorten(align_left(view.name, name_width) + "  ", width), "strong")
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
    unnamed = dict.fromkeys((gpu.index for gpu in machine.sample.gpus), "") if has_jobs else {}
    scene = GpuScene(machine.sample, (), training_gpus(machine), {**unnamed, **jobs_by_gpu(machine)})
    below = [*problem, *gpu_rows(scene, width - INDENT)]
    below += [Row(job_description(job, width - INDENT, "")) for job in machine.jobs if job.run is not None]
    return rows + [Row(line(" " * INDENT, *row.line)) for row in below]
