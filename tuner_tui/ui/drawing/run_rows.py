"""A run as rows: phase, progress, speed, loss, evaluation, memory, its ranks, and how it ended."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tuner_tui.core.text import wrap_text
from tuner_tui.core.units import (
    format_duration,
    format_rough_duration,
    format_share,
    format_short_duration,
    format_size,
)
from tuner_tui.hardware.sample import Sample
from tuner_tui.runs.events.history import History
from tuner_tui.runs.events.progress import eta, phase_at
from tuner_tui.runs.events.rates import data_wait_share, mean_rates
from tuner_tui.runs.events.run_state import RankState, RunState
from tuner_tui.runs.events.types import Steps
from tuner_tui.ui.drawing import number_format as f
from tuner_tui.ui.drawing.cells import (
    BAD,
    GOOD,
    WARN,
    Line,
    Row,
    Style,
    TextSpan,
    align_right,
    line,
    shorten,
    text_width,
)
from tuner_tui.ui.drawing.charts import bar, run_curve
from tuner_tui.ui.drawing.tables import LABEL, LabelledValue, grid_value_span, labelled_row, value_grid

OUT_OF_MEMORY = "Out of memory"


def outcome_sentence(state: RunState, limit_bytes: int | None) -> str:
    """Return the sentence of the run's outcome; for out of memory, with the memory limit of the run."""
    sentence = strip_allocator_message(state.finished.sentence) if state.finished is not None else ""
    if not sentence.startswith(OUT_OF_MEMORY) or limit_bytes is None:
        return sentence
    return f"{sentence.rstrip('.')}; its limit was {format_size(limit_bytes)}."


def strip_allocator_message(sentence: str) -> str:
    """Return an outcome's sentence without the message of the allocator."""
    return f"{sentence.partition(': ')[0].rstrip('.')}." if sentence.startswith(OUT_OF_MEMORY) else sentence


PHASES = {
    "saving": "saving a checkpoint",
    "skipping": "skipping batches done before",
}
"""Longer texts for phases."""
OUTCOMES: dict[str, tuple[str, Style]] = {
    "completed": (f"{GOOD} completed", "good"),
    "stopped": (f"{WARN} stopped", "warn"),
    "failed": (f"{BAD} failed", "bad"),
    "out-of-memory": (f"{BAD} out of memory", "bad"),
    "lost": (f"{BAD} lost", "bad"),
}
STEP_LABEL = 5
ETA_CELLS = 15


@dataclass(frozen=True, slots=True)
class RunScene:
    """A run at `now_s` (seconds since the epoch); `limit_bytes` is its memory limit."""

    state: RunState
    history: History
    sample: Sample | None
    now_s: float
    limit_bytes: int | None = None


def run_rows(scene: RunScene, width: int) -> list[Row]:
    """Return all rows of a run, the most important with the lowest rank."""
    return [
        Row(phase_line(scene.state, scene.now_s)),
        *_sentence_rows(scene, width),
        progress_row(scene.state, scene.now_s, width),
        loss_row(scene, width),
        *value_grid(_run_values(scene), width),
        *_memory_rows(scene, width),
        *_eval_rows(scene.state, width),
    ]


def phase_line(state: RunState, now_s: float) -> Line:
    """Return the phase with its duration unless it is training, or the outcome of the run."""
    if state.finished is not None:
        words, style = OUTCOMES.get(state.finished.outcome, (f"{BAD} {state.finished.outcome}", "bad"))
        took = f"  after {format_duration(state.finished.t - state.launched_t)}" if state.launched_t else ""
        return line(TextSpan(words, style), TextSpan(took, "dim"))
    phase = phase_at(state, now_s)
    if phase == "stalled":
        last = state.last_step_t or state.phase_since_t or now_s
        return line(TextSpan(f"{WARN} stalled: no step for {format_duration(now_s - last)}", "warn"))
    since = (
        "" if phase == "training" or not state.phase_since_t else f"  {format_duration(now_s - state.phase_since_t)}"
    )
    asked = f"  {WARN} {state.stop_requested} asked for" if state.stop_requested else ""
    source = f"  seen in: {state.source}" if state.source else ""
    return line(TextSpan(PHASES.get(phase, phase), "strong"), since, TextSpan(asked, "warn"), TextSpan(source, "dim"))


def _sentence_rows(scene: RunScene, width: int) -> list[Row]:
    """Return the outcome and what the fallback did, at most two rows each."""
    state = scene.state
    fallback = state.fallback_ended if state.fell_back is None else state.fell_back.sentence
    sentences = (outcome_sentence(state, scene.limit_bytes), fallback)
    return [row for sentence in sentences if sentence for row in _wrapped(sentence, width)]


def _wrapped(sentence: str, width: int) -> list[Row]:
    first, *rest = wrap_text(sentence, max(1, width))
    return [Row(line(first)), *([Row(line(shorten(" ".join(rest), width)))] if rest else [])]


def progress_row(state: RunState, now_s: float, width: int) -> Row:
    """Return step and total, a bar, the share done and the time left; only the step if the total is unknown.

    The total of a plain PyTorch loop is unknown.
    """
    if state.total_steps is None:
        return Row(line(TextSpan("step ", "dim"), f.count(state.step)), 0)
    step, total = f.count(state.step), f.count(state.total_steps)
    steps = f"{align_right(step, max(text_width(step), text_width(total)))}/{total}"
    done = state.step / state.total_steps if state.step is not None and state.total_steps else None
    bar_at = STEP_LABEL + text_width(steps)
    end = _progress_end(done, _time_left(state, now_s), width - bar_at)
    end_at = max(bar_at, width - text_width(end))
    middle = f" {bar(done, end_at - bar_at - 1)}" if end_at - bar_at >= 8 else " " * (end_at - bar_at)
    return Row(line(TextSpan("step ", "dim"), steps, middle, end), 0)


def _progress_end(done: float | None, time_left: str, room: int) -> str:
    """Return the share done and the time left in fixed columns."""
    both = align_right(format_share(done), 5) + align_right(time_left, ETA_CELLS)
    if text_width(both) <= room:
        return both
    return (
        align_right(time_left, min(room, ETA_CELLS))
        if time_left and room >= 8
        else align_right(format_share(done), max(0, min(room, 5)))
    )


def _time_left(state: RunState, now_s: float) -> str:
    if state.finished is not None:
        return ""
    left = None if phase_at(state, now_s) == "stalled" else eta(state, now_s)
    return f"ETA {format_rough_duration(left.seconds if left else None)}"


def loss_row(scene: RunScene, width: int) -> Row:
    """Return the loss and its curve over the whole run, aligned with the progress bar."""
    start, end = grid_value_span(width)
    value = TextSpan(align_right(f.metric(scene.state.loss), end - start), _finite(scene.state.loss))
    curve = run_curve(scene.history.loss, scene.state.total_steps, width - end - 1)
    return labelled_row("loss", value, " ", TextSpan(curve, "dim"), rank=0)


def _padding(part: float | None, latest: Sequence[Steps]) -> str:
    """Return the share of padding, marked with `~` if it is an estimate."""
    return "~" * any(counters.tokens_estimated for counters in latest if part is not None) + format_share(part)


def _run_values(scene: RunScene) -> list[LabelledValue]:
    state = scene.state
    rates = state.rates if state.finished is None else mean_rates(state.ranks.values())
    latest = [rank.latest for rank in state.ranks.values() if rank.latest is not None]
    past: Style = "" if state.finished is None and phase_at(state, scene.now_s) != "stalled" else "dim"
    return [
        LabelledValue("steps/s", f.significant(rates.steps_s), past, rank=1),
        LabelledValue("samples/s", f.significant(rates.samples_s), past, rank=1),
        LabelledValue("tokens/s", f.significant(rates.tokens_s), past, rank=3),
        LabelledValue("padding", _padding(rates.padding_share, latest), rank=3),
        LabelledValue("eval loss", f.metric(_eval_loss(state)), _finite(_eval_loss(state)), rank=2),
        LabelledValue("grad norm", f.significant(state.grad_norm), _finite(state.grad_norm), rank=2),
        LabelledValue("LR", f.exponent(state.learning_rate), rank=3),
        LabelledValue("epoch", f.significant(state.epoch), rank=3),
        LabelledValue("data wait", format_share(rates.data_wait_share), rank=1),
        LabelledValue("evaluation", format_share(_share_of_run(latest, "eval_s")), rank=4),
        LabelledValue("saving", format_share(_share_of_run(latest, "save_s")), rank=5),
        LabelledValue("elapsed", format_short_duration(_elapsed(state, scene.now_s)), rank=5),
    ]


def _finite(value: float | None) -> Style:
    return "bad" if f.significant(value) in ("nan", "inf", "-inf") else ""


def _eval_loss(state: RunState) -> float | None:
    return state.evaluations[-1].metrics.get("eval_loss") if state.evaluations else None


def _elapsed(state: RunState, now_s: float) -> float | None:
    end = state.finished.t if state.finished else now_s
    return end - state.launched_t if state.launched_t is not None else None


def _share_of_run(latest: list[Steps], part: str) -> float | None:
    """Return the largest share of any rank's time since its first step that went into `part`."""
    wholes = [(steps, steps.train_s + steps.eval_s + steps.save_s) for steps in latest]
    return max((getattr(steps, part) / whole for steps, whole in wholes if whole > 0), default=None)


def _memory_rows(scene: RunScene, width: int) -> list[Row]:
    """Return the allocator's peak against the memory of the smallest GPU: ranks may have different GPUs."""
    latest = [rank.latest for rank in scene.state.ranks.values() if rank.latest is not None]
    peaks = [steps.allocated_peak_bytes for steps in latest if steps.allocated_peak_bytes is not None]
    if not peaks:
        return []
    totals = [gpu.memory_total_bytes for gpu in scene.sample.gpus if gpu.memory_total_bytes] if scene.sample else []
    card = min(totals, default=None)
    text = f"{f.gib(max(peaks))} of {f.gib(card)} GiB" if card else f"{f.gib(max(peaks))} GiB"
    room = width - LABEL - text_width(text) - 1
    filled = f" {bar(max(peaks) / card, room)}" if card and room >= 6 else ""
    return [labelled_row("peak VRAM", text, filled, rank=2)]


def format_metrics(metrics: Mapping[str, float]) -> list[str]:
    """Return the metrics of an evaluation as text, without loss and speed."""
    return [
        f"{name.removeprefix('eval_').replace('_', ' ')} {f.metric(value)}"
        for name, value in metrics.items()
        if name not in ("eval_loss", "epoch") and not name.endswith(("_per_second", "_runtime", "_time"))
    ]


def _eval_rows(state: RunState, width: int) -> list[Row]:
    """Return the newest evaluation's metrics; its loss is part of the grid."""
    if not state.evaluations:
        return []
    last = state.evaluations[-1]
    text, at = "  ".join(format_metrics(last.metrics)), f"  at step {f.count(last.step)}"
    fits = text_width(text + at) <= width - LABEL
    return [labelled_row("evaluated", shorten(text + at if fits else text or at.strip(), width - LABEL), rank=3)]


RANK_CELL = 6


def rank_rows(state: RunState, width: int) -> list[Row]:
    """Return step time and data wait of each rank; nothing for a single rank."""
    if len(state.ranks) < 2:
        return []
    times = {number: step_time_s(rank) for number, rank in sorted(state.ranks.items())}
    shown = list(times)[: max(1, (width - LABEL) // RANK_CELL)]
    rows = [
        labelled_row("rank", TextSpan("".join(align_right(str(number), RANK_CELL) for number in shown), "dim"), rank=3),
        _rank_values("s a step", [f.significant(times[number]) for number in shown]),
        _rank_values("data wait", [format_share(_data_wait(state.ranks[number])) for number in shown]),
    ]
    if len(shown) < len(times):
        rows.append(Row(line(TextSpan(f"{len(times) - len(shown)} ranks not shown", "dim")), rank=3))
    return [*rows, *(Row(line(text), rank=3) for text in wrap_text(_slowest_rank_sentence(times), max(8, width)))]


def _rank_values(label: str, values: list[str]) -> Row:
    return labelled_row(label, "".join(align_right(value, RANK_CELL) for value in values), rank=3)


def _slowest_rank_sentence(times: Mapping[int, float | None]) -> str:
    known = {number: time for number, time in times.items() if time is not None}
    if not known:
        return f"{len(times)} ranks, no step times yet"
    slowest = max(known, key=lambda number: known[number])
    others = [time for number, time in known.items() if number != slowest]
    comparison = f", the others {f.significant(sum(others) / len(others))}" if others else ""
    return f"slowest is rank {slowest}: {f.significant(known[slowest])} s a step{comparison}"


def step_time_s(rank: RankState) -> float | None:
    """Return seconds per step over the rank's recent counters."""
    if len(rank.recent) < 2 or rank.recent[-1].own_steps <= rank.recent[0].own_steps:
        return None
    first, last = rank.recent[0], rank.recent[-1]
    return (last.train_s - first.train_s) / (last.own_steps - first.own_steps)


def _data_wait(rank: RankState) -> float | None:
    """Return the share of recent step time that the rank waited for data, 0 to 1."""
    return data_wait_share(rank.recent[0], rank.recent[-1]) if rank.recent else None
