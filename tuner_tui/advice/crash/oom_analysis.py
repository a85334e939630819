"""What an out-of-memory error says: fragmentation, other processes on the GPU, the run's own memory limit."""

from __future__ import annotations

import re

from tuner_tui.advice.finding import Remedy
from tuner_tui.advice.situation import Situation

SIZE = r"([\d.]+) ([KMGT]?i?B)"
TRIED = re.compile(rf"Tried to allocate {SIZE}")
UNALLOCATED = re.compile(rf"{SIZE} is reserved by PyTorch but unallocated")
OTHER_PROCESS = re.compile(rf"Process (\d+) has {SIZE} memory in use")
UNITS = {"B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40, "KB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12}

EXPANDABLE = Remedy(
    title="set PYTORCH_ALLOC_CONF=expandable_segments:True",
    why="PyTorch holds more free memory than the batch asked for, in pieces too small for it; before torch 2.9 the "
    "variable is called PYTORCH_CUDA_ALLOC_CONF",
    effect="the pieces are joined; the settings stay as they are",
    rests_on="the figures of the message",
    source="PyTorch: memory management",
)


def is_fragmented(message: str) -> bool:
    """Whether PyTorch held more free memory than was asked for: in too small pieces."""
    tried, held = TRIED.search(message), UNALLOCATED.search(message)
    return tried is not None and held is not None and _parse_bytes(held) >= _parse_bytes(tried)


def other_processes(message: str) -> tuple[str, ...]:
    """The other processes the message names, each with what it holds, as evidence."""
    return tuple(f"process {pid} holds {size} {unit} of the card" for pid, size, unit in OTHER_PROCESS.findall(message))


def _parse_bytes(match: re.Match[str]) -> float:
    """The size of a match, in bytes; 0 where the number is none."""
    try:
        return float(match[1]) * UNITS.get(match[2], 0)
    except ValueError:
        return 0.0


GIB = 2**30
ALLOWED = re.compile(r"[\d.]+ [KMGT]?iB allowed")
"""What PyTorch's message adds where its share of the card is capped (CUDACachingAllocator.cpp)."""


def host_memory_limit(situation: Situation) -> int | None:
    """The limit in bytes where it lies on the host's memory, as it does on a box without a GPU; else None."""
    return situation.memory_limit_bytes if situation.has_gpu is False else None


def gpu_memory_limit(situation: Situation, message: str) -> int | None:
    """The limit in bytes where the message of the allocator says that it is what was reached; else None."""
    return situation.memory_limit_bytes if ALLOWED.search(message) else None


def limit_reached(limit_bytes: int, of: str) -> str:
    """The cause, in a sentence; `of` is the card's or the host's."""
    return f"The run's own limit of {format_limit(limit_bytes)} ({of} memory) is used up"


def format_limit(limit_bytes: int) -> str:
    """`6 GiB`, `2.79 GiB`."""
    return f"{limit_bytes / GIB:.3g} GiB"


def raise_limit(limit_bytes: int) -> Remedy:
    """A higher limit, or none."""
    return Remedy(
        title=f"raise the limit of {format_limit(limit_bytes)}",
        why="it was set at the launch (`--memory-limit`), not by the box",
        source="the run's record",
    )
