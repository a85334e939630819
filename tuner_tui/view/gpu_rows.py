"""The GPUs now: gauges and histories of each, a wall of many, and their problems in words."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, lru_cache
from itertools import groupby
from typing import TYPE_CHECKING, NamedTuple

from msgspec import Struct

from tuner_tui.core.units import GIB, UNKNOWN, format_duration, format_percent, format_short_duration
from tuner_tui.view import number_format as f
from tuner_tui.view.cells import (
    BAD,
    LABEL,
    WARN,
    Line,
    Part,
    Style,
    TextSpan,
    align_left,
    align_right,
    labelled_row,
    line,
    side_by_side,
    text_width,
    wrapped_rows,
)
from tuner_tui.view.charts import COLUMNS_A_CELL, area_lines, axis_text, blocks, gauge
from tuner_tui.view.sample_history import Columns, drawn_columns, samples_after

if TYPE_CHECKING:
    from tuner_tui.hardware.sample import GpuSample, Sample

# What NVML gives as reasons for lower clocks although nothing is wrong: a GPU at full load is at its power cap, and
# clocks that an administrator has set stay set.
NORMAL_THROTTLE = frozenset({"power cap", "application clocks set", "sync boost", "display clock setting"})
STALE, STALE_S = "?", 3.0
"""A GPU that did not answer for longer within the last `JUDGED_S` is marked, because its figures are old."""


class GpuScene(Struct, frozen=True, dict=True):
    """The newest sample and the recent ones, oldest first, of which charts show the last `past_s` seconds.

    `training` are the GPUs that should be busy, as a training runs on them. `jobs` names what runs on each GPU, and
    has those of runs of this program in `run_gpus`; where it is given each GPU is coloured by what it does.
    """

    sample: Sample
    recent: Sequence[Sample]
    training: frozenset[int] = frozenset()
    jobs: Mapping[int, str] | None = None
    run_gpus: frozenset[int] = frozenset()
    past_s: float = 1.0

    @cached_property
    def judged(self) -> Mapping[int, list[GpuSample]]:
        """Each GPU as it was over the last seconds, by its index."""
        past: dict[int, list[GpuSample]] = {}
        for sample in samples_after(self.recent, self.sample.time_s - JUDGED_S):
            for gpu in sample.gpus:
                past.setdefault(gpu.index, []).append(gpu)
        return past


INDEX = 4
BUSY_TEXT, MEMORY_TEXT, POWER_TEXT, HEAT_TEXT = 6, 11, 11, 7
NARROWEST_GAUGE, USUAL_GAUGE, WIDEST_GAUGE, WIDEST_GAUGE_ALONE = 7, 12, 20, 46
NARROWEST_TRACE, USUAL_TRACE = 10, 21
WIDEST_JOB = 40
HOT_C = 85.0
"""Near the temperature at which data-centre GPUs lower their clocks, 85 to 90 °C."""
BUSY_PCT = 50.0
"""A GPU that trains and was busy for less of the last seconds is marked as idle."""
NEARLY_FULL = 0.95
"""The share of a GPU's memory above which the allocator's cache leaves no room: the next peak may be out of memory."""
JUDGED_S = 10.0


class GpuLayout(NamedTuple):
    """Widths of the parts of a GPU's row; 0 where there is no room for one."""

    busy: int
    memory: int = 0
    power: int = 0
    heat: int = 0
    trace: int = 0
    job: int = 0


def gpu_layout(width: int, history: bool, jobs: bool) -> GpuLayout:
    """Return the layout for `width` cells, with a history and the jobs at the right where there is room."""
    # Parts give way from the right: the temperature needs 60 cells, power 47. What is left is shared by the
    # gauges, after the history and the job have got their part; a history takes what the gauges leave.
    if width < 30:
        return GpuLayout(max(0, width - INDEX - BUSY_TEXT))
    power = POWER_TEXT if width >= 47 else 0
    heat = HEAT_TEXT if width >= 60 else 0
    room = width - INDEX - BUSY_TEXT - MEMORY_TEXT - power - heat
    job = min(WIDEST_JOB, room // (3 if history else 2)) if jobs and room >= 40 else 0
    room -= job
    least = min(USUAL_TRACE, room - 2 * NARROWEST_GAUGE) if history else 0
    has_trace = least >= NARROWEST_TRACE
    each = min(USUAL_GAUGE, (room - least) // 2) if has_trace else min(WIDEST_GAUGE_ALONE, room // 2)
    return GpuLayout(each, each, power, heat, room - 2 * each if has_trace else 0, job)


TWO_COLUMNS_FROM, NARROWEST_COLUMN, DENSE_COLUMN, COLUMN_GAP = 8, 64, 35, 3
"""GPUs from which, and cells a column from which, they stand in two columns; of gauges alone where rows are short."""
WALL_FROM = 17
"""GPUs from which each is a cell of a wall, and only the worst have a row."""


def gpu_columns(gpus: int, width: int) -> int:
    """Return the columns in which so many GPUs stand."""
    return 2 if gpus >= TWO_COLUMNS_FROM and width >= 2 * NARROWEST_COLUMN + COLUMN_GAP else 1


def gpu_rows(scene: GpuScene, width: int, room: int = 0, columns: int = 0) -> list[Line]:
    """Return a heading and a row of gauges for each GPU, and the problems in words.

    Of `room` rows, what is left goes to histories below each of a few GPUs, else these are in the rows. Many GPUs stand
    in two `columns` where `room` is less than their rows, and very many are a wall of cells, with the worst in the rows
    left, at least five.
    """
    gpus = scene.sample.gpus
    columns = columns or (1 if len(gpus) < min(room, WALL_FROM) else gpu_columns(len(gpus), width))
    each = (width - COLUMN_GAP) // 2 if columns == 2 else width
    if len(gpus) >= WALL_FROM:
        all_in_rows = sum(gpu.lost for gpu in gpus) <= WORST
        problems = gpu_problem_rows(scene, width, each if all_in_rows else 0)
        wall = gpu_wall(scene, width)
        worst = max(WORST, columns * (room - len(wall) - len(problems) - 1))
        return [*wall, *_in_columns(scene, worst_gpus(scene, worst), columns if worst > WORST else 1, width), *problems]
    problems = gpu_problem_rows(scene, width, each)
    room -= len(problems)
    # Equally high for all, at rest or not, lest the screen moves. Eight areas below gauges would be one block.
    many = len(gpus) >= TWO_COLUMNS_FROM
    tall = 0 if many or not gpus else min(TALLEST_HISTORY, (room - 2) // len(gpus) - 1)
    apart = min(MOST_ROWS_OF_MANY, (room - 1) * columns // len(gpus)) if many else 1
    return [*_in_columns(scene, gpus, columns, width, tall if tall >= LEAST_HISTORY else 0, apart), *problems]


def dense_gpu_rows(scene: GpuScene, width: int) -> list[Line]:
    """Return the GPUs in two columns of few figures, or as a wall where they are too many or the columns too narrow."""
    if len(scene.sample.gpus) >= WALL_FROM or width < 2 * DENSE_COLUMN + COLUMN_GAP:
        return gpu_wall(scene, width)
    return _in_columns(scene, scene.sample.gpus, 2, width)


def _in_columns(
    scene: GpuScene, gpus: Sequence[GpuSample], columns: int, width: int, height: int = 0, each: int = 1
) -> list[Line]:
    """Return the rows of `gpus` in one column or two."""
    if columns == 1 or len(gpus) < 2:
        return _gpu_column(scene, gpus, width, height, each)
    half, lines = (width - COLUMN_GAP) // 2, -(-len(gpus) // columns)
    left, right = (_gpu_column(scene, part, half, height, each) for part in (gpus[:lines], gpus[lines:]))
    return side_by_side(left, right, half + COLUMN_GAP)


def _gpu_column(scene: GpuScene, gpus: Sequence[GpuSample], width: int, height: int, each: int) -> list[Line]:
    """Return a heading, for each GPU a row of gauges with `height` rows of history below it, and the axis of these.

    Without these each GPU has `each` rows: gauges, the history at their right, and a blank row if there are several.
    """
    if not gpus:
        return []
    layout = gpu_layout(width, history=not height and bool(scene.recent), jobs=scene.jobs is not None)
    rows = [_heading(layout, scene.past_s)]
    for gpu in gpus:
        if _is_lost_in_words(scene, gpu, width):
            number = TextSpan(align_left(align_right(str(gpu.index), 2), INDEX), "strong")
            shown = [line(number, TextSpan(f"{BAD} {_gpu_problem(scene, gpu)}", "bad"))]
        else:
            shown = _gauges(scene, gpu, layout, max(1, each - 1))
        if height:
            style: Style = "dim" if gpu.lost or is_stale(scene, gpu) else busy_style(scene, gpu)
            shown += history_rows(_load_columns(scene, gpu, width - INDEX - SCALE), style, height)
        rows += [*shown, *[()] * (each - len(shown))]
    return [*rows, *time_axis(scene.past_s, width)] if height else rows


WORST = 5
GROUP = 8
"""GPUs of a wall between two gaps: those of a node, as a rule."""
WIDEST_BAR = 3


def gpu_wall(scene: GpuScene, width: int) -> list[Line]:
    """Return a bar for each GPU, as tall as it is busy and coloured by its state, in rows of equally many."""
    gpus, room = scene.sample.gpus, width - LABEL
    groups = -(-len(gpus) // GROUP)
    lines = -(-groups // max(1, (room + 1) // (2 * GROUP + 1)))
    each = -(-groups // lines) * GROUP
    bar = max(1, min(WIDEST_BAR, (room - each // GROUP + 1) // each - 1))
    states = [_state_style(scene, gpu) for gpu in gpus]
    names: Mapping[Style, str] = {
        "good": "busy", "warn": "idle with a job", "gauge": "idle", "bad": "in trouble",
    }  # fmt: skip
    counts = (TextSpan(f"   {states.count(style)} {name}", style) for style, name in names.items() if style in states)
    rows = [line(f"{len(gpus)} GPUs", *counts)]
    for start in range(0, len(gpus), each):
        cells: list[TextSpan] = []
        for n, gpu in enumerate(gpus[start : start + each]):
            mark = gpu_mark(scene, gpu)[0].strip() or (WARN if states[start + n] == "bad" else "")
            level = blocks([gpu.utilisation_pct], 100)
            gap = " " if n % GROUP == 0 and n else ""
            bar_text = align_left(mark, bar) if mark else level * bar
            cells += [TextSpan(gap), TextSpan(f"{bar_text} ", states[start + n])]
        rows.append(labelled_row(f"{gpus[start].index}–{gpus[min(start + each, len(gpus)) - 1].index}", *cells))
    return rows


def worst_gpus(scene: GpuScene, count: int) -> list[GpuSample]:
    """Return the GPUs in trouble, those that idle, then the first ones, in the order of their numbers.

    By its load a GPU would come and go with each sample.
    """
    order: Mapping[Style, int] = {"bad": 0, "warn": 1}
    ranked = sorted(scene.sample.gpus, key=lambda gpu: (order.get(_state_style(scene, gpu), 2), not gpu.lost))
    return sorted(ranked[:count], key=lambda gpu: gpu.index)


def _state_style(scene: GpuScene, gpu: GpuSample) -> Style:
    """Return bad for a GPU with a problem, else the style of its load."""
    if gpu_mark(scene, gpu)[0].strip() or (memory_share(gpu) or 0) > NEARLY_FULL:
        return "bad"
    return busy_style(scene, gpu)


def _heading(layout: GpuLayout, past_s: float) -> Line:
    """Return the names of the columns, and how far a history in a row goes back."""
    names = align_left("GPU", INDEX)
    memory = layout.memory + MEMORY_TEXT if layout.memory else 0
    names += align_left("busy", layout.busy + BUSY_TEXT)
    names += align_left(" memory", memory)
    names += align_right("power", layout.power) + " " * layout.heat
    past = f" {axis_text(f'{format_short_duration(past_s)} ago', '', 'now', layout.trace - 1)}" if layout.trace else ""
    return line(TextSpan(names + past, "dim"))


def _gauges(scene: GpuScene, gpu: GpuSample, layout: GpuLayout, height: int) -> list[Line]:
    mark, mark_style = gpu_mark(scene, gpu)
    old: Style = "dim" if mark in (BAD, STALE) else ""
    used, style = memory_share(gpu), old or busy_style(scene, gpu)
    busy = None if gpu.utilisation_pct is None else gpu.utilisation_pct / 100
    parts: list[Part] = [
        TextSpan(align_right(str(gpu.index), 2), "strong"),
        TextSpan(f"{mark} ", mark_style),
        gauge(busy, layout.busy, style),
        TextSpan(align_right(format_percent(gpu.utilisation_pct), BUSY_TEXT), old or "strong"),
    ]
    if layout.memory:
        full: Style = old or ("bad" if (used or 0) > NEARLY_FULL else "")
        number = f.gib if (gpu.memory_total_bytes or 0) < f.SMALL_BYTES else f.whole_gib
        memory = _amount(gpu.memory_used_bytes, gpu.memory_total_bytes, number, "GiB")
        parts += [" ", gauge(used, layout.memory - 1, full or "second")]
        parts.append(TextSpan(align_right(memory, MEMORY_TEXT), full))
    if layout.power:
        power = _amount(gpu.power_w, gpu.power_limit_w, f.integer, "W")
        parts.append(TextSpan(align_right(power, layout.power), old))
    if layout.heat:
        hot: Style = "bad" if (gpu.temperature_c or 0) >= HOT_C else ""
        heat = _amount(gpu.temperature_c, None, f.integer, "°C")
        parts.append(TextSpan(align_right(heat, layout.heat), old or hot))
    below: list[Line] = []
    if layout.trace:
        first, *below = area_lines(_load_columns(scene, gpu, layout.trace - 1), 100.0, height, style)
        parts += [" ", *first]
    if layout.job:
        free = "free" if busy == 0 and (gpu.memory_used_bytes or GIB) < GIB else ""
        job = (scene.jobs or {}).get(gpu.index) or free
        parts.append(TextSpan(align_left(f"  {job}", layout.job), "curve" if gpu.index in scene.run_gpus else "dim"))
    at = INDEX + BUSY_TEXT + MEMORY_TEXT * bool(layout.memory) + sum(layout[:4]) + 1
    return [line(*parts), *(line(" " * at, *row) for row in below)]


def _is_lost_in_words(scene: GpuScene, gpu: GpuSample, width: int) -> bool:
    """True if the row of the GPU says in words that it is lost: there is nothing to show in gauges."""
    return gpu.lost and INDEX + 2 + text_width(_gpu_problem(scene, gpu)) <= width


def memory_share(gpu: GpuSample) -> float | None:
    """Return the part of the GPU's memory in use, 0 to 1."""
    return f.share_of(gpu.memory_used_bytes, gpu.memory_total_bytes)


def _amount(used: float | None, whole: float | None, number: Callable[[float], str], unit: str) -> str:
    """Return `61/80 GiB`, or `61 GiB` where the whole is not known."""
    if used is None:
        return UNKNOWN
    return f"{number(used)}{'' if whole is None else f'/{number(whole)}'} {unit}"


def busy_style(scene: GpuScene, gpu: GpuSample) -> Style:
    """Return good for a GPU that is kept busy, warn for one that trains or has a job and idles, over some seconds."""
    is_used = gpu.index in scene.training or bool((scene.jobs or {}).get(gpu.index))
    if is_busy(scene, gpu) and (is_used or gpu.utilisation_pct is not None):
        return "good"
    return "warn" if is_used else "gauge"


def is_busy(scene: GpuScene, gpu: GpuSample) -> bool:
    """True if the GPU was busy for at least half of the last seconds, or if that is not known."""
    # NVML's utilisation is that of a sixth of a second to a second: between two steps, while a batch is copied or a
    # checkpoint is written, it drops to zero. Only a mean over several seconds says whether the GPU waits for data.
    loads = _loads(scene, gpu)
    return not loads or sum(loads) / len(loads) >= BUSY_PCT


def is_known(scene: GpuScene, gpu: GpuSample) -> bool:
    """True if the load of the GPU was read in the last seconds."""
    return bool(_loads(scene, gpu)) or gpu.utilisation_pct is not None


def _loads(scene: GpuScene, gpu: GpuSample) -> list[float]:
    states = scene.judged.get(gpu.index, ())
    return [state.utilisation_pct for state in states if state.utilisation_pct is not None]


def gpus_in_use(sample: Sample, device: object = None) -> frozenset[int]:
    """Return the GPUs that hold memory of the sampled processes, of a training on `device` as it reported it; of any
    process, where the driver does not say whose it is.
    """
    # In a container the processes are not known, and no GPU would match. Then every one with a gigabyte in use is taken
    # for one that trains.
    if device == "cpu":
        return frozenset()
    pids = {process.pid for process in sample.processes}
    held = {gpu.index for gpu in sample.gpus if any(process.pid in pids for process in gpu.processes or ())}
    unnamed = (gpu for gpu in sample.gpus if not gpu.processes)
    return frozenset(held or {gpu.index for gpu in unnamed if (gpu.memory_used_bytes or 0) >= GIB})


LEAST_HISTORY, TALLEST_HISTORY, MOST_ROWS_OF_MANY = 2, 6, 3
SCALE = 7
"""Cells to the right of a history, for the ends of its scale."""


def _load_columns(scene: GpuScene, gpu: GpuSample, cells: int) -> Columns:
    """Return how busy the GPU was lately (%), for each dot of so many cells."""
    index = gpu.index

    def load(sample: Sample) -> float | None:
        past = find_gpu(sample, index)
        return None if past is None or past.lost else past.utilisation_pct

    return drawn_columns(scene.recent, (index, "busy"), load, scene.sample, COLUMNS_A_CELL * cells, scene.past_s)


@lru_cache(maxsize=64)
def history_rows(loads: Columns, style: Style, height: int) -> tuple[Line, ...]:
    """Return `height` rows with an area of the loads (%), and its scale at the right edge.

    A single row has no room for both ends of the scale.
    """
    scale = {0: "100 %", height - 1: "0"} if height > 1 else {}
    return tuple(
        line(" " * INDEX, *cells, TextSpan(align_left(f" {scale.get(y, '')}", SCALE), "dim"))
        for y, cells in enumerate(area_lines(loads, 100.0, height, style))
    )


def time_axis(past_s: float, width: int) -> list[Line]:
    """Return the row below histories that says when their values were sampled."""
    axis = axis_text(f"{format_short_duration(past_s)} ago", "", "now", max(0, width - INDEX - SCALE))
    return [line(TextSpan(" " * INDEX + axis, "dim"))]


def find_gpu(sample: Sample, index: int) -> GpuSample | None:
    """Return the GPU with `index`, which nearly always is its position too."""
    gpus = sample.gpus
    if index < len(gpus) and gpus[index].index == index:
        return gpus[index]
    return next((gpu for gpu in gpus if gpu.index == index), None)


def gpu_mark(scene: GpuScene, gpu: GpuSample) -> tuple[str, Style]:
    """Return the mark of a GPU that is lost, stale or throttled; a blank for any other."""
    if gpu.lost:
        return BAD, "bad"
    if is_stale(scene, gpu):
        return STALE, "bad"
    return (WARN, "bad") if abnormal_throttle(gpu) or gpu.xid is not None else (" ", "")


def abnormal_throttle(gpu: GpuSample) -> tuple[str, ...]:
    """Return the reasons for lower clocks that are not normal, as the power cap at full load and set clocks are."""
    return tuple(reason for reason in gpu.throttle if reason not in NORMAL_THROTTLE)


def is_stale(scene: GpuScene, gpu: GpuSample) -> bool:
    """True if the GPU has not answered for so long that its figures are old; also some seconds later."""
    return _silence_s(scene, gpu) > STALE_S


def _silence_s(scene: GpuScene, gpu: GpuSample) -> float:
    """Return the longest time without an answer of the last seconds: a slow driver answers now and then."""
    return max(past.age_s or 0.0 for past in (gpu, *scene.judged.get(gpu.index, ())))


def gpu_problem_rows(scene: GpuScene, width: int, row_width: int = 0) -> list[Line]:
    """Return the problems of the GPUs in words, but those that rows of `row_width` cells say.

    GPUs with the same problem share a row.
    """
    # Eight GPUs of one node usually have the same problem (power, heat, a driver that hangs): one row names them all.
    grouped: dict[tuple[str, Style, str], list[int]] = {}
    for gpu in (gpu for gpu in scene.sample.gpus if not _is_lost_in_words(scene, gpu, row_width)):
        if words := _gpu_problem(scene, gpu):
            mark, style = gpu_mark(scene, gpu)
            grouped.setdefault((mark, style or "dim", words), []).append(gpu.index)
        elif (memory_share(gpu) or 0) > NEARLY_FULL:
            grouped.setdefault((WARN, "bad", "memory nearly full"), []).append(gpu.index)
    return [
        row
        for (mark, style, words), gpus in grouped.items()
        for row in wrapped_rows(f"GPU {format_indices(gpus)}: {words}", width, style, f"{mark} ")
    ]


def _gpu_problem(scene: GpuScene, gpu: GpuSample) -> str:
    from tuner_tui.hardware.driver import format_xid  # not needed for the first frame

    error = "" if gpu.xid is None else f"{format_xid(gpu.xid)}, {format_duration(gpu.xid_age_s)} ago"
    return "; ".join(filter(None, (_state(scene, gpu), error)))


def _state(scene: GpuScene, gpu: GpuSample) -> str:
    if gpu.lost:
        return f"lost {format_duration(gpu.age_s)} ago" if gpu.age_s is not None else "lost"
    if is_stale(scene, gpu):
        hangs = (gpu.age_s or 0.0) > JUDGED_S
        words = "does not answer, values of" if hangs else "answers slowly, values up to"
        return f"{words} {format_duration(_silence_s(scene, gpu))} {'ago' if hangs else 'old'}"
    if abnormal_throttle(gpu):
        return f"throttled: {', '.join(gpu.throttle)}"
    return f"at its {' and '.join(gpu.throttle)}" if gpu.throttle else ""


def format_indices(gpus: Sequence[int], separator: str = ", ") -> str:
    """Return the indices, ascending, such as `0–4, 6`: three consecutive ones and more as a range."""
    grouped = groupby(enumerate(gpus), lambda pair: pair[1] - pair[0])  # the same for consecutive ones
    runs = [[gpu for _, gpu in run] for _, run in grouped]
    return separator.join(f"{run[0]}–{run[-1]}" if len(run) > 2 else separator.join(map(str, run)) for run in runs)
