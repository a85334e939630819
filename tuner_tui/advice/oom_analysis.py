"""What an out-of-memory error says: fragmentation, other processes on the GPU, the run's own memory limit."""

from __future__ import annotations

import re

from tuner_tui.advice.finding import Remedy
from tuner_tui.advice.situation import Situation
from tuner_tui.advice.thresholds import NOTES_T4, OTHER_PROCESS_BYTES
from tuner_tui.core.units import GIB, parse_size

SIZE = r"([\d.]+) ([KMGT]?i?B)"
TRIED = re.compile(rf"Tried to allocate {SIZE}")
UNALLOCATED = re.compile(rf"{SIZE} is reserved by PyTorch but unallocated")
OTHER_PROCESS = re.compile(rf"Process (\d+) has {SIZE} memory in use")

EXPANDABLE = Remedy(
    title="set PYTORCH_ALLOC_CONF=expandable_segments:True",
    why="PyTorch has enough free memory, but in blocks that are too small; before torch 2.9 the variable "
    "is PYTORCH_CUDA_ALLOC_CONF",
    effect="free blocks are merged; the settings do not change",
    rests_on="the numbers in the error message",
    source="PyTorch: memory management",
)


def is_fragmented(message: str) -> bool:
    """Whether PyTorch had more free memory than was requested, in pieces that were too small."""
    tried, held = TRIED.search(message), UNALLOCATED.search(message)
    return tried is not None and held is not None and _size(held) >= _size(tried)


def other_processes(message: str) -> tuple[str, ...]:
    """The other processes that the message names, with the memory they hold, as evidence."""
    return tuple(
        f"process {pid} uses {size} {unit} of the GPU"
        for pid, size, unit in OTHER_PROCESS.findall(message)
        if OTHER_PROCESS_BYTES <= (parse_size(f"{size} {unit}") or 0) < 2**50  # a container reports nonsense
    )


OTHER_ON_CARD = Remedy(
    title="end the other process on the GPU first, or train on another GPU",
    why="it uses memory that this training needs; `nvidia-smi` names it, often an old notebook or a "
    "crashed run. If it is a rank of this training, give each rank its own GPU "
    "(`torch.cuda.set_device(local_rank)`, and `map_location` when loading a checkpoint)",
    effect="its memory becomes available; the settings do not change",
    rests_on="the numbers in the error message",
    source=f"{NOTES_T4}: close other notebooks",
)
CAPACITY = re.compile(rf"total capacity of {SIZE}|{SIZE} total capacity")
FREE = re.compile(rf"of which {SIZE} is free|{SIZE} free")
OWN = re.compile(rf"this process has {SIZE} memory in use")
RESERVED = re.compile(rf"{SIZE} (?:reserved in total by PyTorch|cached)")
CONTEXT_BYTES = 2 * GIB
"""More than CUDA's context, libraries and NCCL take of a card outside PyTorch's allocator."""


def held_by_others(message: str) -> tuple[str, ...]:
    """What other processes hold by the message's own figures, as evidence; empty if it names them or it is little."""
    if OTHER_PROCESS.search(message):
        return ()
    total, free, own = (first_size(pattern, message) for pattern in (CAPACITY, FREE, OWN))
    if own is None and (reserved := first_size(RESERVED, message)) is not None:
        own = reserved + CONTEXT_BYTES
    if total is None or free is None or own is None or total - free - own < OTHER_PROCESS_BYTES:
        return ()
    return (f"about {format_limit(total - free - own)} of the GPU are used by other processes",)


def first_size(pattern: re.Pattern[str], message: str) -> int | None:
    """The size in bytes that `pattern` finds first in the message, or None."""
    match = pattern.search(message)
    found = [] if match is None else [group for group in match.groups() if group]
    return parse_size(f"{found[0]} {found[1]}") if found else None


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
    return f"The run's own limit of {format_limit(limit_bytes)} ({of} memory) is exhausted"


def format_limit(limit_bytes: int) -> str:
    """A limit with three digits: `6 GiB`, `2.79 GiB`."""
    return f"{limit_bytes / GIB:.3g} GiB"


def raise_limit(limit_bytes: int) -> Remedy:
    return Remedy(
        title=f"raise the limit of {format_limit(limit_bytes)}",
        why="it was set at launch (`--memory-limit`), not by the machine",
        source="the run record",
    )


def _size(match: re.Match[str]) -> int:
    return parse_size(f"{match[1]} {match[2]}") or 0
