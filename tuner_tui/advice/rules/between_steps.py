"""Time that a loop spends neither on its step nor on waiting for data: what it does by itself between the two."""

from __future__ import annotations

from tuner_tui.advice import thresholds
from tuner_tui.advice.finding import Finding
from tuner_tui.advice.measure import enough, gpu_busy_pct, recent, seconds, training_s, training_share, warmed_up
from tuner_tui.advice.remedies import remedies_for
from tuner_tui.advice.situation import Situation
from tuner_tui.core.units import format_percent, format_share


def between_steps(situation: Situation) -> Finding | None:
    """Much time passes from an optimizer step to the next request for a batch.

    A device works on while the loop is there, and a loop that asks it for the loss waits for it there: this is a loss
    of time on the processor alone, or where the card is seen to idle.
    """
    rates = situation.state.rates
    part = rates.between_share
    if part is None or part < thresholds.BETWEEN_SHARE.value or not warmed_up(situation):
        return None
    samples = recent(situation)
    busy = gpu_busy_pct(situation, samples)
    idle = enough(samples) and busy is not None and busy < thresholds.GPU_LOW_PCT.value
    on_cpu = situation.state.in_effect.get("device") == "cpu"
    if not on_cpu and not idle:
        return None
    spent = "" if rates.step_time_s is None else f": {rates.step_time_s * part:.3g} of {rates.step_time_s:.3g} s"
    return Finding(
        cause="between-steps",
        severity="warning",
        sentence=f"{format_share(part)} of each step passes in the loop's own code, after the optimizer step",
        evidence=(
            f"from the optimizer step to the next request for a batch{spent}, "
            f"{seconds(training_s(situation) or 0)} into the training",
            *(() if on_cpu else (f"GPU busy {format_percent(busy)}",)),
        ),
        confidence="likely",
        where="training",
        remedies=remedies_for("between-steps", situation),
        lost_share=part * training_share(situation),
    )
