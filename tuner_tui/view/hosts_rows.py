"""Several hosts as rows: for each one its load, its GPUs and its runs, or why it does not answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from msgspec.structs import replace

from tuner_tui.core.units import format_gib, format_percent
from tuner_tui.view.cells import (
    WARN,
    Line,
    Style,
    TextSpan,
    align_left,
    join_fitting,
    join_sections,
    line,
    shorten,
    side_by_side,
    text_width,
    wrapped_rows,
)
from tuner_tui.view.gpu_rows import gpu_columns, gpu_rows, memory_share
from tuner_tui.view.sample_history import WINDOWS, Window, shown_past
from tuner_tui.view.watch_rows import gpus_title, job_description, jobs_by_gpu, power_in_sum, watched_scene

if TYPE_CHECKING:
    from tuner_tui.hardware.sample import GpuSample, Sample
    from tuner_tui.hosts import HostView

LONGEST_NAME, INDENT, MOST_HISTORY = 30, 4, 8
CURSOR, HOST_FRAME = "▸ ", 4
"""What begins the host at the cursor, and the other rows of a host than its GPUs: blank, header, names and a run."""
FREE_SHARE, FREE_PCT = 0.05, 5.0
"""A GPU below both, of its memory and its time, is free to use."""


def hosts_rows(
    views: Sequence[HostView],
    recent: Mapping[str, Sequence[Sample]],
    window: Window,
    cursor: int | None,
    width: int,
    height: int = 0,
) -> list[Line]:
    """Return the sum of all hosts and the rows of each, in columns that are the same for all.

    `recent` has the samples of each by its name, of which histories show the past `window`. What is left of `height`
    goes to blank rows, then to histories. The host at `cursor` has a mark.
    """
    name_width = min(LONGEST_NAME, width // 4, max((text_width(view.name) for view in views), default=0))
    machines = [view.machine for view in views if view.machine is not None]
    has_jobs = any(map(jobs_by_gpu, machines))
    gpus = [gpu for machine in machines for gpu in machine.sample.gpus]
    most = max((len(machine.sample.gpus) for machine in machines), default=0)
    # In one column there is room for histories in their rows.
    columns = 1 if len(gpus) + HOST_FRAME * (len(views) + 1) <= height else gpu_columns(most, width - INDENT)

    def rows_of(number: int, room: int) -> list[Line]:
        view, mark = views[number], "" if cursor is None else CURSOR if number == cursor else " " * len(CURSOR)
        return host_rows(view, width, name_width, has_jobs, recent.get(view.name, ()), room, columns, window, mark)

    sections = [_sum_rows(gpus), *(rows_of(number, 0) for number in range(len(views)))]
    spare = height - sum(map(len, sections)) - len(views)
    if spare > 0 and gpus:
        for n, view in enumerate(views, 1):  # by the number of GPUs, so that their histories are of one height
            here = 0 if view.machine is None else len(view.machine.sample.gpus)
            sections[n] = rows_of(n - 1, len(sections[n]) + min(spare * here // len(gpus), MOST_HISTORY * here + 1))
    return join_sections(sections, apart=spare >= 0)


def _sum_rows(gpus: Sequence[GpuSample]) -> list[Line]:
    """Return how many of all GPUs are in use, free and lost, and their power."""
    if not gpus:
        return []
    lost = sum(gpu.lost for gpu in gpus)
    free = sum(
        (memory_share(gpu) or 0) < FREE_SHARE and (gpu.utilisation_pct or 0) < FREE_PCT for gpu in gpus if not gpu.lost
    )
    parts = [TextSpan(f"{len(gpus)} GPUs", "strong"), TextSpan(f"   {len(gpus) - lost - free} in use")]
    parts += [TextSpan(f"   {free} free", "good")] if free else []
    parts += [TextSpan(f"   {lost} lost", "bad")] if lost else []
    return [line(*parts, TextSpan(f"   {power_in_sum(gpus)}".rstrip(), "dim"))]


def host_rows(
    view: HostView,
    width: int,
    name_width: int = 18,
    has_jobs: bool = False,
    recent: Sequence[Sample] = (),
    room: int = 0,
    columns: int = 0,
    window: Window = WINDOWS[0],
    mark: str = "",
) -> list[Line]:
    """Return a header behind a `mark`, labelled gauges of the GPUs, and the runs; of a silent host why it is.

    With `has_jobs` there is room for what runs on each GPU, even if nothing does. Histories of `recent` samples take
    what is left of `room`.
    """
    name = TextSpan(shorten(f"{mark}{align_left(view.name, name_width)}  ", width), "strong")
    machine = view.machine
    if machine is None:
        style: Style = "dim" if view.problem is None else "bad"
        reason = wrapped_rows(view.problem or "connecting …", width - text_width(name.text), style)
        return side_by_side([line(name)], reason, text_width(name.text))
    host = machine.sample.host
    ram = f"RAM {format_gib(host.ram_used_bytes, 0)} of {format_gib(host.ram_total_bytes, 0)}"
    load = [gpus_title(machine).removeprefix("GPUs · ")] if machine.sample.gpus else []
    load += [] if host.ram_total_bytes is None else [f"CPU {format_percent(host.cpu_pct)}", ram]
    head = line(name, TextSpan(join_fitting(load, width - text_width(name.text))))
    problem = (
        [] if machine.problem is None else wrapped_rows(machine.problem.sentence, width - INDENT, "warn", f"{WARN} ")
    )
    unnamed = dict.fromkeys((gpu.index for gpu in machine.sample.gpus), "") if has_jobs else {}
    past = shown_past(recent, window, machine.sample.time_s)
    scene = replace(watched_scene(machine, recent, (), past), jobs={**unnamed, **jobs_by_gpu(machine)} or None)
    runs = [job_description(job, width - INDENT, "") for job in machine.jobs if job.run is not None]
    left = room - 1 - len(problem) - len(runs)
    below = [*problem, *gpu_rows(scene, width - INDENT, left, columns), *runs]
    return [head, *(line(" " * INDENT, *row) for row in below)]
