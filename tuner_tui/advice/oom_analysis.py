"""What an out-of-memory error says: fragmentation, other processes on the GPU, the run's own memory limit."""

from __future__ import annotations

import re

from tuner_tui.advice.thresholds import OTHER_PROCESS_BYTES
from tuner_tui.core.units import GIB, parse_size

SIZE = r"([\d.]+ [KMGT]?i?B)"
TRIED = re.compile(rf"Tried to allocate {SIZE}")
UNALLOCATED = re.compile(rf"{SIZE} is reserved by PyTorch but unallocated")
OTHER_PROCESS = re.compile(rf"Process (\d+) has {SIZE} memory in use")
CAPACITY = re.compile(rf"total capacity of {SIZE}|{SIZE} total capacity")
FREE = re.compile(rf"of which {SIZE} is free|{SIZE} free")
OWN = re.compile(rf"this process has {SIZE} memory in use")
RESERVED = re.compile(rf"{SIZE} (?:reserved in total by PyTorch|cached)")
ALLOWED = re.compile(r"[\d.]+ [KMGT]?iB allowed")
"""Part of PyTorch's message when a memory fraction is set (CUDACachingAllocator.cpp)."""
CONTEXT_BYTES = 2 * GIB
"""More than CUDA's context, libraries and NCCL take of a card outside PyTorch's allocator."""


def is_fragmented(message: str) -> bool:
    """Whether PyTorch had more free memory than was requested, in pieces that were too small."""
    tried, held = _first_size(TRIED, message), _first_size(UNALLOCATED, message)
    return tried is not None and held is not None and held >= tried


def other_processes(message: str) -> tuple[str, ...]:
    """What other processes hold, as evidence: those that the message names, else by its figures if it is much."""
    named = OTHER_PROCESS.findall(message)
    if named:
        return tuple(
            f"process {pid} uses {size} of the GPU"
            for pid, size in named
            if OTHER_PROCESS_BYTES <= (parse_size(size) or 0) < 2**50  # a container reports nonsense
        )
    total, free, mine = (_first_size(pattern, message) for pattern in (CAPACITY, FREE, OWN))
    if mine is None and (reserved := _first_size(RESERVED, message)) is not None:
        mine = reserved + CONTEXT_BYTES
    if total is None or free is None or mine is None or total - free - mine < OTHER_PROCESS_BYTES:
        return ()
    return (f"about {format_limit(total - free - mine)} of the GPU are used by other processes",)


def _first_size(pattern: re.Pattern[str], message: str) -> int | None:
    match = pattern.search(message)
    return None if match is None else parse_size(next(filter(None, match.groups())))


def limit_reached(limit_bytes: int, of: str) -> str:
    """The cause as a sentence; `of` is `the GPU's` or `the host's`."""
    return f"The run's own limit of {format_limit(limit_bytes)} ({of} memory) is exhausted"


def format_limit(limit_bytes: int) -> str:
    """A limit with three digits: `6 GiB`, `2.79 GiB`."""
    return f"{limit_bytes / GIB:.3g} GiB"
