"""How a run ended, in a sentence short enough for a panel: what an allocator printed is left to the output."""

from __future__ import annotations

from tuner_tui.runs.state import RunState
from tuner_tui.ui import format as f

OUT_OF_MEMORY = "Out of memory"


def ending_sentence(state: RunState, limit_bytes: int | None) -> str:
    """The sentence of the run's end; of an end for want of memory, where it was and what the run might take."""
    sentence = "" if state.finished is None else state.finished.sentence
    if not sentence.startswith(OUT_OF_MEMORY):
        return sentence
    plain = sentence.partition(": ")[0].rstrip(".")
    return f"{plain}; its limit was {f.size(limit_bytes)}." if limit_bytes is not None else f"{plain}."
