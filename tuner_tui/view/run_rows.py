"""A run as rows: its start, speed, loss, shares of its time, memory, evaluation, and its ranks.

The modules of events are imported in functions: the first frame shows no run, and their many dataclasses take time.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from tuner_tui.core.units import GIB, format_duration, format_share, format_short_duration, format_size
from tuner_tui.view import number_format as f
from tuner_tui.view.cells import (
    BAD,
    GOOD,
    LABEL,
    WARN,
    Line,
    Style,
    TextSpan,
    join_fitting,
    labelled_flow,
    labelled_row,
    line,
    shorten,
    text_width,
    wrapped_rows,
)
from tuner_tui.view.charts import blocks

if TYPE_CHECKING:
    from tuner_tui.hardware.sample import Sample
    from tuner_tui.runs.events.run_state import RunState
    from tuner_tui.runs.events.types import Evaluated, Steps
    from tuner_tui.runs.read.run_context import RunContext
    from tuner_tui.runs.store.remedy_outcomes import RemedyOutcome


def outcome_sentence(state: RunState, limit_bytes: int | None) -> str:
    """Return the sentence of the run's outcome; for out of memory, with the memory limit of the run."""
    from tuner_tui.runs.events.run_state import OUT_OF_MEMORY, strip_allocator_message

    sentence = strip_allocator_message(state.finished.sentence) if state.finished is not None else ""
    if not sentence.startswith(OUT_OF_MEMORY) or limit_bytes is None:
        return sentence
    return f"{sentence.rstrip('.')}; the limit was {format_size(limit_bytes)}."


PHASES = {
    "importing": "before torch is loaded",
    "loading-model": "loading the model",
    "loading-data": "loading data",
    "saving": "saving a checkpoint",
    "generating": "generating samples",
    "skipping": "skipping batches done before",
}
"""Longer texts for phases."""
START_UP, MOST_STARTUP = "start and end", 0.2
"""The time of a run that is none of its steps, and its share from which on it is named."""
NO_PROGRESS_S = 600.0
"""A phase of the start that lasts so long says what it waits for."""
BUSY_PCT, IDLE_PCT, READING_BYTES_S = 50.0, 5.0, 5e6
OUTCOMES: dict[str, tuple[str, Style]] = {
    "completed": (f"{GOOD} completed", "good"),
    "stopped": (f"{WARN} stopped", "warn"),
    "not-started": (f"{WARN} not started", "warn"),
    "failed": (f"{BAD} failed", "bad"),
    "out-of-memory": (f"{BAD} out of memory", "bad"),
    "lost": (f"{BAD} lost", "bad"),
    "killed": (f"{BAD} killed", "bad"),
    "time-limit": (f"{WARN} time limit", "warn"),
    "preempted": (f"{WARN} preempted", "warn"),
    "node-lost": (f"{BAD} node lost", "bad"),
    "requeued": (f"{WARN} requeued", "warn"),
}


class RunScene(NamedTuple):
    """A run at `now_s` (seconds since the epoch), and what is known of earlier runs of the same training.

    `charted`: its loss is shown in a chart with a heading of its own.
    """

    state: RunState
    sample: Sample | None
    now_s: float
    context: RunContext | None = None
    charted: bool = False


def run_rows(scene: RunScene, width: int) -> list[Line]:
    """Return the figures of a run that has not ended, and how its start goes."""
    return [*startup_rows(scene, width), *_figure_rows(scene, width), *_eval_rows(scene.state, width)]


def startup_rows(scene: RunScene, width: int) -> list[Line]:
    """Return the phases before the first step with their seconds, and what the current one waits for if it is long."""
    from tuner_tui.runs.events.progress import startup_phase, startup_phases

    state = scene.state
    current, phases = startup_phase(state, scene.now_s), startup_phases(state, scene.now_s)
    if current is None:
        return []
    parts = [
        TextSpan(f"{PHASES.get(phase, phase)} {format_duration(seconds)}", "strong" if phase == current[0] else "dim")
        for phase, seconds in phases
    ]
    if scene.context is not None and scene.context.usual_startup_s is not None:
        parts.append(TextSpan(f"usually {format_duration(scene.context.usual_startup_s)} in all", "dim"))
    rows = labelled_flow("start-up", map(line, parts), width, " · ")
    if current[1] >= NO_PROGRESS_S and (reason := waiting_reason(state, scene.sample)):
        rows += wrapped_rows(f"{WARN} {reason}", width, "warn")
    return rows


def waiting_reason(state: RunState, sample: Sample | None) -> str:
    """Return what a start without progress waits for, by the ranks and the newest sample; empty if nothing is known."""
    started = len(state.ranks)
    if state.world_size is not None and started < state.world_size:
        return f"It waits for {state.world_size - started} of {state.world_size} ranks, which have not started."
    processes = () if sample is None else sample.processes
    loads = [process.cpu_pct for process in processes if process.cpu_pct is not None]
    if sample is None or not loads:
        return ""
    busy = [gpu.index for gpu in sample.gpus if (gpu.utilisation_pct or 0.0) >= BUSY_PCT]
    if busy:
        return f"GPU {', '.join(map(str, busy))} is busy; no step has ended yet."
    if sum(loads) >= BUSY_PCT:
        return f"It computes on the CPU ({sum(loads):.0f} % of one core): preparing data, or compiling."
    if (sample.host.disk_read_bytes_s or 0.0) >= READING_BYTES_S:
        return f"It waits for the disk, which reads {f.mb_s(sample.host.disk_read_bytes_s)} MB/s."
    if sum(loads) < IDLE_PCT:
        return "It neither computes nor reads from the disk: it waits for the network, a lock or another process."
    return ""


def steps_made(state: RunState) -> str:
    """Return `1,240 of 9,000 steps`, `steps 801 to 1,240 of 9,000` of a resumed run, or `301 steps` without a whole.

    Empty if they were not counted.
    """
    if state.step is None:
        return "no step" if state.loss is None else ""
    whole = f" of {f.count(state.total_steps)}" if state.total_steps else ""
    if state.step > state.first_step > 0:
        return f"steps {f.count(state.first_step + 1)} to {f.count(state.step)}{whole}"
    return f"{f.count(state.step)}{whole} steps"


def steps_text(state: RunState, aligned: bool = False) -> str:
    """Return `step 40/~9,000`, where the total is a guess; without one `step 40  batch 3 of 10`, that of the epoch."""
    if state.step is None:
        return ""
    if state.total_steps:
        total = f.count(state.total_steps)
        return f"step {f.count(state.step).rjust(len(total) * aligned)}/{'~' * state.total_guessed}{total}"
    batch = "" if state.position is None else "  batch {:,} of {:,}".format(*state.position)
    return f"step {f.count(state.step)}{batch}"


def outcome_parts(state: RunState, name: str) -> list[TextSpan]:
    """Return how a run ended, its name, and its steps and time."""
    assert state.finished is not None
    words, style = OUTCOMES.get(state.finished.outcome, (f"{BAD} {state.finished.outcome}", "bad"))
    if state.loss_problem and style != "bad":
        words, style = f"{WARN} {words.partition(' ')[2]}, {state.loss_problem}", "warn"
    mark, _, outcome = words.partition(" ")
    made = steps_made(state)
    seconds = None if state.launched_t is None else state.finished.t - state.launched_t
    took = "" if seconds is None else format_duration(seconds)
    if seconds is not None and state.counters:  # else neither fits the speed that stands below
        rest_s = seconds - max(steps.train_s + steps.eval_s + steps.save_s for steps in state.counters)
        took += f", including {format_duration(rest_s)} for {START_UP}" if rest_s > MOST_STARTUP * seconds else ""
    return [
        TextSpan(f"{mark} {outcome[:1].upper()}{outcome[1:]}", style),
        TextSpan(name, "strong"),
        TextSpan(f"{made}{' in ' if made else 'after '}{took}" if took else made),
    ]


def _group(label: str, first: str, rest: Iterable[str], width: int, style: Style = "strong") -> Line:
    """Return one bold figure after its label, and as many others as fit."""
    others = join_fitting(rest, width - LABEL - text_width(first) - 3)
    return labelled_row(label, TextSpan(first, style), TextSpan(f" · {others}" if others else "", "dim"))


def _figure_rows(scene: RunScene, width: int) -> list[Line]:
    """Return speed and loss; what is not known is left out, and where the time goes is drawn as a bar."""
    from tuner_tui.runs.events.progress import phase_at

    state, rates = scene.state, scene.state.rates
    past: Style = "dim" if phase_at(state, scene.now_s) == "stalled" else "strong"
    running = "" if state.launched_t is None else f"running for {format_short_duration(scene.now_s - state.launched_t)}"
    rows = []
    if rates.steps_s is not None:
        speeds = [
            *_remedy_words(None if scene.context is None else scene.context.remedy),
            _amount(rates.tokens_s, "tokens/s"),
            _amount(rates.samples_s, "samples/s"),
            _padding(rates.padding_share, state.counters),
            running,
        ]
        rows.append(_group("speed", f"{f.significant(rates.steps_s)} steps/s", speeds, width, style=past))
    progress = [
        epoch_text(state),
        "" if state.learning_rate is None else f"LR {f.exponent(state.learning_rate)}",
        "" if state.grad_norm is None else f"grad norm {f.significant(state.grad_norm)}",
    ]
    if state.loss is not None and not scene.charted:
        style = finite_style(state.loss) or "strong"
        rows.append(_group("loss", f.metric(state.loss), progress, width, style=style))
    elif any(progress):
        rows.append(labelled_row("training", join_fitting(progress, width - LABEL)))
    if state.loss_parts:
        parts = [f"{name} {f.metric(value)}" for name, value in state.loss_parts.items()]
        rows.append(labelled_row("parts", join_fitting(parts, width - LABEL)))
    return rows


def _remedy_words(outcome: RemedyOutcome | None) -> list[str]:
    if outcome is not None and outcome.speed is not None:
        ratio, low, high = outcome.speed
        return [f"{speed_against(1.0 if low <= 1 <= high else ratio, outcome.before).text} by {outcome.title}"]
    return [f"{outcome.title}: inconclusive"] if outcome is not None and outcome.verdict == "not comparable" else []


def speed_against(ratio: float, run: str) -> TextSpan:
    """Return `12 % faster than r007`, or that it is as fast."""
    if abs(ratio - 1) < f.EQUAL_SPEED:
        return TextSpan(f"as fast as {run}", "dim")
    return TextSpan(f"{f.gain(ratio)} than {run}", "good" if ratio > 1 else "warn")


def epoch_text(state: RunState) -> str:
    """Return `epoch 0.86 of 2`: the share of the steps planned, unless these are a guess and the training says it."""
    epoch, planned = state.epoch, state.planned_epochs
    certain = epoch is None or epoch % 1 == 0 or not state.total_guessed
    if planned and state.total_steps and state.step is not None and certain:
        epoch = planned * state.step / state.total_steps
    if epoch is None:
        return ""
    number = f"{epoch:.0f}" if epoch % 1 == 0 else f"{epoch:.2f}"
    return f"epoch {number} of {planned:.3g}" if planned else f"epoch {number}"


def _amount(value: float | None, unit: str) -> str:
    return "" if value is None else f"{f.significant(value)} {unit}"


def peak_memory(state: RunState, sample: Sample | None) -> str:
    """Return the allocator's peak against the memory of the smallest GPU: ranks may have different GPUs.

    Of a run that used no GPU, the peak of its RAM.
    """
    peak = peak_bytes(state)
    if peak is None:
        resident = [steps.rss_peak_bytes for steps in state.counters if steps.rss_peak_bytes is not None]
        total = None if sample is None else sample.host.ram_total_bytes
        return f"{_peak_of(sum(resident), total)} RAM" if resident else ""
    totals = [gpu.memory_total_bytes for gpu in sample.gpus if gpu.memory_total_bytes] if sample else []
    return _peak_of(peak, min(totals, default=None))


def peak_bytes(state: RunState) -> int | None:
    """Return the largest peak of the allocators of all ranks."""
    peaks = (steps.allocated_peak_bytes for steps in state.counters if steps.allocated_peak_bytes is not None)
    return max(peaks, default=None)


def _peak_of(size_bytes: int, total_bytes: int | None) -> str:
    small = size_bytes < GIB
    peak, unit = (f.short_size(size_bytes), "") if small else (f.gib(size_bytes), " GiB")
    return f"peak {peak} of {f.capacity_gib(total_bytes)} GiB" if total_bytes else f"peak {peak}{unit}"


def _padding(part: float | None, latest: Sequence[Steps]) -> str:
    """Return the share of padding, marked with `~` if it is an estimate; nothing below a percent."""
    is_estimate = any(counters.tokens_estimated for counters in latest)
    return f"padding {'~' * is_estimate}{format_share(part)}" if part and part >= 0.01 else ""


def finite_style(value: float | None) -> Style:
    """Return the style of a value that may not be a number."""
    return "bad" if value is not None and not math.isfinite(value) else ""


def format_results(evaluation: Evaluated) -> list[str]:
    """Return the results of an evaluation as text, without its loss."""
    return [
        f"{name.removeprefix('eval_').replace('_', ' ')} {f.metric(value)}"
        for name, value in evaluation.results.items()
        if name != "eval_loss"
    ]


def _eval_rows(state: RunState, width: int) -> list[Line]:
    """Return the newest evaluation's metrics; its loss is part of the grid."""
    text = "  ".join(format_results(state.evaluations[-1])) if state.evaluations else ""
    if not text:
        return []
    at = f"  at step {f.count(state.evaluations[-1].step)}"
    fits = text_width(text + at) <= width - LABEL
    return [labelled_row("evaluated", shorten(text + at if fits else text, width - LABEL))]


EQUAL_STEPS = 1.05
"""Below this ratio to the others' mean, the slowest rank is not named: the difference is noise."""


def rank_rows(state: RunState, width: int, in_step: bool = False) -> list[Line]:
    """Return how the ranks differ: the slowest in words and as a bar of each; nothing for a single rank.

    `in_step`: a finding says that the others wait for one. Their steps take equally long then; what differs is the time
    that each works in a step.
    """
    from tuner_tui.runs.events.progress import rates_of

    if len(state.ranks) < 2:
        return []
    times = times_of_ranks(state, in_step)
    longest, slowest = max(times.values(), default=None), slowest_rank(times)
    shares = ((number, rates_of([rank]).data_wait_share) for number, rank in state.ranks.items())
    waits = {number: share for number, share in shares if share is not None}
    low, high = format_share(min(waits.values(), default=None)), format_share(max(waits.values(), default=None))
    wait = "" if low == high else f"data wait {low} … {high} (rank {max(waits, key=lambda rank: waits[rank])})"
    if longest is None:
        words = "no step times yet"
    elif slowest is None:
        words = f"all {len(times)} need about {f.significant(longest)} s per step"
    else:
        others = [time for number, time in times.items() if number != slowest]
        mean = f.significant(sum(others) / len(others))
        words = f"slowest is rank {slowest}: {f.significant(longest)} s per step, the others {mean}"
        if in_step:
            words = f"rank {slowest} works {f.significant(longest)} s of a step, the others {mean} and wait"
    gap = " " * (2 * len(state.ranks) <= width - LABEL)  # lest equal ones melt into a block
    bars = [
        TextSpan(gap * (n > 0) + blocks([times.get(n)], longest or 1.0), "warn" if n == slowest else "dim")
        for n in sorted(state.ranks)
        if slowest is not None
    ]
    return labelled_flow("ranks", [line(words), *filter(None, (line(*bars), line(wait)))], width)


def times_of_ranks(state: RunState, in_step: bool) -> dict[int, float]:
    """Return seconds per step of each rank with any; `in_step` those in which it does not wait for the others."""
    from tuner_tui.runs.events.progress import rank_times, rates_of

    if in_step and (measured := rank_times(state.ranks.values())):
        return {rank.rank: rank.step_s - rank.rank_wait_s for rank in measured}
    times = {number: rates_of([rank]).step_time_s for number, rank in state.ranks.items()}
    return {number: time for number, time in times.items() if time is not None}


def slowest_rank(times: Mapping[int, float]) -> int | None:
    """Return the rank that takes longest, if that is notably longer than the others do."""
    slowest = max(times, key=lambda number: times[number], default=None)
    others = [time for number, time in times.items() if number != slowest]
    is_equal = slowest is None or not others or times[slowest] < EQUAL_STEPS * sum(others) / len(others)
    return None if is_equal else slowest
