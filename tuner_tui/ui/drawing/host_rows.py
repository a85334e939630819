"""The host now: processor as a whole and core by core, memory, the training's processes, disk and swap."""

from __future__ import annotations

from collections.abc import Sequence

from tuner_tui.core.units import format_percent
from tuner_tui.hardware.sample import HostSample, ProcessSample, Sample
from tuner_tui.ui.drawing import number_format as f
from tuner_tui.ui.drawing.cells import Row, Style, TextSpan, align_right, shorten
from tuner_tui.ui.drawing.charts import blocks, tall_blocks
from tuner_tui.ui.drawing.ring_history import history_columns, samples_within
from tuner_tui.ui.drawing.tables import LABEL, SCALE, LabelledValue, labelled_row, value_grid

CORES_EVERY_S = 5.0
"""Cores show the mean of the last complete window: 128 blocks that change each second would cost 400 bytes/s."""


def host_rows(sample: Sample, recent: Sequence[Sample], width: int, chart: int, all_cores: bool) -> list[Row]:
    """Return all rows of the host; `chart` is the height of the CPU history, `all_cores` shows more than one row."""
    figures = value_grid(_figures(sample.host), width)
    cores = core_rows(recent or (sample,), sample.time_s, width, all_cores)
    history = _history(sample, recent, width, chart)
    return [*figures[:1], *history, *cores, *process_rows(sample.processes, width), *figures[1:]]


def _figures(host: HostSample) -> list[LabelledValue]:
    swapping: Style = "warn" if host.swap_in_bytes_s else ""
    ram = f"{f.whole_gib(host.ram_used_bytes)}/{f.whole_gib(host.ram_total_bytes)}"
    return [
        LabelledValue("CPU", format_percent(host.cpu_pct), rank=2),
        LabelledValue("RAM GiB", ram, rank=2),
        LabelledValue("read MB/s", f.mb_s(host.disk_read_bytes_s), rank=5),
        LabelledValue("write MB/s", f.mb_s(host.disk_write_bytes_s), rank=5),
        LabelledValue("disk left", f.short_size(host.disk_free_bytes), rank=6),
        LabelledValue("shm left", f.short_size(host.shm_free_bytes), rank=6),
        LabelledValue("swap used", f.short_size(host.swap_used_bytes), swapping, rank=2 if swapping else 7),
        LabelledValue("swap in/s", f.short_size(host.swap_in_bytes_s), swapping, rank=2 if swapping else 7),
    ]


def _history(sample: Sample, recent: Sequence[Sample], width: int, height: int) -> list[Row]:
    room = max(0, width - LABEL - SCALE)
    history = history_columns(recent, "host", lambda past: past.host.cpu_pct, sample.time_s, room)
    chart = tall_blocks(history, 100, height)
    return [
        labelled_row(
            "busy" if number == 0 else "",
            TextSpan(text + align_right("" if number else "100 %", SCALE), "dim"),
            rank=3,
        )
        for number, text in enumerate(chart)
    ]


def core_rows(recent: Sequence[Sample], now_s: float, width: int, all_cores: bool) -> list[Row]:
    """Return a block per core in rows of a multiple of eight, or one row of the busiest cores."""
    means = core_means(recent, now_s)
    room = (width - LABEL) // 8 * 8
    if not means or room < 8:
        return []
    if len(means) > room and not all_cores:
        return [_cores("busiest", sorted(means, reverse=True)[:room])]
    starts = range(0, len(means), room)
    return [_cores(f"{len(means)} cores" if start == 0 else "", means[start : start + room]) for start in starts]


def _cores(label: str, means: Sequence[float]) -> Row:
    return labelled_row(label, TextSpan(blocks(means, 100), "dim"), rank=4)


def core_means(recent: Sequence[Sample], now_s: float) -> list[float]:
    """Return the mean load of each core over the last complete window, or of the newest sample."""
    start = (now_s // CORES_EVERY_S - 1) * CORES_EVERY_S
    near = samples_within(recent, now_s, 2 * CORES_EVERY_S)
    window = [s.host.per_core_pct for s in near if start <= s.time_s < start + CORES_EVERY_S]
    window = window or [s.host.per_core_pct for s in recent[-1:]]
    size = min((len(cores) for cores in window), default=0)
    return [sum(cores[core] for cores in window) / len(window) for core in range(size)]


def process_rows(processes: Sequence[ProcessSample], width: int) -> list[Row]:
    """Return number, load and memory of the training's processes, its loader workers and others."""
    groups = {
        "trainer": [p for p in processes if p.role == "main"],
        "loaders": [p for p in processes if p.role == "worker"],
        "others": [p for p in processes if p.role not in ("main", "worker")],
    }
    return [
        labelled_row(label, shorten(_summary(group), width - LABEL), rank=3) for label, group in groups.items() if group
    ]


def _summary(processes: Sequence[ProcessSample]) -> str:
    cpu = [p.cpu_pct for p in processes if p.cpu_pct is not None]
    rss = [p.rss_bytes for p in processes if p.rss_bytes is not None]
    busy = format_percent(sum(cpu) if cpu else None)
    return f"{len(processes):>3} ×{busy:>8} CPU{f.short_size(sum(rss) if rss else None):>9}"
