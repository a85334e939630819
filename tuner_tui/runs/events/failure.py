"""The failure that the observer reported as the end of a training: the one rule for its outcome and its diagnosis."""

from __future__ import annotations

from tuner_tui.runs.events.run_state import RunState
from tuner_tui.runs.events.types import OutOfMemory, Raised


def fatal_event(state: RunState) -> OutOfMemory | Raised | None:
    """The observed failure that explains a bad end, or None if the observer saw none.

    An out-of-memory error counts unless the same rank went on and raised something else later.
    """
    memory, raised = state.out_of_memory, state.raised
    if memory is None or raised is None:
        return memory or raised
    other_rank_followed = memory.rank != raised.rank and memory.t <= raised.t
    return memory if is_memory_error(raised.type, raised.message) or other_rank_followed else raised


def is_memory_error(type_name: str, message: str = "") -> bool:
    """Whether an exception says that memory ran out, by its type or by its message."""
    name = type_name.rsplit(".", 1)[-1]
    return name in ("OutOfMemoryError", "MemoryError") or "memory" in message.lower()
