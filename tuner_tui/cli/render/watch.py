"""The table of `tuner-tui watch`: GPUs, host and jobs, for pipes, files and terminals that show nothing more."""

from __future__ import annotations

import time
from collections.abc import Iterator

from tuner_tui.cli.render.detect import hanging, shorten, table
from tuner_tui.core.units import UNKNOWN, format_gib, format_percent, format_short_duration
from tuner_tui.hardware.gpu.xid import format_xid
from tuner_tui.hardware.sample import GpuSample, HostSample
from tuner_tui.runs.read.box_monitor import (
    BoxView,
    WatchedJob,
    format_command,
    format_gpu_indices,
    format_process_counts,
)
from tuner_tui.runs.read.live_runs import LiveRun

COMMAND_WIDTH = 60
CARD_HEADINGS = ("GPU", "name", "util", "memory", "of", "power", "of", "temp", "SM clock", "held back by")
JOB_HEADINGS = ("pid", "job", "user", "GPUs", "GPU mem", "SM", "CPU", "RSS", "age", "processes", "command")


def report(view: BoxView) -> list[str]:
    """One look, line by line."""
    when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(view.sample.time_s))
    return [f"{when}  {host_line(view.sample.host)}", *card_lines(view), *job_lines(view)]


def host_line(host: HostSample) -> str:
    """The host in a line."""
    parts = [
        f"CPU {format_percent(host.cpu_pct)}",
        f"RAM {format_gib(host.ram_used_bytes)} of {format_gib(host.ram_total_bytes)}",
        f"swap {format_gib(host.swap_used_bytes)}" if host.swap_total_bytes else "",
        f"/dev/shm {format_gib(host.shm_free_bytes)} free",  # noqa: S108  a label
    ]
    return "  ".join(part for part in parts if part)


def card_lines(view: BoxView) -> list[str]:
    """The cards, or why there are none."""
    if view.problem is not None:
        return hanging("! ", view.problem.sentence)
    rows = [CARD_HEADINGS, *map(card_cells, view.sample.gpus)]
    lines = table(rows, right=(0, 2, 3, 4, 5, 6, 7, 8)) if view.sample.gpus else []
    return lines + [text for note in view.notes for text in hanging("! ", note)]


def card_cells(gpu: GpuSample) -> tuple[str, ...]:
    """One card's cells."""
    state = "lost" if gpu.lost else "no answer" if gpu.age_s is not None else ", ".join(gpu.throttle)
    error = "" if gpu.xid is None else format_xid(gpu.xid)
    return (
        str(gpu.index),
        gpu.name,
        format_percent(gpu.utilisation_pct),
        format_gib(gpu.memory_used_bytes),
        format_gib(gpu.memory_total_bytes),
        unit(gpu.power_w, "W"),
        unit(gpu.power_limit_w, "W"),
        unit(gpu.temperature_c, "°C"),
        unit(gpu.clock_sm_mhz, "MHz"),
        "; ".join(filter(None, (state, error))),
    )


def job_lines(view: BoxView) -> list[str]:
    """The jobs, those on cards first, the largest first."""
    if not view.jobs:
        return ["  no job to be seen"]
    jobs = sorted(view.jobs, key=lambda job: (-(job.gpu_memory_bytes or 0), -(job.cpu_pct or 0)))
    rows = [JOB_HEADINGS, *(job_cells(job, view.sample.time_s) for job in jobs)]
    return table(rows, right=(0, 4, 5, 6, 7, 8))


def job_cells(job: WatchedJob, now_s: float) -> tuple[str, ...]:
    """One job's cells."""
    return (
        str(job.pid),
        "" if job.run is None else " ".join(describe_run(job.run)),
        job.user or UNKNOWN,
        format_gpu_indices(job.gpus) or UNKNOWN,
        format_gib(job.gpu_memory_bytes),
        format_percent(job.sm_pct),
        format_percent(job.cpu_pct),
        format_gib(job.rss_bytes),
        UNKNOWN if job.started_s is None else format_short_duration(max(0.0, now_s - job.started_s)),
        format_process_counts(job),
        shorten(format_command(job.command) or "not to be seen from here", COMMAND_WIDTH),
    )


def describe_run(run: LiveRun) -> Iterator[str]:
    """A run of this program: its name, preset and step."""
    yield run.run
    if run.preset:
        yield run.preset
    if run.step is not None:
        yield f"{run.step:,}" + (f"/{run.total_steps:,}" if run.total_steps else "")
    if run.phase and run.phase != "training":
        yield run.phase


def unit(value: float | None, name: str) -> str:
    """A whole number with its unit."""
    return UNKNOWN if value is None else f"{value:.0f} {name}"
