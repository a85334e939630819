"""The limit a run was launched under (`--memory-limit`): when it is what a training ran into, and what to do then."""

from __future__ import annotations

import re

from tuner_tui.advice import ability
from tuner_tui.advice.finding import Remedy
from tuner_tui.advice.situation import Situation

GIB = 2**30
ALLOWED = re.compile(r"[\d.]+ [KMGT]?iB allowed")
"""What PyTorch's message adds where its share of the card is capped (CUDACachingAllocator.cpp)."""


def limit_of_host(situation: Situation) -> int | None:
    """The limit in bytes where it lies on the host's memory, as it does on a box without a GPU; else None."""
    return situation.memory_limit_bytes if ability.has_gpu(situation) is False else None


def limit_of_card(situation: Situation, message: str) -> int | None:
    """The limit in bytes where the message of the allocator says that it is what was reached; else None."""
    return situation.memory_limit_bytes if ALLOWED.search(message) else None


def reached(limit_bytes: int, of: str) -> str:
    """The cause, in a sentence; `of` is the card's or the host's."""
    return f"The run's own limit of {words(limit_bytes)} ({of} memory) is used up"


def words(limit_bytes: int) -> str:
    """`6 GiB`, `2.79 GiB`."""
    return f"{limit_bytes / GIB:.3g} GiB"


def raise_limit(limit_bytes: int) -> Remedy:
    """A higher limit, or none."""
    return Remedy(
        title=f"raise the limit of {words(limit_bytes)}",
        why="it was set at the launch (`--memory-limit`), not by the box",
        source="the run's record",
    )
