"""Loss or gradients that are not finite, read from an output that otherwise looks well."""

from __future__ import annotations

import math
from collections.abc import Sequence

from tuner_tui.runs.crash_patterns.pattern import Confidence
from tuner_tui.runs.output.lines import Line
from tuner_tui.runs.output.metrics import Logged, not_finite_tail, read_metrics

FEWEST_GRADIENTS = 3
"""Infinite gradient norms in a row that are more than a loss scaler finding its scale."""

NotFinite = tuple[str, tuple[str, ...], Confidence]


def not_finite_in(lines: Sequence[Line]) -> NotFinite | None:
    """Sentence, evidence and confidence where the newest figures are not finite; None where they are."""
    logged = read_metrics(lines)
    losses = not_finite_tail([entry.loss for entry in logged])
    norms = [entry.grad_norm for entry in logged]
    gradients = not_finite_tail(norms)
    if losses:
        return "The loss is not finite", (f"the last {losses} losses logged are nan or infinite",), "certain"
    if gradients and (gradients >= FEWEST_GRADIENTS or _hidden(logged) or (_nan(norms) and gradients > 1)):
        shown = f"the last {gradients} gradient norms logged are nan or infinite"
        hidden = ("the loss stands as 0.0 there: the Trainer's filter writes that for nan",) if _hidden(logged) else ()
        return "The gradients are not finite", (shown, *hidden), "certain" if gradients > 1 else "likely"
    if not_finite_tail([entry.eval_loss for entry in logged]):
        return "The evaluation loss is not finite", ("the last evaluation loss logged is nan or infinite",), "likely"
    return None


def _hidden(logged: Sequence[Logged]) -> bool:
    """A loss of exactly 0.0 beside a gradient norm that is nan."""
    pairs = [entry for entry in logged if entry.loss is not None and entry.grad_norm is not None]
    newest = pairs[-1] if pairs else None
    return newest is not None and newest.loss == 0.0 and newest.grad_norm is not None and math.isnan(newest.grad_norm)


def _nan(norms: Sequence[float | None]) -> bool:
    known = [norm for norm in norms if norm is not None]
    return bool(known) and math.isnan(known[-1])
