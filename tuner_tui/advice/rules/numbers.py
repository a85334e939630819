"""Loss and gradients that are not finite, while the training still runs."""

from __future__ import annotations

import math

from tuner_tui.advice import thresholds
from tuner_tui.advice.finding import Confidence, Finding
from tuner_tui.advice.measure import own_steps
from tuner_tui.advice.not_finite import not_finite_in
from tuner_tui.advice.remedies import remedies_for
from tuner_tui.advice.situation import Situation
from tuner_tui.runs.output.lines import read_lines

PRINTED_LINES = 50


def not_finite(situation: Situation) -> Finding | None:
    """The loss is nan, or the gradient norm is while the Trainer's filter logs a loss of 0.0 for it."""
    state = situation.state
    if state.outcome is not None:
        return None
    told = state.loss is not None or state.grad_norm is not None
    judged = _judge(state.loss, state.grad_norm, own_steps(situation), situation) if told else _printed(situation)
    if judged is None:
        return None
    evidence, confidence = judged
    return Finding(
        cause="nan",
        severity="warning",
        sentence="The training computes numbers that are not finite: every further step is wasted",
        evidence=(evidence, f"at step {state.step or 0}"),
        confidence=confidence,
        where="training",
        remedies=remedies_for("nan", situation),
    )


def _printed(situation: Situation) -> tuple[str, Confidence] | None:
    """From the last lines of the output, where no trainer tells its figures: a loop that prints its loss."""
    found = not_finite_in(read_lines(situation.log[-PRINTED_LINES:]))
    return None if found is None else (found[1][0], found[2])


def _judge(
    loss: float | None, grad_norm: float | None, steps: int, situation: Situation
) -> tuple[str, Confidence] | None:
    """Evidence and confidence; None where all is finite or a loss scaler may still be searching."""
    if loss is not None and not math.isfinite(loss):
        return f"loss {loss}", "certain"
    if grad_norm is None or math.isfinite(grad_norm):
        return None
    if math.isnan(grad_norm) and loss == 0.0:
        return "gradient norm nan, loss 0.0: the Trainer's log filter writes that for nan", "certain"
    scaler = situation.settings is not None and situation.settings.precision == "fp16"
    searching = scaler and steps < thresholds.SCALER_STEPS.value
    return None if searching else (f"gradient norm {grad_norm}", "likely")
