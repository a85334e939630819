"""A training that came to its end without having trained."""

from __future__ import annotations

from tuner_tui.advice.finding import Finding, Remedy
from tuner_tui.advice.situation import Situation


def no_step(situation: Situation) -> Finding | None:
    """The program used torch and ended well, and no optimizer step was seen in it.

    It need not have meant to train: what evaluated is left alone, and of the others only what was seen is said.
    """
    state = situation.state
    if state.outcome != "completed" or not state.ended_without_step or state.evaluations:
        return None
    return Finding(
        cause="no-step",
        severity="hint",
        sentence="The program ended without a single optimizer step that was seen",
        evidence=("it imported torch and ended by itself with exit code 0",),
        confidence="likely",
        remedies=(
            Remedy(
                title="if it was to train, see that there is at least one whole batch",
                why="a data set smaller than a batch gives none with drop_last, and an empty split gives none at all",
            ),
        ),
    )
