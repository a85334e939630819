"""How a run ended, in a sentence short enough for a panel: what an allocator printed is left to the output."""

from __future__ import annotations

from tuner_tui.runs.events.run_state import RunState
from tuner_tui.ui import format as f

OUT_OF_MEMORY = "Out of memory"


def ending_sentence(state: RunState, limit_bytes: int | None) -> str:
    """The sentence of the run's end; of an end for want of memory, where it was and what the run might take."""
    sentence = plain(state.finished.sentence) if state.finished is not None else ""
    if not sentence.startswith(OUT_OF_MEMORY) or limit_bytes is None:
        return sentence
    return f"{sentence.rstrip('.')}; its limit was {f.size(limit_bytes)}."


def plain(sentence: str) -> str:
    """The sentence of an end, without the words of an allocator."""
    return f"{sentence.partition(': ')[0].rstrip('.')}." if sentence.startswith(OUT_OF_MEMORY) else sentence
