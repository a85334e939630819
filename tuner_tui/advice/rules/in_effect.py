"""Settings that were asked for and are not in effect."""

from __future__ import annotations

from tuner_tui.advice.finding import Finding
from tuner_tui.advice.measure import own_steps
from tuner_tui.advice.remedies import remedies_for
from tuner_tui.advice.situation import Situation
from tuner_tui.advice.verification import differing, said

SETTLED_STEPS = 3
"""The training tells what is in effect with its first counters; what comes late, as autocast may, is there by then."""


def not_in_effect(situation: Situation) -> Finding | None:
    """What the checklist finds to contradict, seen once the training has done some steps."""
    if situation.state.outcome is not None or own_steps(situation) < SETTLED_STEPS:
        return None
    marks = differing(situation)
    if not marks:
        return None
    names = ", ".join(mark.name for mark in marks[:4]) + (f" and {len(marks) - 4} more" if len(marks) > 4 else "")
    return Finding(
        cause="not-in-effect",
        severity="warning",
        sentence=f"Asked for but not in effect: {names}",
        evidence=tuple(
            f"{mark.name}: asked for {said(mark.asked)}, {_seen(mark.seen)}" + (f"; {mark.why}" if mark.why else "")
            for mark in marks
        ),
        confidence="certain",
        remedies=remedies_for("not-in-effect", situation, "unreachable" if _unreachable(situation) else None),
    )


def _seen(value: object) -> str:
    return "not applied" if value is None else f"in effect {said(value)}"


def _unreachable(situation: Situation) -> bool:
    return bool(situation.not_applied or situation.state.not_injected)
