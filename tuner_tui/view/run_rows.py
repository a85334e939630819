"""A run as rows: speed, loss, shares of its time, memory, evaluation, its ranks, and how it ended.

The modules of events are imported in functions: the first frame shows no run, and their many dataclasses take time.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from tuner_tui.core.text import wrap_text
from tuner_tui.core.units import format_duration, format_share, format_short_duration, format_size
from tuner_tui.view import number_format as f
from tuner_tui.view.cells import (
    BAD,
    GOOD,
    LABEL,
    WARN,
    Row,
    Style,
    TextSpan,
    align_right,
    join_fitting,
    labelled_row,
    line,
    shorten,
    text_width,
)

if TYPE_CHECKING:
    from tuner_tui.hardware.sample import Sample
    from tuner_tui.runs.events.run_state import RankState, RunState
    from tuner_tui.runs.events.types import Evaluated, Finished, Steps


def outcome_sentence(state: RunState, limit_bytes: int | None) -> str:
    """Return the sentence of the run's outcome; for out of memory, with the memory limit of the run."""
    from tuner_tui.runs.events.run_state import OUT_OF_MEMORY, strip_allocator_message

    sentence = strip_allocator_message(state.finished.sentence) if state.finished is not None else ""
    if not sentence.startswith(OUT_OF_MEMORY) or limit_bytes is None:
        return sentence
    return f"{sentence.rstrip('.')}; the limit was {format_size(limit_bytes)}."


PHASES = {
    "saving": "saving a checkpoint",
    "skipping": "skipping batches done before",
}
"""Longer texts for phases."""
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
    """A run at `now_s` (seconds since the epoch); `limit_bytes` is its memory limit."""

    state: RunState
    sample: Sample | None
    now_s: float
    limit_bytes: int | None = None


def run_rows(scene: RunScene, width: int) -> list[Row]:
    """Return the figures of a run, or how it ended and what it spent its time on."""
    if scene.state.finished is not None:
        return finish_rows(scene, scene.state.finished, width)
    return [*_sentence_rows(scene, width), *_figure_rows(scene, width), *_eval_rows(scene.state, width)]


def finish_rows(scene: RunScene, finished: Finished, width: int) -> list[Row]:
    """Return the finish card: outcome, where the time went, the best evaluation, the checkpoint, the next keys."""
    state = scene.state
    words, style = OUTCOMES.get(finished.outcome, (f"{BAD} {finished.outcome}", "bad"))
    took = f" after {format_duration(finished.t - state.launched_t)}" if state.launched_t is not None else ""
    rows = [Row(line(TextSpan(words, style), took, TextSpan(f"  {steps_made(state)}", "dim")))]
    rows += _sentence_rows(scene, width)
    rows += _time_rows(scene, finished, width)
    best = best_evaluation(state)
    if best is not None:
        value = f"eval loss {f.metric(best.metrics['eval_loss'])} at step {f.count(best.step)}"
        rows.append(_group("best", value, format_metrics(best.metrics), width))
    elif state.loss is not None:
        rows.append(_group("last loss", f.metric(state.loss), [], width))
    from tuner_tui.runs.events.progress import mean_rates

    speed = mean_rates(state.ranks.values())
    if speed.steps_s is not None:
        rest = [f"{f.significant(speed.tokens_s)} tokens/s" if speed.tokens_s else "", _peak(scene)]
        rows.append(_group("speed", f"{f.significant(speed.steps_s)} steps/s", rest, width))
    if state.checkpoint is not None:
        kept = f"step {f.count(state.checkpoint.step)}  {state.checkpoint.path}"
        rows.append(labelled_row("saved", shorten(kept, width - LABEL)))
    return [*rows, Row(line(*_next_keys(finished.outcome)))]


def _next_keys(outcome: str) -> list[TextSpan]:
    keys = (("t", "train again"), ("v", "compare"), ("o", "tune"), ("r", "runs"))
    if outcome in ("failed", "out-of-memory"):
        keys = (("a", "apply the remedy"), ("t", "train again"), ("w", "why"), ("r", "runs"))
    return [span for key, does in keys for span in (TextSpan(key, "strong"), TextSpan(f" {does}   ", "dim"))]


def steps_made(state: RunState) -> str:
    """Return `1,240 of 9,000 steps`, or `301 steps` where the end was not known."""
    if state.step is None:
        return "no step"
    return f"{f.count(state.step)}{f' of {f.count(state.total_steps)}' if state.total_steps else ''} steps"


def best_evaluation(state: RunState) -> Evaluated | None:
    """Return the evaluation with the lowest loss."""
    finite = [
        evaluation for evaluation in state.evaluations if math.isfinite(evaluation.metrics.get("eval_loss", math.nan))
    ]
    return min(finite, key=lambda evaluation: evaluation.metrics["eval_loss"], default=None)


def time_spent(state: RunState, seconds: float) -> list[tuple[str, float]]:
    """Return what a run of `seconds` spent its time on, as shares of the whole, the largest first."""
    latest = [rank.latest for rank in state.ranks.values() if rank.latest is not None]
    if not latest or seconds <= 0:
        return []
    longest = max(latest, key=lambda steps: steps.train_s)
    parts = {
        "computing": longest.train_s - longest.data_wait_s,
        "waiting for data": longest.data_wait_s,
        "evaluation": longest.eval_s,
        "saving": longest.save_s,
        "start-up": seconds - longest.train_s - longest.eval_s - longest.save_s,
    }
    shares = [(name, spent / seconds) for name, spent in parts.items() if spent / seconds >= LEAST_SHARE]
    return sorted(shares, key=lambda share: -share[1])


LEAST_SHARE = 0.005


def _time_rows(scene: RunScene, finished: Finished, width: int) -> list[Row]:
    if scene.state.launched_t is None:
        return []
    shares = [
        f"{name} {format_share(part)}" for name, part in time_spent(scene.state, finished.t - scene.state.launched_t)
    ]
    return [_group("time", shares[0], shares[1:], width)] if shares else []


def _group(label: str, first: str, rest: Iterable[str], width: int, style: Style = "strong") -> Row:
    """Return one bold figure after its label, and as many others as fit."""
    others = join_fitting(rest, width - LABEL - text_width(first) - 3)
    return labelled_row(label, TextSpan(first, style), TextSpan(f" · {others}" if others else "", "dim"))


def _figure_rows(scene: RunScene, width: int) -> list[Row]:
    """Return speed, loss and the shares of time; what is not known is left out."""
    from tuner_tui.runs.events.progress import phase_at

    state, rates = scene.state, scene.state.rates
    latest = [rank.latest for rank in state.ranks.values() if rank.latest is not None]
    past: Style = "dim" if phase_at(state, scene.now_s) == "stalled" else "strong"
    rows = []
    if rates.steps_s is not None:
        rest = [
            _amount(rates.samples_s, "samples/s"),
            _amount(rates.tokens_s, "tokens/s"),
            "" if rates.padding_share is None else f"padding {_padding(rates.padding_share, latest)}",
        ]
        rows.append(_group("speed", f"{f.significant(rates.steps_s)} steps/s", rest, width, style=past))
    if state.loss is not None:
        rest = [
            "" if _eval_loss(state) is None else f"eval loss {f.metric(_eval_loss(state))}",
            "" if state.grad_norm is None else f"grad norm {f.significant(state.grad_norm)}",
            "" if state.learning_rate is None else f"LR {f.exponent(state.learning_rate)}",
            "" if state.epoch is None else f"epoch {f.significant(state.epoch)}",
        ]
        rows.append(_group("loss", f.metric(state.loss), rest, width, style=finite_style(state.loss) or "strong"))
    shares = [
        _share_text("evaluation", _share_of_run(latest, "eval_s")),
        _share_text("saving", _share_of_run(latest, "save_s")),
    ]
    if state.launched_t is not None:
        shares.append(f"running for {format_short_duration(scene.now_s - state.launched_t)}")
    if rates.data_wait_share is not None:
        rows.append(_group("time", f"{format_share(rates.data_wait_share)} waiting for data", shares, width))
    if peak := _peak(scene):
        rows.append(_group("memory", peak, [], width))
    return rows


def _amount(value: float | None, unit: str) -> str:
    return "" if value is None else f"{f.significant(value)} {unit}"


def _share_text(label: str, share: float | None) -> str:
    return f"{label} {format_share(share)}" if share else ""


def _peak(scene: RunScene) -> str:
    """Return the allocator's peak against the memory of the smallest GPU: ranks may have different GPUs."""
    latest = [rank.latest for rank in scene.state.ranks.values() if rank.latest is not None]
    peaks = [steps.allocated_peak_bytes for steps in latest if steps.allocated_peak_bytes is not None]
    if not peaks:
        return ""
    totals = [gpu.memory_total_bytes for gpu in scene.sample.gpus if gpu.memory_total_bytes] if scene.sample else []
    of = f" of {f.gib(min(totals))}" if totals else ""
    return f"peak {f.gib(max(peaks))}{of} GiB"


def _sentence_rows(scene: RunScene, width: int) -> list[Row]:
    """Return the outcome and what the fallback did, at most two rows each."""
    state = scene.state
    fallback = state.fallback_ended if state.fell_back is None else state.fell_back.sentence
    sentences = (outcome_sentence(state, scene.limit_bytes), fallback)
    return [row for sentence in sentences if sentence for row in _wrapped(sentence, width)]


def _wrapped(sentence: str, width: int) -> list[Row]:
    first, *rest = wrap_text(sentence, max(1, width))
    return [Row(line(first)), *([Row(line(shorten(" ".join(rest), width)))] if rest else [])]


def _padding(part: float | None, latest: Sequence[Steps]) -> str:
    """Return the share of padding, marked with `~` if it is an estimate."""
    return "~" * any(counters.tokens_estimated for counters in latest if part is not None) + format_share(part)


def finite_style(value: float | None) -> Style:
    """Return the style of a value that may not be a number."""
    return "bad" if f.significant(value) in ("nan", "inf", "-inf") else ""


def _eval_loss(state: RunState) -> float | None:
    return state.evaluations[-1].metrics.get("eval_loss") if state.evaluations else None


def _share_of_run(latest: list[Steps], part: str) -> float | None:
    """Return the largest share of any rank's time since its first step that went into `part`."""
    wholes = [(steps, steps.train_s + steps.eval_s + steps.save_s) for steps in latest]
    return max((getattr(steps, part) / whole for steps, whole in wholes if whole > 0), default=None)


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
    return [labelled_row("evaluated", shorten(text + at if fits else text or at.strip(), width - LABEL))]


RANK_CELL = 6
EQUAL_STEPS = 1.05
"""Below this ratio to the others' mean, the slowest rank is not named: the difference is noise."""


def rank_rows(state: RunState, width: int) -> list[Row]:
    """Return step time and data wait of each rank; nothing for a single rank."""
    if len(state.ranks) < 2:
        return []
    times = {number: step_time_s(rank) for number, rank in sorted(state.ranks.items())}
    shown = list(times)[: max(1, (width - LABEL) // RANK_CELL)]
    rows = [
        labelled_row("rank", TextSpan("".join(align_right(str(number), RANK_CELL) for number in shown), "dim")),
        _rank_values("s/step", [f.significant(times[number]) for number in shown]),
        _rank_values("data wait", [format_share(_data_wait(state.ranks[number])) for number in shown]),
    ]
    if len(shown) < len(times):
        rows.append(Row(line(TextSpan(f"{len(times) - len(shown)} ranks not shown", "dim"))))
    return [*rows, *(Row(line(text)) for text in wrap_text(_slowest_rank_sentence(times), max(8, width)))]


def _rank_values(label: str, values: list[str]) -> Row:
    return labelled_row(label, "".join(align_right(value, RANK_CELL) for value in values))


def _slowest_rank_sentence(times: Mapping[int, float | None]) -> str:
    measured = {number: time for number, time in times.items() if time is not None}
    if not measured:
        return f"{len(times)} ranks, no step times yet"
    slowest = max(measured, key=lambda number: measured[number])
    others = [time for number, time in measured.items() if number != slowest]
    if others and measured[slowest] < EQUAL_STEPS * sum(others) / len(others):
        return f"all ranks need about {f.significant(measured[slowest])} s per step"
    comparison = f", the others {f.significant(sum(others) / len(others))}" if others else ""
    return f"slowest is rank {slowest}: {f.significant(measured[slowest])} s per step{comparison}"


def step_time_s(rank: RankState) -> float | None:
    """Return seconds per step over the rank's recent counters."""
    if len(rank.recent) < 2 or rank.recent[-1].own_steps <= rank.recent[0].own_steps:
        return None
    first, last = rank.recent[0], rank.recent[-1]
    return (last.train_s - first.train_s) / (last.own_steps - first.own_steps)


def _data_wait(rank: RankState) -> float | None:
    """Return the share of recent step time that the rank waited for data, 0 to 1."""
    from tuner_tui.runs.events.progress import data_wait_share

    return data_wait_share(rank.recent[0], rank.recent[-1]) if rank.recent else None
