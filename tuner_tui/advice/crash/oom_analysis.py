"""What an out-of-memory error says: fragmentation, other processes on the GPU, the run's own memory limit."""

from __future__ import annotations

import re

from tuner_tui.advice.finding import Remedy
from tuner_tui.advice.situation import Situation
from tuner_tui.core.units import GIB, parse_size

SIZE = r"([\d.]+) ([KMGT]?i?B)"
TRIED = re.compile(rf"Tried to allocate {SIZE}")
UNALLOCATED = re.compile(rf"{SIZE} is reserved by PyTorch but unallocated")
OTHER_PROCESS = re.compile(rf"Process (\d+) has {SIZE} memory in use")

EXPANDABLE = Remedy(
    title="set PYTORCH_ALLOC_CONF=expandable_segments:True",
    why="PyTorch holds more free memory than was requested, in pieces that are too small; before torch 2.9 the "
    "variable is called PYTORCH_CUDA_ALLOC_CONF",
    effect="the pieces are joined; the settings stay as they are",
    rests_on="the figures of the message",
    source="PyTorch: memory management",
)


def is_fragmented(message: str) -> bool:
    """Whether PyTorch had more free memory than was requested, in pieces that were too small."""
    tried, held = TRIED.search(message), UNALLOCATED.search(message)
    return tried is not None and held is not None and _size(held) >= _size(tried)


def other_processes(message: str) -> tuple[str, ...]:
    """The other processes that the message names, with the memory they hold, as evidence."""
    return tuple(f"process {pid} holds {size} {unit} of the card" for pid, size, unit in OTHER_PROCESS.findall(message))


ALLOWED = re.compile(r"[\d.]+ [KMGT]?iB allowed")
"""Part of PyTorch's message when a memory fraction is set (CUDACachingAllocator.cpp)."""


def host_memory_limit(situation: Situation) -> int | None:
    """The run's memory limit in bytes if it applies to host memory, which is so without a GPU; else None."""
    return situation.memory_limit_bytes if situation.has_gpu is False else None


def gpu_memory_limit(situation: Situation, message: str) -> int | None:
    """The run's memory limit in bytes if the allocator's message says that it was reached; else None."""
    return situation.memory_limit_bytes if ALLOWED.search(message) else None


def limit_reached(limit_bytes: int, of: str) -> str:
    """The cause as a sentence; `of` is `the card's` or `the host's`."""
    return f"The run's own limit of {format_limit(limit_bytes)} ({of} memory) is used up"


def format_limit(limit_bytes: int) -> str:
    """A limit with three digits: `6 GiB`, `2.79 GiB`."""
    return f"{limit_bytes / GIB:.3g} GiB"


def raise_limit(limit_bytes: int) -> Remedy:
    return Remedy(
        title=f"raise the limit of {format_limit(limit_bytes)}",
        why="it was set at the launch (`--memory-limit`), not by the box",
        source="the run's record",
    )


def _size(match: re.Match[str]) -> int:
    return parse_size(f"{match[1]} {match[2]}") or 0
