"""The host now: processor as a whole and core by core, memory, the training's processes, disk and swap."""

from __future__ import annotations

from collections.abc import Sequence

from tuner_tui.hardware.sample import HostSample, ProcessSample, Sample
from tuner_tui.ui import format as f
from tuner_tui.ui.drawing.bars import blocks
from tuner_tui.ui.drawing.cells import Row, Run, line, shorten
from tuner_tui.ui.drawing.figures import Figure, figure_rows
from tuner_tui.ui.drawing.glyphs import Glyphs

CORES_EVERY_S = 5.0
"""Cores are shown as the mean of the last whole five seconds: 128 blocks that jitter would cost 400 bytes a second."""


def host_rows(sample: Sample, recent: Sequence[Sample], width: int, glyphs: Glyphs) -> list[Row]:
    """Everything about the host, most important first."""
    host = sample.host
    return [
        *figure_rows(_figures(host), width, rank=2),
        *core_rows(recent or [sample], sample.time_s, width, glyphs),
        *process_rows(sample.processes, width),
        *figure_rows(_traffic(host), width, rank=5),
    ]


def _figures(host: HostSample) -> list[Figure]:
    used, total = f.gib(host.ram_used_bytes), f.whole_gib(host.ram_total_bytes)
    return [Figure("CPU", f.percent(host.cpu_pct)), Figure("RAM GiB", f"{used}/{total}")]


def _traffic(host: HostSample) -> list[Figure]:
    return [
        Figure("read MiB/s", f.mib_s(host.disk_read_bytes_s)),
        Figure("write MiB/s"[:10], f.mib_s(host.disk_write_bytes_s)),
        Figure("disk free", f.size(host.disk_free_bytes)),
        Figure("shm free", f.size(host.shm_free_bytes)),
        Figure("swap used", f.size(host.swap_used_bytes), "warn" if host.swap_in_bytes_s else ""),
        Figure("swap in", f.mib_s(host.swap_in_bytes_s), "warn" if host.swap_in_bytes_s else ""),
    ]


def core_rows(recent: Sequence[Sample], now_s: float, width: int, glyphs: Glyphs) -> list[Row]:
    """A block a core, many in a row."""
    means = core_means(recent, now_s)
    if not means or width < 12:
        return []
    room = width - 10
    lines = [means[start : start + room] for start in range(0, len(means), room)]
    label = f"{len(means)} cores".ljust(10)
    return [
        Row(
            line(Run(label if number == 0 else " " * 10, "dim"), blocks(part, 100, glyphs)),
            rank=4,
            slices=((10, width),),
        )
        for number, part in enumerate(lines)
    ]


def core_means(recent: Sequence[Sample], now_s: float) -> list[float]:
    """Per core, the mean of the last whole window, in steps of an eighth so that noise does not repaint."""
    start = (now_s // CORES_EVERY_S - 1) * CORES_EVERY_S
    window = [
        s.host.per_core_pct
        for s in recent
        if start <= s.time_s < start + CORES_EVERY_S and s.host.per_core_pct
    ]
    if not window:
        window = [s.host.per_core_pct for s in recent[-1:]]
    size = min((len(cores) for cores in window), default=0)
    return [sum(cores[core] for cores in window) / len(window) for core in range(size)]


def process_rows(processes: Sequence[ProcessSample], width: int) -> list[Row]:
    """The training's own processes and its loader workers: how many, how busy, how large."""
    rows = []
    for label, role in (("training", "main"), ("loaders", "worker"), ("others", "")):
        chosen = [p for p in processes if (p.role == role if role else p.role not in ("main", "worker"))]
        if chosen:
            rows.append(
                Row(
                    line(Run(label.ljust(10), "dim"), shorten(_summary(chosen), width - 10)),
                    3,
                    ((10, width),),
                )
            )
    return rows


def _summary(processes: Sequence[ProcessSample]) -> str:
    cpu = [p.cpu_pct for p in processes if p.cpu_pct is not None]
    rss = [p.rss_bytes for p in processes if p.rss_bytes is not None]
    number = f"{len(processes)} process" + ("es" if len(processes) > 1 else "")
    return f"{number}  {f.percent(sum(cpu) if cpu else None)} CPU  {f.size(sum(rss) if rss else None)}"
