"""Whether a training can be asked to save: one that a Trainer or Lightning runs, and that the observer sees."""

from __future__ import annotations

from tuner_tui.runs.state import RunState


def why_no_checkpoint(state: RunState) -> str | None:
    """Why asking the training for a checkpoint would come to nothing, in a sentence; None where it obeys."""
    if state.takes_orders:
        return None
    if state.step is None:
        return "There is nothing to save yet: no step was made."
    return (
        "This training takes no orders: its script alone decides when it saves. Trainer's and Lightning's can be asked."
    )
