"""Loss or gradients that are nan, infinite, diverged, or scaled by the number of accumulated batches."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tuner_tui.advice import thresholds
from tuner_tui.advice.finding import Finding
from tuner_tui.advice.findings.rows import finding
from tuner_tui.advice.findings.run_metrics import process_steps
from tuner_tui.advice.remedies.computed import LARGEST_RATE
from tuner_tui.advice.situation import Situation
from tuner_tui.runs.events.run_state import DIVERGED
from tuner_tui.runs.log_parsing.fatal_failure import Confidence
from tuner_tui.runs.log_parsing.lines import LogLine, parse_lines

NUMBER = r"['\"]?(?P<value>-?(?:nan|inf(?:inity)?|\d[\d.]*(?:e[+-]?\d+)?))\b['\"]?"
LOSS = re.compile(rf"(?:^|[\s,{{|\[(])['\"]?(?:train[_ ]?|training )?loss['\"]?\s?[=:]?\s?{NUMBER}", re.IGNORECASE)
EVAL_LOSS = re.compile(rf"['\"]?\b(?:eval|val|validation|valid)[_ ]loss['\"]?\s?[=:]\s?{NUMBER}", re.IGNORECASE)
GRAD_NORM = re.compile(rf"['\"]?\bgrad(?:ient)?[_ ]?norm['\"]?\s?[=:]\s?{NUMBER}", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class LoggedMetrics:
    """The figures of one line."""

    number: int
    loss: float | None
    grad_norm: float | None
    eval_loss: float | None


def parse_metrics(lines: Iterable[LogLine]) -> tuple[LoggedMetrics, ...]:
    """All lines that log a loss or a gradient norm, in order."""
    records = (
        LoggedMetrics(
            line.number, _number(LOSS, line.text), _number(GRAD_NORM, line.text), _number(EVAL_LOSS, line.text)
        )
        for line in lines
        if "loss" in line.text.lower() or "grad" in line.text
    )
    return tuple(
        logged for logged in records if (logged.loss, logged.grad_norm, logged.eval_loss) != (None, None, None)
    )


def count_trailing_non_finite(values: Sequence[float | None]) -> int:
    """How many of the last known values in a row are NaN or infinite."""
    numbers = [value for value in values if value is not None]
    count = 0
    while count < len(numbers) and not math.isfinite(numbers[-1 - count]):
        count += 1
    return count


def _number(pattern: re.Pattern[str], text: str) -> float | None:
    match = pattern.search(text)
    if match is None:
        return None
    try:
        return float(match["value"].rstrip("."))
    except ValueError:
        return None


MIN_GRADIENT_NORMS = 3
"""Consecutive infinite gradient norms that a loss scaler searching for its scale does not explain."""

NonFiniteEvidence = tuple[str, tuple[str, ...], Confidence]


def find_non_finite(lines: Sequence[LogLine]) -> NonFiniteEvidence | None:
    """Sentence, evidence and confidence if the newest logged values are not finite; else None."""
    logged = parse_metrics(lines)
    losses = count_trailing_non_finite([entry.loss for entry in logged])
    norms = [entry.grad_norm for entry in logged]
    gradients = count_trailing_non_finite(norms)
    if losses:
        return "The loss is not finite", (f"the last {losses} logged losses are nan or infinite",), "certain"
    if gradients and (
        gradients >= MIN_GRADIENT_NORMS or _is_loss_masked(logged) or (_ends_with_nan(norms) and gradients > 1)
    ):
        shown = f"the last {gradients} logged gradient norms are nan or infinite"
        hidden = (
            ("the loss is logged as 0.0 there: Trainer's log filter replaces nan by 0",)
            if _is_loss_masked(logged)
            else ()
        )
        return "The gradients are not finite", (shown, *hidden), "certain" if gradients > 1 else "likely"
    if count_trailing_non_finite([entry.eval_loss for entry in logged]):
        return "The evaluation loss is not finite", ("the last logged evaluation loss is nan or infinite",), "likely"
    return None


def _is_loss_masked(logged: Sequence[LoggedMetrics]) -> bool:
    """Whether the loss is exactly 0.0 while the gradient norm is nan."""
    pairs = [
        (entry.loss, entry.grad_norm) for entry in logged if entry.loss is not None and entry.grad_norm is not None
    ]
    return bool(pairs) and pairs[-1][0] == 0.0 and math.isnan(pairs[-1][1])


def _ends_with_nan(norms: Sequence[float | None]) -> bool:
    logged = [norm for norm in norms if norm is not None]
    return bool(logged) and math.isnan(logged[-1])


PRINTED_LINES = 50
LOSS_IGNORES_ACCUMULATION = "loss_ignores_accumulation"
"""Set by the observer after inspecting the Trainer and its model."""


def non_finite_values(situation: Situation) -> Finding | None:
    state = situation.state
    if state.outcome is not None:
        return None
    is_reported = state.loss is not None or state.grad_norm is not None
    judged = (
        _from_events(state.loss, state.grad_norm, process_steps(situation), situation)
        if is_reported
        else _from_output(situation)
    )
    if judged is None:
        return None
    evidence, confidence = judged
    return finding("nan", situation, evidence, f"at step {state.step or 0}", confidence=confidence)


HIGH_LOSSES = 3
"""Consecutive losses far above the lowest: one bad batch does not make a divergence."""
LARGE_LOSS = 100.0
"""No usual loss starts there; with a learning rate that no optimizer bears, the training has diverged."""


def diverged(situation: Situation) -> Finding | None:
    """Reported after the end too: such a run completes as if all were well."""
    state = situation.state
    if state.outcome not in (None, "completed", "stopped"):
        return None
    loss, lowest, high = state.loss, state.lowest_loss, state.high_losses
    if loss is None:
        loss, lowest, high = _printed_trend(situation)
    rate = situation.state.in_effect.get("learning_rate")
    if loss is None or not math.isfinite(loss):
        return None
    if lowest is not None and high >= HIGH_LOSSES:
        evidence = f"the last {high} losses logged are {DIVERGED:g} times the lowest, {lowest:.4g}, or more"
    elif loss >= LARGE_LOSS and isinstance(rate, int | float) and rate > LARGEST_RATE:
        evidence = f"the learning rate {rate:.3g} is too large for any common optimizer"
    else:
        return None
    return finding("diverged", situation, evidence, loss=f"{loss:,.4g}")


def _printed_trend(situation: Situation) -> tuple[float | None, float | None, int]:
    """The newest loss in the output, the lowest, and how many of the newest are far above it."""
    logged = parse_metrics(parse_lines(situation.log))
    losses = [entry.loss for entry in logged if entry.loss is not None and math.isfinite(entry.loss)]
    if not losses or min(losses) <= 0:
        return (losses[-1] if losses else None), None, 0
    low = [index for index, loss in enumerate(losses) if loss < DIVERGED * min(losses)]
    return losses[-1], min(losses), len(losses) - 1 - low[-1]


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


def _from_output(situation: Situation) -> tuple[str, Confidence] | None:
    """Reads the last lines of the output, for loops that print their loss and have no Trainer."""
    non_finite = find_non_finite(parse_lines(situation.log[-PRINTED_LINES:]))
    return None if non_finite is None else (non_finite[1][0], non_finite[2])


def _from_events(
    loss: float | None, grad_norm: float | None, steps: int, situation: Situation
) -> tuple[str, Confidence] | None:
    """Evidence and confidence; None if all values are finite or a loss scaler may still be searching."""
    if loss is not None and not math.isfinite(loss):
        return f"loss {loss}", "certain"
    if grad_norm is None or math.isfinite(grad_norm):
        return None
    if math.isnan(grad_norm) and loss == 0.0:
        return "gradient norm nan, loss 0.0: Trainer's log filter replaces nan by 0", "certain"
    scaler = situation.settings is not None and situation.settings.precision == "fp16"
    searching = scaler and steps < thresholds.SCALER_STEPS
    return None if searching else (f"gradient norm {grad_norm}", "likely")
