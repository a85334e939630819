"""The GPUs now: one row a card with units in the heading, or a chart and bars where one card has the room."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tuner_tui.hardware.sample import GpuSample, Sample
from tuner_tui.ui import format as f
from tuner_tui.ui.drawing.bars import bar, blocks, tall_blocks
from tuner_tui.ui.drawing.cells import Row, Run, Style, left, line, right, shorten
from tuner_tui.ui.drawing.glyphs import Glyphs
from tuner_tui.ui.drawing.sweep import sweep

BUCKET_S = 5.0
"""Seconds of one column of history: 20 columns hold the last minute and a half, and one changes every five seconds."""
STALE_S = 3.0


@dataclass(frozen=True, slots=True)
class GpuScene:
    """The newest sample, the recent ones (oldest first) and the moment they are looked at."""

    sample: Sample
    recent: Sequence[Sample]
    now_s: float


@dataclass(frozen=True, slots=True)
class Column:
    """A column of the table: its heading, its width, and the narrowest table that has room for it."""

    heading: str
    width: int
    from_width: int = 0


FIGURES = (Column("%", 4), Column("W", 5), Column("GiB", 6), Column("°C", 4))
EXTRA = (
    Column("MHz", 6, 50),
    Column("of GiB", 7, 58),
    Column("of W", 6, 66),
    Column("fan %", 6, 74),
    Column("mem MHz", 8, 84),
)


def gpu_table(scene: GpuScene, width: int, glyphs: Glyphs) -> list[Row]:
    """One row a card: utilisation, power, memory, temperature, and its history; then what is wrong, in words."""
    if not scene.sample.gpus:
        return []
    columns = [*FIGURES, *(column for column in EXTRA if width >= column.from_width)]
    taken = 4 + sum(column.width for column in columns)
    history = max(0, width - taken - 1)
    heading = "GPU " + "".join(right(column.heading, column.width) for column in columns)
    rows = [Row(line(Run(heading, "dim")), rank=3)]
    rows += [_gpu_row(scene, gpu, columns, taken, history, glyphs) for gpu in scene.sample.gpus]
    return rows + trouble_rows(scene, width, glyphs)


def _gpu_row(
    scene: GpuScene, gpu: GpuSample, columns: Sequence[Column], taken: int, history: int, glyphs: Glyphs
) -> Row:
    mark, style = mark_of(gpu, scene.now_s, glyphs)
    values = "".join(right(value, column.width) for value, column in zip(_values(gpu), columns, strict=False))
    trace = blocks(_columns(scene, gpu.index, history), 100, glyphs)
    dim: Style = "dim" if style else ""
    slices = ((4, taken), (taken + 1, taken + 1 + history)) if history else ((4, taken),)
    return Row(
        line(Run(right(str(gpu.index), 2), "strong"), Run(f"{mark} ", style), Run(values, dim), " ", trace),
        1,
        slices,
    )


def _values(gpu: GpuSample) -> list[str]:
    clock = None if gpu.clock_sm_mhz is None else round(gpu.clock_sm_mhz, -1)
    return [
        f.whole(gpu.utilisation_pct),
        f.watts(gpu.power_w),
        f.gib(gpu.memory_used_bytes),
        f.whole(gpu.temperature_c),
        f.whole(clock),
        f.gib(gpu.memory_total_bytes),
        f.watts(gpu.power_limit_w),
        f.whole(gpu.fan_pct),
        f.whole(gpu.clock_memory_mhz),
    ]


def _columns(scene: GpuScene, index: int, width: int) -> list[float | None]:
    moments = (
        (sample.time_s, gpu.utilisation_pct)
        for sample in scene.recent
        for gpu in sample.gpus
        if gpu.index == index and not gpu.lost
    )
    return sweep(moments, scene.sample.time_s, width, BUCKET_S)


def age_s(gpu: GpuSample, sample: Sample, now_s: float) -> float:
    """How old the card's figures are: their own age, and that of the sample."""
    return (gpu.age_s or 0.0) + max(0.0, now_s - sample.time_s)


def mark_of(gpu: GpuSample, age: float, glyphs: Glyphs) -> tuple[str, Style]:
    """The mark in front of a card: lost, stale or held back; a blank for a card that is well."""
    if gpu.lost:
        return glyphs.bad, "bad"
    if (gpu.age_s or 0.0) > STALE_S:
        return "?", "warn"
    return (glyphs.warn, "warn") if gpu.throttle else (" ", "")


def trouble_rows(scene: GpuScene, width: int, glyphs: Glyphs) -> list[Row]:
    """What holds cards back, in words; cards with the same trouble share a row."""
    grouped: dict[tuple[str, Style], list[int]] = {}
    for gpu in scene.sample.gpus:
        for words, style in _troubles(gpu):
            grouped.setdefault((words, style), []).append(gpu.index)
    return [
        Row(
            line(Run(shorten(f"{_mark(style, glyphs)} GPU {_numbers(cards)}: {words}", width), style)), rank=1
        )
        for (words, style), cards in grouped.items()
    ]


def _mark(style: Style, glyphs: Glyphs) -> str:
    return glyphs.bad if style == "bad" else glyphs.warn


def _troubles(gpu: GpuSample) -> list[tuple[str, Style]]:
    if gpu.lost:
        return [(f"lost, last seen {f.duration(gpu.age_s)} ago" if gpu.age_s is not None else "lost", "bad")]
    if gpu.age_s is not None and gpu.age_s > STALE_S:
        return [(f"no answer for {f.duration(gpu.age_s)}, figures are old", "warn")]
    return [(", ".join(gpu.throttle), "warn")] if gpu.throttle else []


def _numbers(cards: Sequence[int]) -> str:
    if len(cards) > 2 and cards[-1] - cards[0] == len(cards) - 1:
        return f"{cards[0]}–{cards[-1]}"
    return ", ".join(map(str, cards))


def gpu_detail(scene: GpuScene, gpu: GpuSample, width: int, chart_rows: int, glyphs: Glyphs) -> list[Row]:
    """One card with room: its name, a tall history of utilisation, bars of memory and power, clocks, troubles."""
    mark, style = mark_of(gpu, scene.now_s, glyphs)
    name = line(
        Run(f"GPU {gpu.index} ", "strong"),
        Run(f"{mark} " if style else "", style),
        Run(shorten(gpu.name, width - 8), "dim"),
    )
    rows = [Row(name, rank=2), *_chart(scene, gpu, width, chart_rows, glyphs)]
    memory = _part(gpu.memory_used_bytes, gpu.memory_total_bytes)
    power = _part(gpu.power_w, gpu.power_limit_w)
    rows += [
        _barred(
            "memory",
            f"{f.gib(gpu.memory_used_bytes)} of {f.gib(gpu.memory_total_bytes)} GiB",
            memory,
            width,
            glyphs,
        ),
        _barred("power", f"{f.watts(gpu.power_w)} of {f.watts(gpu.power_limit_w)} W", power, width, glyphs),
    ]
    clocks = (
        f"{f.whole(gpu.temperature_c)} °C   fan {f.percent(gpu.fan_pct)}   {f.whole(gpu.clock_sm_mhz)} MHz"
    )
    rows.append(
        Row(line(Run("heat      ", "dim"), shorten(clocks, width - 10)), rank=3, slices=((10, width),))
    )
    return rows


def _chart(scene: GpuScene, gpu: GpuSample, width: int, height: int, glyphs: Glyphs) -> list[Row]:
    columns = _columns(scene, gpu.index, max(0, width - 10))
    now = left(f.percent(gpu.utilisation_pct), 10)
    rows = []
    for number, text in enumerate(tall_blocks(columns, 100, height, glyphs)):
        label = (
            Run(now, "strong")
            if number == height - 1
            else Run("busy      " if number == 0 else " " * 10, "dim")
        )
        rows.append(
            Row(line(label, text), rank=1 if number == height - 1 else 4, slices=((0, 10), (10, width)))
        )
    return rows


def _barred(label: str, text: str, part: float | None, width: int, glyphs: Glyphs) -> Row:
    room = width - 10 - 18 - 1
    filled = bar(part, room, glyphs) if room >= 4 else ""
    return Row(
        line(Run(left(label, 10), "dim"), left(text, min(18, max(0, width - 10))), " ", filled),
        2,
        ((10, width),),
    )


def _part(used: float | None, whole: float | None) -> float | None:
    return used / whole if used is not None and whole else None
