"""Loss or gradients that are nan, infinite, diverged, scaled by the number of accumulated batches, or never cleared."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from functools import reduce

from msgspec.structs import replace

from tuner_tui.advice import thresholds
from tuner_tui.advice.finding import Finding
from tuner_tui.advice.findings.rows import finding
from tuner_tui.advice.findings.run_metrics import process_steps
from tuner_tui.advice.remedies.catalog import remedies_for
from tuner_tui.advice.remedies.computed import LARGEST_RATE
from tuner_tui.advice.situation import Situation
from tuner_tui.runs.events.run_state import DIVERGED, LossTrend
from tuner_tui.runs.log_parsing.lines import Confidence, LogLine, parse_lines
from tuner_tui.runs.log_parsing.progress_lines import ProgressRecord, parse_line

MIN_GRADIENT_NORMS = 3
"""Consecutive infinite gradient norms that a loss scaler searching for its scale does not explain."""

MAX_ASSIGNMENTS = 40
"""A line with more of them shows a configuration, whose figures are none of the training."""
NO_LETTERS = re.compile("[^A-Za-z]+")
NonFiniteEvidence = tuple[str, tuple[str, ...], Confidence]


def find_non_finite(lines: Sequence[LogLine], *, parts: bool = False) -> NonFiniteEvidence | None:
    """Sentence, evidence, confidence if the newest values, or also `parts` of the loss, are not finite, else None."""
    records = [record for record, _ in _logged(lines)]
    norms = [record.grad_norm for record in records if record.grad_norm is not None]
    losses = _count_trailing([record.loss for record in records if record.loss is not None])
    gradients, logged = _count_trailing(norms), "logged loss is" if losses == 1 else f"{losses} logged losses are"
    if losses:
        return "The loss is not finite", (f"the last {logged} nan or infinite",), "certain"
    with_both = [record for record in records if None not in (record.loss, record.grad_norm)]
    masked = bool(with_both) and with_both[-1].loss == 0.0 and math.isnan(with_both[-1].grad_norm or 0.0)
    if gradients >= MIN_GRADIENT_NORMS or (gradients and masked) or (gradients > 1 and math.isnan(norms[-1])):
        shown = f"the last {gradients} logged gradient norms are nan or infinite"
        hidden = ("the loss is logged as 0.0 there: Trainer's log filter replaces nan by 0",) if masked else ()
        return "The gradients are not finite", (shown, *hidden), "certain" if gradients > 1 else "likely"
    if _count_trailing([record.evaluation["eval_loss"] for record in records if "eval_loss" in record.evaluation]):
        return "The evaluation loss is not finite", ("the last logged evaluation loss is nan or infinite",), "likely"
    pairs = (part for record in records for part in record.parts.items()) if parts else ()
    newest = {name.replace("_", " "): value for name, value in pairs}
    broken = [f"the newest {name} is {value}" for name, value in newest.items() if not math.isfinite(value)]
    return ("A part of the loss is not finite", tuple(broken), "likely") if broken else None


def _logged(lines: Sequence[LogLine]) -> list[tuple[ProgressRecord, str]]:
    """What the lines say that log a loss or a gradient norm, each with the first letters of its line."""
    named = [line.text for line in lines if "loss" in line.text.lower() or "grad" in line.text]
    return [(parse_line(text), NO_LETTERS.sub(" ", text)[:24]) for text in named if text.count("=") < MAX_ASSIGNMENTS]


def _count_trailing(values: Sequence[float]) -> int:
    """How many of the last values in a row are nan or infinite."""
    return next((count for count, value in enumerate(reversed(values)) if math.isfinite(value)), len(values))


LOSS_IGNORES_ACCUMULATION = "loss_ignores_accumulation"
"""Set by the observer after inspecting the Trainer and its model."""


def non_finite_values(situation: Situation) -> Finding | None:
    state, grad_norm = situation.state, situation.state.grad_norm
    if state.outcome not in (None, "completed", "stopped"):
        return None
    if state.loss_problem:
        return finding("nan", situation, state.loss_problem, confidence="certain")
    if grad_norm is None or math.isfinite(grad_norm):
        return None
    if math.isnan(grad_norm) and state.loss == 0.0:
        evidence = "gradient norm nan, loss 0.0: Trainer's log filter replaces nan by 0"
        return finding("nan", situation, evidence, confidence="certain")
    scaled = situation.settings is not None and situation.settings.precision == "fp16"
    searching = scaled and process_steps(situation) < thresholds.SCALER_STEPS  # for the scale of the loss
    return None if searching else finding("nan", situation, f"gradient norm {grad_norm}")


LARGE_LOSS = 100.0
"""No usual loss starts there; with a learning rate that no optimizer bears, the training has diverged."""
EXPLODED = 1000.0
"""An evaluation is the mean of many batches: a single one that many times the lowest is no noise, nor overfitting."""


def diverged(situation: Situation) -> Finding | None:
    """Reported after the end too: such a run completes as if all were well, or fails at what the loss is passed to."""
    state = situation.state
    if state.in_effect.get("optimizers", 1) > 1:
        return None  # the loss of one optimizer rises when that of another falls, as in a GAN
    loss, trend = state.loss, state.loss_trend
    # Each logged loss is of a step of its own at least, so these evaluations came after the rise.
    risen = (state.step or 0) - trend.high
    evaluated = [(evaluation.metrics.get("eval_loss"), evaluation.step > risen) for evaluation in state.evaluations]
    observed = [value for value, _ in evaluated if value is not None]
    if loss is None:
        logged = _logged(parse_lines(situation.log))
        # One series stands in lines of one form; a loss in a configuration, or of another model, has another.
        forms = [form for record, form in logged if record.loss is not None][-1:]
        records = [record for record, form in logged if record.loss is None or form in forms]
        printed = [(number, record.loss) for number, record in enumerate(records) if record.loss is not None]
        trend = reduce(LossTrend.with_loss, [value for _, value in printed], LossTrend())
        loss = trend.newest
        risen = printed[-trend.high][0] if trend.high else 0
        evaluated = [(record.evaluation.get("eval_loss"), number > risen) for number, record in enumerate(records)]
    rate = situation.state.in_effect.get("learning_rate")
    # Where the evaluation improves, the training minimizes something else by now, such as an annealed weight.
    losses = [(value, is_after) for value, is_after in evaluated if value is not None]
    improves = len(losses) > 1 and losses[-1] == (min(losses)[0], True)
    validation = reduce(LossTrend.with_loss, observed or [value for value, _ in losses], LossTrend())
    newest, lowest = validation.newest or 0.0, validation.lowest or 0.0
    if lowest > 0 and newest >= max(LARGE_LOSS, validation.first, EXPLODED * lowest):
        evidence = f"{EXPLODED:,g} times the lowest evaluation loss, {lowest:.4g}, or more"
        return finding("diverged", situation, evidence, row="evaluation-diverged", loss=f"{newest:,.4g}")
    if loss is None or not math.isfinite(loss) or (trend.diverged and improves):
        return None
    if trend.diverged:
        evidence = f"the last {trend.high} losses logged are {DIVERGED:g} times the lowest, {trend.lowest:.4g}, or more"
    elif loss >= LARGE_LOSS and isinstance(rate, int | float) and rate > LARGEST_RATE:
        evidence = f"the learning rate {rate:.3g} is too large for any common optimizer"
    else:
        return None
    return finding("diverged", situation, evidence, loss=f"{loss:,.4g}")


def no_effect(situation: Situation) -> Finding | None:
    """A rate of 0 for a moment, as at the end of a schedule or between its cycles, is usual."""
    state = situation.state
    frozen, rate = state.trainable_parameters == 0, state.in_effect.get("learning_rate")
    since = 0 if frozen else state.zero_rate_since
    steps = 0 if since is None else min(process_steps(situation), (state.step or 0) - since)
    if steps < thresholds.IDLE_STEPS or state.in_effect.get("optimizers", 1) > 1:
        return None
    if frozen:
        evidence = f"of {state.parameters or 0:,} parameters the optimizer trains none"
        return finding("no-effect", situation, evidence, steps=f"{steps:,}")
    evidence, where = f"the learning rate that the optimizer was given: {rate}", "schedule" if rate else "rate"
    return finding(
        "no-effect", situation, evidence, row="zero-rate", where=where, steps=f"{steps:,}", since=f"{since:,}"
    )


def kept_gradients(situation: Situation) -> Finding | None:
    if situation.state.in_effect.get("gradients_kept") is not True:
        return None
    evidence = "in the first steps `backward` found the gradients of the step before, neither None nor 0"
    return finding("kept-gradients", situation, evidence)


def left_in_eval(situation: Situation) -> Finding | None:
    since = situation.state.in_effect.get("eval_mode_since")
    steps = 0 if since is None else (situation.state.step or 0) + 1 - since
    if steps < thresholds.IDLE_STEPS:
        return None
    evidence = f"{steps:,} steps in eval mode; before that evaluation the model was in train mode"
    return finding("left-in-eval", situation, evidence, since=f"{since:,}")


SPIKES_SHOWN = 3


def loss_spikes(situation: Situation) -> Finding | None:
    spikes, rows = situation.suspects.sharing, situation.suspects.common_names
    evidence = [spike.sentence for spike in spikes[:SPIKES_SHOWN]]  # single ones are noise, or batches merely hard
    return finding("loss-spikes", situation, *evidence, times=len(spikes), rows=rows) if spikes else None


def with_suspects(findings: Sequence[Finding], situation: Situation) -> list[Finding]:
    """Add the rows of the data to the findings on a loss that is not finite, and on the failure that ended the run.

    And what a replay found of the loss, which chooses the remedies; without one, whether it had risen before.
    """
    replay, trend = situation.replay, situation.state.loss_trend
    broken, unfinished = situation.suspects.of_kind("not finite"), situation.suspects.of_kind("unfinished")
    sudden = bool(broken) and not situation.suspects.rose and not trend.high
    role = (None if replay is None else replay.role) or ("sudden" if sudden else None)
    completed = []
    for each in findings:
        others = each.cause == "worker-crash" and each.where == "training"  # a worker loads those of a later step
        named = broken if each.cause == "nan" else unfinished if each.severity == "failed" and not others else ()
        unfinished = () if named is unfinished else unfinished
        replayed = () if each.cause != "nan" or replay is None else (replay.sentence,)
        evidence = (*replayed, *each.evidence, *(suspect.sentence for suspect in named))
        chosen = each.cause == "nan" and role is not None
        remedies = remedies_for(each.cause, situation, each.where, role=role) if chosen else each.remedies
        if each.cause == "nan" and broken:
            at = f"check the batch of step {broken[0].batch.step:,}"
            remedies = tuple(replace(offer, title=at) if offer.name == "look-at-data" else offer for offer in remedies)
        completed.append(replace(each, evidence=evidence, remedies=remedies))
    return completed


def loss_scale(situation: Situation) -> Finding | None:
    seen = situation.state.in_effect
    times = seen.get("gradient_accumulation_steps")
    if seen.get(LOSS_IGNORES_ACCUMULATION) is not True or not isinstance(times, int) or times < 2:
        return None
    version = seen.get("transformers") or (situation.interpreter and situation.interpreter.packages.get("transformers"))
    clip = seen.get("max_grad_norm")
    evidence = [
        f"gradient accumulation {times}; the Trainer of transformers {version or '(version unknown)'} "
        "leaves the division to the model, which does not do it"
    ]
    if clip:
        evidence.append(f"gradients are clipped at {clip:g}, so clipping starts {times} times too early")
    return finding("loss-scale", situation, *evidence, times=times)
