"""Wall time that goes into evaluation, saving and padding instead of training."""

from __future__ import annotations

from tuner_tui.advice import thresholds
from tuner_tui.advice.finding import Finding
from tuner_tui.advice.measure import seconds, warmed_up
from tuner_tui.advice.remedies import remedies_for
from tuner_tui.advice.situation import Situation
from tuner_tui.advice.thresholds import Threshold
from tuner_tui.core.units import format_share
from tuner_tui.runs.events import Steps


def evaluation_share(situation: Situation) -> Finding | None:
    """Evaluation takes more than its share of the run."""
    return _share(situation, "evaluation", thresholds.EVAL_SHARE, "Evaluation takes {} of the run's time")


def save_share(situation: Situation) -> Finding | None:
    """Saving takes more than its share of the run."""
    return _share(situation, "save", thresholds.SAVE_SHARE, "Saving checkpoints takes {} of the run's time")


def padding(situation: Situation) -> Finding | None:
    """Much of each batch is padding."""
    part = situation.state.rates.padding_share
    if part is None or part < thresholds.PADDING_SHARE.value or not warmed_up(situation):
        return None
    return Finding(
        cause="padding",
        severity="hint",
        sentence=f"{format_share(part)} of all tokens are padding",
        evidence=(f"padding {format_share(part)} of the tokens of the last seconds",),
        confidence="certain",
        where="training",
        remedies=remedies_for("padding", situation),
    )


def _share(situation: Situation, kind: str, threshold: Threshold, sentence: str) -> Finding | None:
    latest = _slowest(situation)
    if latest is None or not warmed_up(situation):
        return None
    spent_s = latest.eval_s if kind == "evaluation" else latest.save_s
    total_s = latest.train_s + latest.eval_s + latest.save_s
    if total_s <= 0 or spent_s / total_s < threshold.value:
        return None
    cause = f"{kind}-share"
    return Finding(
        cause=cause,
        severity="warning",
        sentence=sentence.format(format_share(spent_s / total_s)),
        evidence=(f"{seconds(spent_s)} of {seconds(total_s)}, training {seconds(latest.train_s)}",),
        confidence="certain",
        where="evaluation" if kind == "evaluation" else "checkpoint",
        remedies=remedies_for(cause, situation),
        lost_share=spent_s / total_s,
    )


def _slowest(situation: Situation) -> Steps | None:
    """The counters of the rank that spent most time outside its steps: the others wait for it."""
    latest = [rank.latest for rank in situation.state.ranks.values() if rank.latest is not None]
    return max(latest, key=lambda counters: counters.eval_s + counters.save_s, default=None)
