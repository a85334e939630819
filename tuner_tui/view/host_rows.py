"""The host now: processor, memory, processes, disk and swap."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tuner_tui.core.units import format_percent
from tuner_tui.view import number_format as f
from tuner_tui.view.cells import Line, Style, TextSpan, align_right, join_fitting, line, shorten, text_width
from tuner_tui.view.charts import COLUMNS_A_CELL, gauge, is_flat
from tuner_tui.view.gpu_rows import INDEX, SCALE, WIDEST_GAUGE, history_rows, time_axis
from tuner_tui.view.sample_history import drawn_columns

if TYPE_CHECKING:
    from tuner_tui.hardware.sample import HostSample, ProcessSample, Sample

LOW_CHART, TALLEST_CHART = 3, 8
"""Rows of a history of the host next to GPUs, and without any."""


def host_rows(sample: Sample, recent: Sequence[Sample], width: int, chart: int, past_s: float = 1.0) -> list[Line]:
    """Return all rows of the host; `chart` is the room for a history of the processor."""
    return [*host_gauges(sample, width), *host_details(sample, recent, width, chart, past_s)]


def host_details(sample: Sample, recent: Sequence[Sample], width: int, chart: int, past_s: float) -> list[Line]:
    """Return the rows of the host below its gauges."""
    number, host = max(0, width - INDEX - SCALE), sample.host
    history: Sequence[Line] = ()
    if number and (height := min(LOW_CHART if sample.gpus else TALLEST_CHART, chart)) > 0:
        cpu = drawn_columns(recent, "cpu", lambda past: past.host.cpu_pct, sample, COLUMNS_A_CELL * number, past_s)
        height = 1 if is_flat(cpu, 100.0) else height
        history = history_rows(cpu, "gauge", height)
        history = [*history, *time_axis(past_s, width)] if 1 < height < chart else history
    return [*history, *_disk_rows(host, width)]


CPU_LABEL, CPU_TEXT, RAM_LABEL = 4, 6, 6
NARROWEST_HOST_GAUGE = 6
RAM_FULL = 0.95


def host_gauges(sample: Sample, width: int) -> list[Line]:
    """Return processor and memory as gauges on one row with the training's processes, and how much is swapped."""
    host = sample.host
    ram = f" {f.whole_gib(host.ram_used_bytes)}/{f.whole_gib(host.ram_total_bytes)} GiB"
    used = f.share_of(host.ram_used_bytes, host.ram_total_bytes)
    full: Style = "bad" if used is not None and used > RAM_FULL else ""
    fixed = CPU_LABEL + CPU_TEXT + RAM_LABEL + text_width(ram)
    work = process_summary(sample.processes)
    same_row = f"   {work}" if work and fixed + 2 * NARROWEST_HOST_GAUGE + 3 + text_width(work) <= width else ""
    each = min(WIDEST_GAUGE, (width - fixed - text_width(same_row)) // 2)
    cpu = line(
        TextSpan("CPU ", "strong"),
        gauge(None if host.cpu_pct is None else host.cpu_pct / 100, each, "gauge"),
        TextSpan(align_right(format_percent(host.cpu_pct), CPU_TEXT), "strong"),
    )
    memory = line(TextSpan("RAM ", "strong"), gauge(used, each, full or "second"), TextSpan(ram, full))
    text = f"swap {f.short_size(host.swap_used_bytes)} used"
    text += f", {f.mb_s(host.swap_in_bytes_s)} MB/s in: memory is short" if host.swap_in_bytes_s else ""
    swaps = host.swap_used_bytes or host.swap_in_bytes_s
    swap = [line(TextSpan(shorten(text, width), "bad" if host.swap_in_bytes_s else "dim"))] if swaps else []
    if each < NARROWEST_HOST_GAUGE:
        return [cpu, memory, *swap]
    rows = [line(cpu, "  ", memory, TextSpan(same_row, "dim")), *swap]
    if work and not same_row:
        rows.append(line(TextSpan(shorten(work, width), "dim")))
    return rows


def _disk_rows(host: HostSample, width: int) -> list[Line]:
    """Return disk and shared memory as one row without what is not known."""
    free = [
        f"disk {f.short_size(host.disk_free_bytes)} free" if host.disk_free_bytes is not None else "",
        f"shm {f.short_size(host.shm_free_bytes)} free" if host.shm_free_bytes is not None else "",
    ]
    # Last, so that little moves when they become longer.
    free += [f"reading {f.mb_s(host.disk_read_bytes_s)} MB/s"] if host.disk_read_bytes_s is not None else []
    free += [f"writing {f.mb_s(host.disk_write_bytes_s)} MB/s"] if host.disk_write_bytes_s is not None else []
    text = join_fitting(free, width)
    return [line(TextSpan(text, "dim"))] if text else []


def process_summary(processes: Sequence[ProcessSample]) -> str:
    """Return number, load and memory of the training's trainers, loader workers and other processes."""
    groups: dict[str, list[ProcessSample]] = {"trainer": [], "workers": [], "others": []}
    for process in processes:
        groups[{"main": "trainer", "worker": "workers"}.get(process.role, "others")].append(process)
    texts = []
    for label, group in groups.items():
        cpu = [process.cpu_pct for process in group if process.cpu_pct is not None]
        rss = [process.rss_bytes for process in group if process.rss_bytes is not None]
        named = label.removesuffix("s" * (len(group) == 1))
        number = label if label == "trainer" and len(group) == 1 else f"{len(group)} {named}"
        busy = align_right(format_percent(sum(cpu)), 6) if cpu else ""
        texts += [f"{number}{busy} {f.short_size(sum(rss)) if rss else ''}".rstrip()] if group else []
    return "   ".join(texts)
