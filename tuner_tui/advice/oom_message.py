"""What a GPU out-of-memory message says beside the fact: fragmentation, and who else holds memory on the card."""

from __future__ import annotations

import re

from tuner_tui.advice.finding import Remedy

SIZE = r"([\d.]+) ([KMGT]?i?B)"
TRIED = re.compile(rf"Tried to allocate {SIZE}")
UNALLOCATED = re.compile(rf"{SIZE} is reserved by PyTorch but unallocated")
OTHERS = re.compile(rf"Process (\d+) has {SIZE} memory in use")
UNITS = {"B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40, "KB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12}

EXPANDABLE = Remedy(
    title="set PYTORCH_ALLOC_CONF=expandable_segments:True",
    why="PyTorch holds more free memory than the batch asked for, in pieces too small for it; before torch 2.9 the "
    "variable is called PYTORCH_CUDA_ALLOC_CONF",
    effect="the pieces are joined; the settings stay as they are",
    rests_on="the figures of the message",
    source="PyTorch: memory management",
)


def fragmented(message: str) -> bool:
    """Whether PyTorch held more free memory than was asked for: in too small pieces."""
    tried, held = TRIED.search(message), UNALLOCATED.search(message)
    return tried is not None and held is not None and _bytes(held) >= _bytes(tried)


def other_holders(message: str) -> tuple[str, ...]:
    """The other processes the message names, each with what it holds, as evidence."""
    return tuple(f"process {pid} holds {size} {unit} of the card" for pid, size, unit in OTHERS.findall(message))


def _bytes(match: re.Match[str]) -> float:
    """The size of a match, in bytes; 0 where the number is none."""
    try:
        return float(match[1]) * UNITS.get(match[2], 0)
    except ValueError:
        return 0.0
