"""The GPUs now: a row per GPU with its history, or several rows of history where there is room."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate

from tuner_tui.core.text import wrap_text
from tuner_tui.core.units import format_duration, format_percent, format_short_duration
from tuner_tui.hardware.gpu.xid import format_xid
from tuner_tui.hardware.sample import GpuSample, Sample
from tuner_tui.ui.drawing import number_format as f
from tuner_tui.ui.drawing.cells import BAD, WARN, Row, Style, TextSpan, align_right, line, shorten, text_width
from tuner_tui.ui.drawing.charts import blocks, tall_blocks
from tuner_tui.ui.drawing.ring_history import BUCKET_S, history_columns
from tuner_tui.ui.drawing.tables import LABEL, SCALE, labelled_row

STALE_S = 3.0
"""A GPU that has not answered for longer is marked, because its figures are old."""


@dataclass(frozen=True, slots=True)
class GpuScene:
    """The newest sample and the recent ones, oldest first."""

    sample: Sample
    recent: Sequence[Sample]


@dataclass(frozen=True, slots=True)
class GpuDetail:
    """Rows per GPU: lines of the utilisation chart (0 means only the table) and number of further histories."""

    chart: int = 0
    traces: int = 0


@dataclass(frozen=True, slots=True)
class GpuColumn:
    """A column of the table; `from_width` is the narrowest table that shows it."""

    heading: str
    width: int
    from_width: int
    figure: Callable[[GpuSample], str]


@dataclass(frozen=True, slots=True)
class GpuSeries:
    """A history: label, value, and the value of its full height as a number and as text."""

    label: str
    figure: Callable[[GpuSample], float | None]
    full: Callable[[GpuSample], float | None]
    words: Callable[[GpuSample], str]


COLUMNS = (
    GpuColumn("%", 4, 0, lambda gpu: f.integer(gpu.utilisation_pct)),
    GpuColumn("W", 5, 0, lambda gpu: f.integer(gpu.power_w)),
    GpuColumn("GiB", 6, 0, lambda gpu: f.gib(gpu.memory_used_bytes)),
    GpuColumn("°C", 4, 0, lambda gpu: f.integer(gpu.temperature_c)),
    GpuColumn("MHz", 6, 48, lambda gpu: f.tens(gpu.clock_sm_mhz)),
    GpuColumn("of GiB", 8, 64, lambda gpu: f.gib(gpu.memory_total_bytes)),
    GpuColumn("of W", 6, 72, lambda gpu: f.integer(gpu.power_limit_w)),
    GpuColumn("fan %", 7, 80, lambda gpu: f.integer(gpu.fan_pct)),
    GpuColumn("mem MHz", 9, 88, lambda gpu: f.count(gpu.clock_memory_mhz)),
)
BUSY = GpuSeries("busy", lambda gpu: gpu.utilisation_pct, lambda _: 100.0, lambda _: "100 %")
SERIES = (
    GpuSeries(
        "power", lambda gpu: gpu.power_w, lambda gpu: gpu.power_limit_w, lambda gpu: f"{f.integer(gpu.power_limit_w)} W"
    ),
    GpuSeries(
        "memory",
        lambda gpu: gpu.memory_used_bytes,
        lambda gpu: gpu.memory_total_bytes,
        lambda gpu: f"{f.gib(gpu.memory_total_bytes)} GiB",
    ),
    GpuSeries("heat", lambda gpu: gpu.temperature_c, lambda _: 100.0, lambda _: "100 °C"),
)
INDEX = 4


def gpu_rows(scene: GpuScene, width: int, detail: GpuDetail) -> list[Row]:
    """Return a heading with the units, the rows of each GPU, and its problems in words."""
    if not scene.sample.gpus:
        return []
    columns = _table(width, detail)
    taken = INDEX + sum(column.width for column in columns)
    history = 0 if detail.chart else max(0, width - taken - 1)
    heading = "GPU " + "".join(align_right(column.heading, column.width) for column in columns)
    span = f" last {format_short_duration(history * BUCKET_S)}" if history >= 12 else ""
    rows = [Row(line(TextSpan(heading + span, "dim")), rank=2)]
    for gpu in scene.sample.gpus:
        rows.append(_figures(scene, gpu, columns, width, history))
        if detail.chart:
            rows += _histories(scene, gpu, width, detail)
    return rows + gpu_problem_rows(scene.sample, width)


def extra_rows(cards: int, width: int, detail: GpuDetail) -> int:
    """Return the number of rows that `detail` adds to the plain table of `cards` GPUs."""
    if not detail.chart:
        return 0
    return cards * (detail.chart + detail.traces + (1 if _has_remarks(width, detail) else 0))


def _has_remarks(width: int, detail: GpuDetail) -> bool:
    return detail.traces >= len(SERIES) and width < COLUMNS[-1].from_width


def _table(width: int, detail: GpuDetail) -> list[GpuColumn]:
    """Return the columns that fit; charts in rows of their own leave room for more."""
    if not detail.chart:
        return [column for column in COLUMNS if width >= column.from_width]
    ends = accumulate(column.width for column in COLUMNS)
    return [column for column, end in zip(COLUMNS, ends, strict=True) if INDEX + end <= width]


def _figures(scene: GpuScene, gpu: GpuSample, columns: Sequence[GpuColumn], width: int, history: int) -> Row:
    mark, style = gpu_mark(gpu)
    values = "".join(align_right(column.figure(gpu), column.width) for column in columns)
    taken = INDEX + len(values)
    name = "  " + gpu.name.removeprefix("NVIDIA ")
    shown_name = name if text_width(name) <= width - taken else ""
    trace = (
        TextSpan(" " + blocks(_series_columns(scene, gpu, BUSY, history), 100), "dim")
        if history
        else TextSpan(shown_name, "dim")
    )
    index = TextSpan(align_right(str(gpu.index), 2), "strong")
    return Row(
        line(index, TextSpan(f"{mark} ", style), TextSpan(values, "dim" if gpu.lost or is_stale(gpu) else ""), trace),
        rank=1,
    )


def _series_columns(scene: GpuScene, gpu: GpuSample, trace: GpuSeries, width: int) -> list[float | None]:
    def figure(sample: Sample) -> float | None:
        card = find_gpu(sample, gpu.index)
        return None if card is None or card.lost else trace.figure(card)

    return history_columns(scene.recent, (gpu.index, trace.label), figure, scene.sample.time_s, width)


def find_gpu(sample: Sample, index: int) -> GpuSample | None:
    """Return the GPU with `index`, which nearly always is its position too."""
    cards = sample.gpus
    if index < len(cards) and cards[index].index == index:
        return cards[index]
    return next((card for card in cards if card.index == index), None)


def _histories(scene: GpuScene, gpu: GpuSample, width: int, detail: GpuDetail) -> list[Row]:
    rows = _history(scene, gpu, BUSY, width, detail.chart, rank=2)
    for trace in SERIES[: detail.traces]:
        rows += _history(scene, gpu, trace, width, 1, rank=3)
    if _has_remarks(width, detail):
        more = f"memory clock {f.count(gpu.clock_memory_mhz)} MHz, fan {format_percent(gpu.fan_pct)}"
        rows.append(labelled_row("", TextSpan(shorten(more, width - LABEL), "dim"), rank=4))
    return rows


def _history(scene: GpuScene, gpu: GpuSample, trace: GpuSeries, width: int, height: int, rank: int) -> list[Row]:
    room = max(0, width - LABEL - SCALE)
    chart = tall_blocks(_series_columns(scene, gpu, trace, room), trace.full(gpu) or 0.0, height)
    words = align_right(trace.words(gpu), SCALE)
    return [
        labelled_row(
            trace.label if number == 0 else "",
            TextSpan(text + (words if number == 0 else " " * SCALE), "dim"),
            rank=rank,
        )
        for number, text in enumerate(chart)
    ]


def gpu_mark(gpu: GpuSample) -> tuple[str, Style]:
    """Return the mark of a GPU that is lost, stale or throttled; a blank for any other."""
    if gpu.lost:
        return BAD, "bad"
    if is_stale(gpu):
        return "?", "warn"
    return (WARN, "warn") if gpu.throttle or gpu.xid is not None else (" ", "")


def is_stale(gpu: GpuSample) -> bool:
    """True if the GPU has not answered for so long that its figures are old."""
    return gpu.age_s is not None and gpu.age_s > STALE_S


def gpu_problem_rows(sample: Sample, width: int) -> list[Row]:
    """Return the problems of the GPUs in words; GPUs with the same problem share a row."""
    grouped: dict[tuple[str, Style, str], list[int]] = {}
    for gpu in sample.gpus:
        if words := _gpu_problem(gpu):
            grouped.setdefault((*gpu_mark(gpu), words), []).append(gpu.index)
    return [
        Row(line(TextSpan(text, style)), rank=1)
        for (mark, style, words), cards in grouped.items()
        for text in wrap_text(f"{mark} GPU {_numbers(cards)}: {words}", max(8, width), subsequent_indent="  ")
    ]


def _gpu_problem(gpu: GpuSample) -> str:
    error = "" if gpu.xid is None else f"{format_xid(gpu.xid)}, {format_duration(gpu.xid_age_s)} ago"
    return "; ".join(filter(None, (_state(gpu), error)))


def _state(gpu: GpuSample) -> str:
    if gpu.lost:
        return f"lost {format_duration(gpu.age_s)} ago" if gpu.age_s is not None else "lost"
    if is_stale(gpu):
        return f"silent for {format_duration(gpu.age_s)}, old figures"
    return ", ".join(gpu.throttle)


def _numbers(cards: Sequence[int]) -> str:
    """Return `0–7` for consecutive indices, else `0, 2, 5`."""
    if len(cards) > 2 and cards[-1] - cards[0] == len(cards) - 1:
        return f"{cards[0]}–{cards[-1]}"
    return ", ".join(map(str, cards))
