"""How a run ended, as one card: outcome, loss, speed against earlier runs, where the time went, what to press next."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from tuner_tui.runs.events.progress import mean_rates
from tuner_tui.view import number_format as f
from tuner_tui.view.cells import (
    Line,
    Style,
    TextSpan,
    balanced_rows,
    flowing_rows,
    join_sections,
    keep_values,
    labelled_rows,
    line,
    shorten,
    shorten_start,
    side_by_side,
    text_width,
)
from tuner_tui.view.finding_rows import can_retry, choices, has_error
from tuner_tui.view.gpu_rows import gpus_in_use
from tuner_tui.view.loss_chart import EVALUATION as EVALUATION_SIGN
from tuner_tui.view.loss_chart import LossScene, best_label, loss_rows
from tuner_tui.view.run_bars import full_memory_rows, step_shares, time_rows
from tuner_tui.view.run_rows import (
    START_UP,
    format_results,
    outcome_parts,
    outcome_sentence,
    peak_memory,
    speed_against,
)
from tuner_tui.view.settings_form import KNOBS

if TYPE_CHECKING:
    from tuner_tui.advice.crash.oom_analysis import MemoryFigures
    from tuner_tui.advice.finding import Finding, Remedy
    from tuner_tui.hardware.sample import Sample
    from tuner_tui.runs.events.progress import History
    from tuner_tui.runs.events.run_state import RunState
    from tuner_tui.runs.read.reader import RunView
    from tuner_tui.runs.read.run_context import RunContext
    from tuner_tui.runs.store.record import RunRecord


class EndScene(NamedTuple):
    """A run that has ended, with its name and what trained.

    `context` is None until it was read. `can_take_back`: the settings still have what a remedy of the run changed.
    `start` is the key that trains what is set now, and what that does.
    """

    state: RunState
    history: History
    name: str
    title: str = ""
    context: RunContext | None = None
    findings: Sequence[Finding] = ()
    sample: Sample | None = None
    record: RunRecord | None = None
    can_take_back: bool = False
    start: tuple[str, str] = ("t", "run again")


def end_scene(name: str, view: RunView, context: RunContext | None, findings: Sequence[Finding]) -> EndScene:
    """Return the scene of a run that has ended, read from its folder."""
    title = "" if view.record is None else view.record.title
    return EndScene(view.state, view.history, name, title, context, findings, view.sample, view.record)


class Fact(NamedTuple):
    """A labelled value of the card."""

    label: str
    text: str
    style: Style = ""


FACT = 12
LEAST_KWH = 0.01
NOTABLE_GAIN = 1.1
"""A remedy that can make a run at most this many times as fast is not worth a line of its own."""
LONGEST_TITLE = 32
"""Cells of a remedy's title up to which it stands at its key."""
WIDE_FROM, FACTS_SHARE = 66, 0.46
"""From this width on the loss stands next to the facts, which have this share of it at most."""
LEAST_CHART, MOST_CHART, GAPS = 4, 24, 4


def end_rows(scene: EndScene, width: int, height: int) -> list[Line]:
    """Return the card in `width` cells; the chart takes what the rest leaves of `height` rows.

    It begins with what the status line does not say, and ends with the keys; what ended a failed run stands below it,
    in the findings.
    """
    facts, head = end_facts(scene), head_rows(scene, width, STATUS_PARTS)
    texts = [line(TextSpan(key, "curve"), f" {does}") for key, does in next_keys(scene)]
    foot = [bar_rows(scene, width), balanced_rows(texts, width)]
    room = height - len(head) - sum(map(len, foot))  # the keys below are never the part without room
    widest = max((text_width(fact.text) for fact in facts), default=0)
    at = width - min(round(width * FACTS_SHARE), FACT + widest) if width >= WIDE_FROM else 0
    rows = fact_rows(facts, width - at)
    apart = room >= GAPS + (max(LEAST_CHART, len(rows)) if at else LEAST_CHART + GAPS + len(rows))
    left = room - apart * GAPS - (0 if at else len(rows))
    chart = loss_chart(scene, at - 2 if at else width, min(MOST_CHART, left)) if left >= LEAST_CHART else []
    if at:
        rows, chart = side_by_side(chart, rows, at) if chart else fact_rows(facts, width), []
    return join_sections([head, rows[: max(0, room)], chart, *foot], apart)


def loss_chart(scene: EndScene, width: int, height: int) -> list[Line]:
    """Return the loss of the run without a heading: the facts name its values; nothing with fewer than two points."""
    shown = loss_scene(scene)
    return [] if shown is None else list(loss_rows(shown, width, height + 1))[1:]


def loss_scene(scene: EndScene) -> LossScene | None:
    """Return the loss of the run with that of the runs that it resumed; None with fewer than two points."""
    loss, earlier = scene.history.loss, None if scene.context is None else scene.context.earlier_loss
    resumed = earlier if earlier is not None and earlier.continued else None
    evaluations, state = scene.history.eval_loss, scene.state
    return None if len(loss.xs) < 2 else LossScene(loss, evaluations, state.step, state.loss, resumed)


def headline(scene: EndScene) -> list[TextSpan]:
    """Return the parts of the first line: outcome, run, steps and time, speed against earlier runs, energy."""
    parts, figures = outcome_parts(scene.state, f"{scene.name} {scene.title}".strip()), error_figures(scene)
    if figures is not None and figures.tried is not None:
        free = "" if figures.free is None else f", {f.gib(figures.free)} GiB free"
        parts.append(TextSpan(f"{f.gib(figures.tried)} GiB requested{free}", "bad"))
    compared, context = speed_against_earlier(scene), scene.context
    parts += [] if compared is None else [compared]
    if context is not None and context.energy_kwh is not None and context.energy_kwh >= LEAST_KWH:
        energy = f"GPUs {f.significant(context.energy_kwh)} kWh"
        parts.append(TextSpan(" · ".join(filter(None, (energy, context.cost))), "dim"))
    return parts


def speed_against_earlier(scene: EndScene) -> TextSpan | None:
    """Return `12 % faster than r007`, the fastest earlier run of the same training; None if either is unknown.

    A run that failed is not compared, nor one that waited for cores that other programs used. Of two runs of which a
    remedy was judged the gain is that of the verdict, if it has any.
    """
    waited = any(finding.cause == "cpu-contended" for finding in scene.findings)
    if scene.context is None or scene.state.outcome not in ("completed", "stopped") or waited:
        return None
    fastest, speed = scene.context.fastest, mean_rates(scene.state.ranks.values()).samples_s
    if fastest is None or not fastest.samples_s or speed is None:
        return None
    remedy = scene.context.remedy
    if remedy is not None and (remedy.verdict == "not comparable" or remedy.before == fastest.id):
        return None if remedy.speed is None else speed_against(remedy.speed[0], remedy.before)
    return speed_against(speed / fastest.samples_s, fastest.id)


def end_facts(scene: EndScene) -> list[Fact]:
    """Return what is known of the run, the most important first; what is unknown is left out."""
    state = scene.state
    speed = mean_rates(state.ranks.values())
    losses = [(evaluation.metrics.get("eval_loss", math.nan), evaluation.step) for evaluation in state.evaluations]
    best, best_step = min((pair for pair in losses if math.isfinite(pair[0])), default=(None, 0))
    rates = (
        "" if speed.steps_s is None else f"{f.significant(speed.steps_s)} steps/s",
        "" if not speed.tokens_s else f"{f.significant(speed.tokens_s)} tokens/s",
        "" if speed.tokens_s or not speed.samples_s else f"{f.significant(speed.samples_s)} samples/s",
    )
    best_text = "" if best is None else f"{EVALUATION_SIGN} {f.metric(best)} at step {f.count(best_step)}"
    facts = [
        Fact("loss", _loss_text(state, scene.history)),
        Fact(best_label(state), best_text),
        Fact("metrics", "" if not state.evaluations else " · ".join(format_results(state.evaluations[-1]))),
        Fact("speed", " · ".join(filter(None, rates))),
        Fact("peak memory", _peak_text(scene)),
        Fact("checkpoint", _checkpoint_text(scene)),
    ]
    choice = best_choice(scene)
    if choice is not None and state.outcome in ("completed", "stopped"):  # else it stands in the findings
        facts.append(Fact("next time", ": ".join(filter(None, (choice[1].title, choice[1].effect))), "warn"))
    return [fact for fact in facts if fact.text]


def about_facts(scene: EndScene) -> list[Fact]:
    """Return date, model, GPUs and settings of the run, as far as they are known: what a colleague needs."""
    from tuner_tui.advice.situation import chosen_settings, observed_values
    from tuner_tui.settings.job import named_model
    from tuner_tui.settings.model import FIELDS, format_value

    record, observed = scene.record, observed_values(scene.state.in_effect)
    if record is None:
        return []
    chosen, sample = chosen_settings(record.resolved, record.job), scene.sample
    used = frozenset[int]() if sample is None else gpus_in_use(sample, scene.state.in_effect.get("device"))
    names = Counter(gpu.name for gpu in (() if sample is None else sample.gpus) if gpu.index in used)
    facts = [
        Fact("date", time.strftime("%Y-%m-%d %H:%M", time.localtime(record.created_t))),
        Fact("model", named_model(record.job) or ""),
        Fact("GPUs", ", ".join(f"{count} × {name}" for name, count in names.items()) or "none used"),
    ]
    if (processes := scene.state.replicas or len(scene.state.ranks)) > 1:
        facts.append(Fact("processes", f"{processes}"))
    for name in KNOBS:
        given = getattr(record.resolved.settings, name) if chosen is None or name in chosen else None
        if (value := observed.get(name, given)) is not None:
            facts.append(Fact(FIELDS[name].label, format_value(name, value)))
    return [fact for fact in facts if fact.text]


def _peak_text(scene: EndScene) -> str:
    from tuner_tui.runs.read.measured_memory import lacks_gpu_peak

    figures = error_figures(scene)
    if figures is None or (used := figures.in_use or figures.held_by_pytorch) is None:
        return "" if lacks_gpu_peak(scene.state) else peak_memory(scene.state, scene.sample).removeprefix("peak ")
    of = "" if figures.capacity is None else f" of {f.gib(figures.capacity)}"
    return f"{f.gib(used)}{of} GiB" + (f", tensors {f.gib(figures.allocated)} GiB" if figures.allocated else "")


def error_figures(scene: EndScene) -> MemoryFigures | None:
    """Return the sizes that the out-of-memory error names which ended the run; None for any other end."""
    from tuner_tui.advice.crash.oom_analysis import read_figures

    if scene.state.outcome != "out-of-memory":
        return None
    failed = (finding.evidence for finding in scene.findings if finding.severity == "failed")
    seen = scene.state.out_of_memory
    return read_figures(" ".join(next(failed, ())) if seen is None else seen.message)


def _loss_text(state: RunState, history: History) -> str:
    if state.loss is None:
        return " · ".join(f"{name} {f.metric(value)}" for name, value in state.loss_parts.items())
    first = next((y for y in history.loss.ys if y is not None), None)
    begin = f"{f.metric(first)} → " if first is not None and len(history.loss.xs) > 1 else ""
    lowest = state.loss_trend.lowest
    best = f", lowest {f.metric(lowest)}" if lowest is not None and f.metric(lowest) != f.metric(state.loss) else ""
    return f"{begin}{f.metric(state.loss)}{best}"


def _checkpoint_text(scene: EndScene) -> str:
    """Return the folder of the newest checkpoint; `none saved` only where an observer would have seen one."""
    if (path := checkpoint_path(scene)) is not None:
        return path
    is_observed = scene.state.ranks and scene.state.source is None  # not read from the output
    # Time that went into saving went into a file whose name is not known, such as a pickle.
    saves = any(steps.save_s for steps in scene.state.counters)
    return "none saved" if scene.context is not None and is_observed and not saves else ""


def checkpoint_path(scene: EndScene) -> str | None:
    """Return the path of the newest checkpoint, which may be that of a run that this one continued."""
    if scene.context is not None and scene.context.checkpoint is not None:
        return str(scene.context.checkpoint.path)
    return None if scene.state.checkpoint is None else scene.state.checkpoint.path


def best_choice(scene: EndScene) -> tuple[Finding, Remedy] | None:
    """Return the first remedy of the most severe finding that may gain much: what would have helped most."""
    remedies = ((finding, remedy) for finding, remedy in choices(scene.findings) if remedy is not None)
    return next((choice for choice in remedies if (choice[1].speed or (0, math.inf))[1] >= NOTABLE_GAIN), None)


def can_resume(scene: EndScene) -> bool:
    """True if a new run can continue from a checkpoint: one is there, and the run did not complete."""
    is_loadable = scene.context is None or scene.context.is_loadable
    return checkpoint_path(scene) is not None and is_loadable and scene.state.outcome != "completed"


def next_keys(scene: EndScene) -> list[tuple[str, str]]:
    """Return the keys that matter after this end, the most useful first, and what they do."""
    best = best_choice(scene)
    keys = [("R", "resume from the checkpoint")] if can_resume(scene) else []
    keys.append(scene.start)
    if best is not None and best[1].can_apply:
        title = best[1].title
        if can_retry(*best):
            how = "resume" if can_resume(scene) else "start again"
            keys.insert(0, ("enter", f"apply the remedy and {how}"))
        else:
            keys.append(("a", f"apply “{title}”" if len(title) <= LONGEST_TITLE else "apply the remedy"))
    if best is None and scene.state.outcome == "completed" and scene.state.step:
        keys.append(("o", "search for faster settings"))
    if has_error(scene.state.outcome, scene.state.raised, scene.findings):
        keys.append(("E", "log at the error"))
    if scene.state.loss_problem:
        keys.append(("P", f"replay to the {scene.state.loss}"))
    if scene.can_take_back:
        keys.append(("U", "undo the remedy"))
    keys += [("v", "compare"), ("S", "save as preset")]
    if checkpoint_path(scene) is not None:
        keys.append(("C", "copy the checkpoint's path"))
    return [*keys, ("x", "share")]


def sentences(scene: EndScene) -> list[str]:
    """Return the error, or why else it ended unless a finding says so, and what the fallback and a remedy did."""
    state = scene.state
    fallback_end = state.fell_back or state.fallback_ended
    fallback = None if fallback_end is None else fallback_end.sentence
    is_found = state.outcome != "failed" and any(finding.severity == "failed" for finding in scene.findings)
    limit_bytes = None if scene.record is None else scene.record.memory_limit_bytes
    reason = "" if is_found else outcome_sentence(state, limit_bytes)
    if state.outcome == "completed":  # what goes on still, or that the disk was full
        reason = reason.partition(". ")[2]
    outcome = None if scene.context is None else scene.context.remedy
    remedy = "" if outcome is None else f"Remedy {outcome.statement}."
    return [sentence for sentence in (reason, fallback, remedy) if sentence]


def head_rows(scene: EndScene, width: int, start: int = 0) -> list[Line]:
    """Return the parts of the first line from `start` on, and what must be said of the end."""
    parts = (labelled_rows("", sentence, width, "", 0, MOST_SENTENCE_ROWS) for sentence in sentences(scene))
    first = (line(TextSpan(shorten(text, width), style)) for text, style in headline(scene)[start:])
    return [*flowing_rows(first, width), *(row for part in parts for row in part)]


STATUS_PARTS, MOST_SENTENCE_ROWS = 2, 3


def fact_rows(facts: Sequence[Fact], width: int) -> list[Line]:
    """Return the facts, each with its label."""
    rows: list[Line] = []
    labels = max([FACT, *(1 + text_width(fact.label) for fact in facts)])
    for fact in facts:
        text = (shorten_start if fact.label == "checkpoint" else keep_values)(fact.text, width - labels)
        rows += labelled_rows(fact.label, text, width, fact.style, labels, MOST_SENTENCE_ROWS)
    return rows


def bar_rows(scene: EndScene, width: int) -> list[Line]:
    """Return what filled the memory that ran out, and where the time went, as far as they are known."""
    from tuner_tui.advice.thresholds import CPU_QUEUE_PCT

    state, figures = scene.state, error_figures(scene)
    memory = [] if figures is None else full_memory_rows(figures, width)
    seconds = (state.finished.t if state.finished else 0.0) - (state.launched_t or math.inf)
    shares, rank = step_shares(state)
    if not shares or seconds <= 0:
        return memory
    counted_s = max(steps.train_s + steps.eval_s + steps.save_s for steps in state.counters)
    parts = {name: share * counted_s / seconds for name, share in shares.items()}
    causes = dict.fromkeys(finding.cause for finding in scene.findings)  # whose shares are of the last seconds only
    waited = 0.0 if scene.context is None else scene.context.core_wait_share or 0.0
    if "cpu-contended" in causes or waited >= CPU_QUEUE_PCT / 100:
        causes["cpu-contended"] = waited
    return [*memory, *time_rows("run time", {**parts, START_UP: 1 - counted_s / seconds}, causes, width, rank)]
