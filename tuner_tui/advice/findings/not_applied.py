"""What was requested at launch and did not happen: settings not in effect, a checkpoint not resumed."""

from __future__ import annotations

from tuner_tui.advice.finding import Finding, Remedy
from tuner_tui.advice.findings.run_metrics import process_steps
from tuner_tui.advice.remedies.catalog import remedies_for
from tuner_tui.advice.situation import Situation
from tuner_tui.advice.verification import differing_settings, format_setting

SETTLED_STEPS = 3
"""Values in effect arrive with the first counters; late ones, such as autocast, are there after this many steps."""


def settings_not_in_effect(situation: Situation) -> Finding | None:
    """Settings that differ from what was requested, once the training has done some steps."""
    if situation.state.outcome is not None or process_steps(situation) < SETTLED_STEPS:
        return None
    marks = differing_settings(situation)
    if not marks:
        return None
    names = ", ".join(mark.name for mark in marks[:4]) + (f" and {len(marks) - 4} more" if len(marks) > 4 else "")
    return Finding(
        cause="not-in-effect",
        severity="warning",
        sentence=f"Requested but not in effect: {names}",
        evidence=tuple(
            f"{mark.name}: requested {format_setting(mark.asked)}, {_format_observed(mark.seen)}"
            + (f"; {mark.why}" if mark.why else "")
            for mark in marks
        ),
        confidence="certain",
        remedies=remedies_for(
            "not-in-effect", situation, "unreachable" if _has_unreachable_settings(situation) else None
        ),
    )


def _format_observed(value: object) -> str:
    return "not applied" if value is None else f"in effect {format_setting(value)}"


def _has_unreachable_settings(situation: Situation) -> bool:
    return bool(situation.not_applied or situation.state.not_injected)


def not_resumed(situation: Situation) -> Finding | None:
    """Steps count from 0 although the launch named a checkpoint.

    Only a Trainer reports its first step; nothing is known of a loop that loads `{checkpoint}` itself.
    """
    state = situation.state
    if (
        situation.resumed_from is None
        or not state.accepts_orders
        or state.first_step > 0
        or not process_steps(situation)
    ):
        return None
    return Finding(
        cause="not-resumed",
        severity="warning",
        sentence="The launch named a checkpoint, but the training started at step 0",
        evidence=(f"the launch named {situation.resumed_from}", "the Trainer reports 0 as its first step"),
        confidence="certain",
        remedies=(
            Remedy(
                title="stop it and make the script load the checkpoint",
                why="write {checkpoint} where the command takes its path, or call train(resume_from_checkpoint=…) with "
                "it: this training starts from the initial weights",
            ),
        ),
    )
