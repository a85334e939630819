"""A run that was to go on from a checkpoint and began at the beginning."""

from __future__ import annotations

from tuner_tui.advice.finding import Finding, Remedy
from tuner_tui.advice.measure import own_steps
from tuner_tui.advice.situation import Situation


def not_resumed(situation: Situation) -> Finding | None:
    """Steps count from 0 although the launch named a checkpoint.

    Only a trainer says where it begins: of a loop that reads `{checkpoint}` by itself nothing is known.
    """
    state = situation.state
    if situation.resumed_from is None or not state.takes_orders or state.first_step > 0 or not own_steps(situation):
        return None
    return Finding(
        cause="not-resumed",
        severity="warning",
        sentence="Meant to go on from a checkpoint, but the training began at step 0",
        evidence=(f"the launch named {situation.resumed_from}", "the trainer says that its first step is 0"),
        confidence="certain",
        remedies=(
            Remedy(
                title="stop it and have the script take the checkpoint",
                why="write {checkpoint} where the command takes its path, or call train(resume_from_checkpoint=…) with "
                "it: what is trained now starts from the first weights",
            ),
        ),
    )
