"""Loss and gradients that are not finite, or larger than they should be, while the training still runs."""

from __future__ import annotations

import math

from tuner_tui.advice import thresholds
from tuner_tui.advice.finding import Finding
from tuner_tui.advice.measure import own_steps
from tuner_tui.advice.not_finite import not_finite_in
from tuner_tui.advice.remedies import remedies_for
from tuner_tui.advice.situation import Situation
from tuner_tui.runs.crash_patterns.pattern import Confidence
from tuner_tui.runs.output.lines import read_lines

PRINTED_LINES = 50
LOSS_GROWS = "loss_ignores_accumulation"
"""What the observer found by looking at the Trainer and its model."""


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


def loss_scaled(situation: Situation) -> Finding | None:
    """The model's loss is not divided by the batches that are accumulated: it and the gradient grow with them."""
    seen = situation.state.in_effect
    times = seen.get("gradient_accumulation_steps")
    if seen.get(LOSS_GROWS) is not True or not isinstance(times, int) or times < 2:
        return None
    version = seen.get("transformers") or (situation.interpreter and situation.interpreter.packages.get("transformers"))
    clip = seen.get("max_grad_norm")
    return Finding(
        cause="loss-scale",
        severity="warning",
        sentence=f"Loss and gradient are {times} times too large: this model ignores that {times} batches are added up",
        evidence=(
            f"gradient accumulation {times}; the Trainer of transformers {version or '(version unknown)'} leaves the "
            "division to the model, which computes its loss without it",
            *((f"gradients are clipped at {clip:g}, so they are clipped {times} times as early",) if clip else ()),
        ),
        confidence="certain",
        where="training",
        remedies=remedies_for("loss-scale", situation),
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
