"""The table of `tuner-tui watch`: GPUs, host and jobs, for pipes, files and terminals without a screen."""

from __future__ import annotations

import time

from tuner_tui.cli.render.text import format_steps, format_table, format_unit, shorten, warning_lines
from tuner_tui.core.units import UNKNOWN, format_gib, format_percent, format_short_duration
from tuner_tui.hardware.gpu.driver import format_xid
from tuner_tui.hardware.sample import GpuSample, HostSample
from tuner_tui.runs.read.machine_monitor import (
    LiveRun,
    MachineView,
    WatchedJob,
    format_command,
    format_gpu_indices,
    format_process_counts,
)

COMMAND_WIDTH = 60
GPU_HEADINGS = ("GPU", "name", "util", "memory", "of", "power", "of", "temp", "SM clock", "held back by")
JOB_HEADINGS = ("pid", "job", "user", "GPUs", "GPU mem", "SM", "CPU", "RSS", "age", "processes", "command")


def watch_report(view: MachineView) -> list[str]:
    """Return one snapshot of the machine."""
    time_text = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(view.sample.time_s))
    return [f"{time_text}  {_host_line(view.sample.host)}", *_gpu_lines(view), *_job_lines(view)]


def _host_line(host: HostSample) -> str:
    parts = [
        f"CPU {format_percent(host.cpu_pct)}",
        f"RAM {format_gib(host.ram_used_bytes)} of {format_gib(host.ram_total_bytes)}",
        f"swap {format_gib(host.swap_used_bytes)}" if host.swap_total_bytes else "",
        f"/dev/shm {format_gib(host.shm_free_bytes)} free",  # noqa: S108  a label
    ]
    return "  ".join(filter(None, parts))


def _gpu_lines(view: MachineView) -> list[str]:
    """Return the table of GPUs, or why there are none."""
    if view.problem is not None:
        return warning_lines(view.problem.sentence)
    rows = [GPU_HEADINGS, *map(_gpu_cells, view.sample.gpus)]
    lines = format_table(rows, right=(0, *range(2, 9))) if view.sample.gpus else []
    return lines + [text for note in view.notes for text in warning_lines(note)]


def _gpu_cells(gpu: GpuSample) -> tuple[str, ...]:
    state = "lost" if gpu.lost else "no answer" if gpu.age_s is not None else ", ".join(gpu.throttle)
    error = "" if gpu.xid is None else format_xid(gpu.xid)
    return (
        str(gpu.index),
        gpu.name,
        format_percent(gpu.utilisation_pct),
        format_gib(gpu.memory_used_bytes),
        format_gib(gpu.memory_total_bytes),
        format_unit(gpu.power_w, "W"),
        format_unit(gpu.power_limit_w, "W"),
        format_unit(gpu.temperature_c, "°C"),
        format_unit(gpu.clock_sm_mhz, "MHz"),
        "; ".join(filter(None, (state, error))),
    )


def _job_lines(view: MachineView) -> list[str]:
    """Return the table of jobs: the most GPU memory first, then the most CPU time."""
    if not view.jobs:
        return ["  no jobs"]
    jobs = sorted(view.jobs, key=lambda job: (-(job.gpu_memory_bytes or 0), -(job.cpu_pct or 0)))
    rows = [JOB_HEADINGS, *(_job_cells(job, view.sample.time_s) for job in jobs)]
    return format_table(rows, right=(0, *range(4, 9)))


def _job_cells(job: WatchedJob, now_s: float) -> tuple[str, ...]:
    return (
        str(job.pid),
        "" if job.run is None else _describe_run(job.run),
        job.user or UNKNOWN,
        format_gpu_indices(job.gpus) or UNKNOWN,
        format_gib(job.gpu_memory_bytes),
        format_percent(job.sm_pct),
        format_percent(job.cpu_pct),
        format_gib(job.rss_bytes),
        UNKNOWN if job.started_s is None else format_short_duration(max(0.0, now_s - job.started_s)),
        format_process_counts(job),
        shorten(format_command(job.command) or "not visible from here", COMMAND_WIDTH),
    )


def _describe_run(run: LiveRun) -> str:
    """Return name, preset, step and phase of a run of this program."""
    phase = "" if run.phase == "training" else run.phase
    return " ".join(filter(None, (run.run, run.preset, format_steps(run.step, run.total_steps), phase)))
