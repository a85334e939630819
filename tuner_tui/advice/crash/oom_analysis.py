"""What the numbers in an out-of-memory error say, read by `oom_figures.yaml`."""

from __future__ import annotations

import re
from pathlib import Path

from msgspec import Struct

from tuner_tui.advice.finding import Remedy
from tuner_tui.advice.remedies.table import remedy
from tuner_tui.advice.thresholds import OTHER_PROCESS_BYTES
from tuner_tui.core.files import compiled, read_data_file
from tuner_tui.core.units import GIB, format_limit, parse_size

FILE = Path(__file__).with_name("oom_figures.yaml")
SIZE = r"([\d.]+ (?:[KMGT]?i?B|bytes))"
LARGEST_BYTES = 144 * GIB
"""More than most GPUs have, for messages that name no capacity."""
CONTEXT_BYTES = 2 * GIB
"""More than CUDA's context, libraries and NCCL take of a GPU outside PyTorch's allocator."""
MANY_BYTES = 6 * GIB
"""What a process holds outside of PyTorch's allocator without cause; context, NCCL and graphs take less. Judgement."""
NEARLY = 0.9
"""A memory fraction of at least this share of the GPU limits nothing."""
LARGE_SHARE = 0.02
"""Memory that PyTorch holds without use below this share is what every allocator has. Judgement."""
WITH_SEGMENTS = {"cuda", "hip", None}
"""Back ends whose allocator reads PYTORCH_ALLOC_CONF."""
NONSENSE_BYTES = 2**50
"""Containers report such sizes of other processes, and PyTorch such a limit where none is set."""


class MemoryFigures(Struct, frozen=True, kw_only=True):
    """The sizes that a message names, in bytes; None for those that it does not name.

    `used` is what the process uses in all, `by_metal` what MPS counts besides tensors, `allowed` a memory fraction in
    bytes. `processes` are the others that are named, with their sizes; `backend` is cuda, hip, mps or xpu.
    """

    tried: int | None = None
    capacity: int | None = None
    free: int | None = None
    allocated: int | None = None
    unallocated: int | None = None
    reserved: int | None = None
    used: int | None = None
    by_metal: int | None = None
    allowed: int | None = None
    processes: tuple[tuple[str, str], ...] = ()
    backend: str | None = None

    @property
    def held_by_pytorch(self) -> int | None:
        """What PyTorch's allocator took of the GPU."""
        if self.allocated is None or self.reserved is not None:
            return self.reserved
        return self.allocated + (self.unallocated or 0)

    @property
    def itself(self) -> str | None:
        """The number of the process itself among `processes`; a container lists it as if it were another.

        It is the one that uses about what PyTorch holds, or for which there would be no room next to it.
        """
        held, total = self.held_by_pytorch, self.capacity
        if held is None or self.used is not None:
            return None
        sizes = ((pid, parse_size(text) or 0) for pid, text in self.processes)
        crowded = NONSENSE_BYTES if total is None else total - held
        alike = (pid for pid, size in sizes if held <= size and (size < held + CONTEXT_BYTES or size > crowded))
        return next(alike, None)

    @property
    def in_use(self) -> int | None:
        """What the process uses of the GPU in all; WSL reports 0 for unknown."""
        named = dict(self.processes).get(self.itself or "")
        return (self.used if named is None else parse_size(named)) or None

    @property
    def cached(self) -> int | None:
        """What PyTorch holds and does not use."""
        if self.unallocated is not None or self.reserved is None or self.allocated is None:
            return self.unallocated
        return self.reserved - self.allocated


class MemoryReading(Struct, frozen=True):
    """What the figures say. The remedies of the cause follow unless `is_whole`: then no smaller training helps."""

    remedies: tuple[Remedy, ...] = ()
    evidence: tuple[str, ...] = ()
    sentence: str | None = None
    is_whole: bool = False


def read_figures(message: str) -> MemoryFigures:
    """The figures of a message."""
    document = read_data_file(FILE)
    forms = {name: "|".join(rows).replace("{SIZE}", SIZE) for name, rows in document["figures"].items()}
    sizes = {name: _first_size(form, message) for name, form in forms.items()}
    named = re.findall(document["process"].replace("{SIZE}", SIZE), message)
    backend = next((name for name, form in document["backends"].items() if re.search(form, message)), None)
    return MemoryFigures(**sizes, processes=tuple(named), backend=backend)


def _first_size(form: str, message: str) -> int | None:
    match = compiled(form).search(message)
    size = None if match is None else parse_size(next(filter(None, match.groups())).replace("bytes", "B"))
    return size if size is not None and size < NONSENSE_BYTES else None


def explain_figures(figures: MemoryFigures, *, has_own_limit: bool = False) -> MemoryReading:
    """What the figures say first. `has_own_limit`: the run was launched with a limit, which is a memory fraction."""
    tried, capacity, free, allowed = figures.tried, figures.capacity, figures.free, figures.allowed
    has_room = free is None or tried is None or free >= tried
    if allowed and (capacity is None or allowed < NEARLY * capacity) and has_room and not has_own_limit:
        of_all = "" if capacity is None else f" of the GPU's {format_limit(capacity)}"
        sentence = f"A memory fraction allows the process {format_limit(allowed)}{of_all}"
        return MemoryReading((remedy("memory-fraction"),), sentence=sentence, is_whole=True)
    # Metal names no capacity where it refuses a buffer for its size.
    if tried is not None and tried > (capacity or (0 if figures.backend == "mps" else LARGEST_BYTES)):
        bound = f"than the GPU's {format_limit(capacity)}" if capacity else "than the device allows for one"
        evidence = (f"one tensor of {format_limit(tried)} is larger {bound}",)
        if tried <= 2 * (capacity or LARGEST_BYTES / 2):
            return MemoryReading((remedy("one-tensor"),), evidence)
        sentence = f"One tensor of {format_limit(tried)} is asked for, which is far larger {bound}"
        return MemoryReading((remedy("wrong-size"), remedy("one-tensor")), evidence, sentence)
    remedies, evidences = list[Remedy](), list[str]()
    if others := () if allowed is not None else other_processes(figures):
        remedies.append(remedy("end-other-process"))
        evidences += others
    held, used = figures.held_by_pytorch, figures.in_use
    if tried and (figures.cached or 0) >= max(tried, LARGE_SHARE * (held or 0)) and figures.backend in WITH_SEGMENTS:
        remedies.append(remedy("expandable-segments"))  # changes neither the results nor the speed
    if tried and capacity and tried > max(capacity / 2, held or 0):
        remedies.append(remedy("one-tensor"))
        evidences.append(f"one tensor of {format_limit(tried)} is asked for, of a GPU of {format_limit(capacity)}")
    if used is not None and held is not None and used - held > MANY_BYTES:
        remedies.append(remedy("outside-pytorch"))
        evidences.append(f"{format_limit(used - held)} of this process are held outside of PyTorch")
    if figures.by_metal is not None and figures.allocated is not None and figures.by_metal > figures.allocated:
        remedies.append(remedy("metal-cache"))
        evidences.append(f"Metal's caches or others hold {format_limit(figures.by_metal)} besides PyTorch's tensors")
    if others or allowed is not None or tried is None or free is None or free < max(4 * tried, GIB):
        return MemoryReading(tuple(remedies), tuple(evidences))
    evidences.append(f"the driver refused it although {format_limit(free)} are free")
    refusal = "The driver refused GPU memory although enough is free"
    return MemoryReading((remedy("free-but-refused"), *remedies), tuple(evidences), refusal, True)


def other_processes(figures: MemoryFigures) -> tuple[str, ...]:
    """What other processes hold, as evidence: those that the message names, else by its figures if it is much."""
    total, free, used, held = figures.capacity, figures.free, figures.in_use, figures.held_by_pytorch
    others = [(pid, text) for pid, text in figures.processes if pid != figures.itself]
    if others:
        large = (each for each in others if OTHER_PROCESS_BYTES <= (parse_size(each[1]) or 0) < NONSENSE_BYTES)
        return tuple(f"process {pid} uses {text} of the GPU" for pid, text in large)
    if used is None and held is not None:
        used = held + CONTEXT_BYTES
    if total is None or free is None or used is None or total - free - used < OTHER_PROCESS_BYTES:
        return ()
    return (f"about {format_limit(total - free - used)} of the GPU are used by other processes",)


def limit_reached(limit_bytes: int, of: str) -> str:
    """The cause as a sentence; `of` is `the GPU's` or `the host's`."""
    return f"The run's own limit of {format_limit(limit_bytes)} ({of} memory) is exhausted"
