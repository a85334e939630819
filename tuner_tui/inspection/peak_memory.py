"""What holds the memory at the peak of a training, by module, line and part of the step, and what removes the largest.

Recorded by the observer's `allocator_history.py`, which reduces a snapshot of PyTorch's allocator to stacks; or traced
before the training by `memory/trace.py`.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Mapping
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, TypeVar

from msgspec import Struct

from tuner_tui.core.files import read_data_file
from tuner_tui.core.json_struct import from_json
from tuner_tui.core.text import single_line
from tuner_tui.core.units import format_size
from tuner_tui.inspection.process_dump import StackFrame

KeyT = TypeVar("KeyT")
TABLE = Path(__file__).with_name("allocations.yaml")
UNKNOWN = "unknown"
REFUSED = "asked for and refused"
REST = "small allocations"
PERMANENT = frozenset({"weights", "gradients", "optimizer states", "gradient buckets"})
GROWING_STEPS = 3
"""Earlier steps whose memory is still held: fewer may be a first step's caches, or one behind."""
GROWING_SHARE = 0.01
"""Of the peak: less is not worth a line. Judgement."""


class MemoryPart(Struct, frozen=True):
    """Bytes of one kind and dtype in one module; `*` in its name stands for all blocks, an empty name for none.

    `line` is the innermost line of the user's own code, else of a model's, that allocated them, in the part `step_part`
    of a step: loading, data, forward, backward, optimizer, evaluation.
    """

    module: str
    kind: str
    dtype: str
    size: int
    line: str = ""
    step_part: str = ""


class MemoryBreakdown(Struct, frozen=True, dict=True):
    """All tensors at the highest peak of a step, in the phase `phase`; the largest part first."""

    phase: str
    parts: tuple[MemoryPart, ...]

    @property
    def total(self) -> int:
        """The peak in bytes, without context and allocator."""
        return sum(part.size for part in self.parts)

    def by(self, key: Callable[[MemoryPart], KeyT]) -> dict[KeyT, int]:
        """The bytes of all parts with the same key, the largest first."""
        sums: Counter[KeyT] = Counter()
        for part in self.parts:
            sums[key(part)] += part.size
        return dict(sums.most_common())


class RecordedStack(Struct, frozen=True):
    """Allocations with the same calls, by their numbers. `owner` is their kind where their addresses show it.

    Of them `earlier_bytes` were allocated in `earlier_steps` steps that had ended. Those not `recorded` were there
    before.
    """

    bytes: int
    frames: tuple[int, ...] = ()
    module: str = ""
    owner: str = ""
    recorded: bool = True
    earlier_bytes: int = 0
    earlier_steps: int = 0


class GrowingLine(Struct, frozen=True):
    """A line whose allocations of earlier steps are still held, `held_bytes` in all, `step_bytes` of each step."""

    line: str
    held_bytes: int
    step_bytes: int

    @property
    def sentence(self) -> str:
        """The growth: `grows by 12 MiB each step at train.py:41`."""
        return f"grows by {format_size(self.step_bytes)} each step at {self.line}"


class RemovingChange(Struct, frozen=True):
    """A change, and the bytes that it removes at least."""

    change: str
    saved_bytes: int


class RecordedPeak(Struct, frozen=True, dict=True):
    """What one rank's GPU held at the peak, or when an allocation `failed`; in bytes, None where unknown.

    `reserved_bytes` is what PyTorch's allocator had of the GPU's `total_bytes`, of which `free_bytes` were free.
    """

    peak_bytes: int
    reserved_bytes: int
    stacks: tuple[RecordedStack, ...]
    frames: tuple[tuple[str, int, str], ...]
    rest_bytes: int = 0
    failed: bool = False
    rank: int = 0
    device: int = 0
    free_bytes: int | None = None
    total_bytes: int | None = None

    @cached_property
    def breakdown(self) -> MemoryBreakdown:
        """The allocations by module, kind, line and part, which add up to the peak."""
        sizes: Counter[tuple[str, str, str, str]] = Counter()
        for stack, part, kind, line in self._classified:
            sizes[single_line(stack.module), kind, line, part] += stack.bytes
        sizes["", REST, "", ""] += self.rest_bytes
        parts = (MemoryPart(key[0], key[1], "", size, *key[2:]) for key, size in sizes.most_common() if size)
        return MemoryBreakdown("the allocation that failed" if self.failed else "the recorded steps", tuple(parts))

    @property
    def fragmented_bytes(self) -> int:
        """What the allocator had and no tensor used: rounding, and gaps too small for what was asked for."""
        refused = sum(stack.bytes for stack in self.stacks if stack.owner == "refused")
        return max(0, self.reserved_bytes - (self.peak_bytes - refused))

    @property
    def outside_bytes(self) -> int | None:
        """What the GPU held outside of PyTorch's allocator: context, libraries, other processes."""
        if self.total_bytes is None or self.free_bytes is None:
            return None
        return max(0, self.total_bytes - self.free_bytes - self.reserved_bytes)

    @property
    def largest(self) -> MemoryPart | None:
        """The largest part of those that are known."""
        return next((part for part in self.breakdown.parts if part.kind not in (UNKNOWN, REFUSED, REST)), None)

    @property
    def sentence(self) -> str:
        """What was the largest: `largest at the peak: lm_head logits and loss, 5.1 GiB, train.py:88 (forward)`."""
        part = self.largest
        if part is None:
            return f"{format_size(self.peak_bytes)} at the peak, of which nothing is known"
        name = f"{part.module} {part.kind}".strip()
        where = f"{part.line} ({part.step_part})" if part.line else part.step_part
        return f"largest at the peak: {name}, {format_size(part.size)}, {where}".rstrip(", ")

    @property
    def growth(self) -> GrowingLine | None:
        """The line whose memory grows with every step; the largest of several."""
        held: Counter[str] = Counter()
        steps: dict[str, int] = {}
        for stack, _, kind, line in self._classified:
            if line and kind not in PERMANENT:
                held[line] += stack.earlier_bytes
                steps[line] = max(steps.get(line, 0), stack.earlier_steps)
        growing = [line for line, size in held.most_common() if size >= GROWING_SHARE * self.peak_bytes]
        held_longest = [line for line in growing if steps[line] >= GROWING_STEPS]
        return next((GrowingLine(line, held[line], held[line] // steps[line]) for line in held_longest), None)

    @property
    def change(self) -> RemovingChange | None:
        """The one change that removes most; None where no kind is known."""
        changes: Mapping[str, Any] = read_data_file(TABLE)["changes"]
        kinds = self.breakdown.by(lambda part: part.kind)
        changed = [
            RemovingChange(row["change"], round(row["share"] * kinds[kind]))
            for kind, row in changes.items()
            if kind in kinds and row.get("only_with", kind) in kinds
        ]
        if self.growth is not None:
            words = f"`.item()` or `.detach()` for what is kept: {self.growth.sentence}"
            changed.append(RemovingChange(words, self.growth.held_bytes))
        return max(changed, key=lambda change: change.saved_bytes, default=None)

    @cached_property
    def _classified(self) -> list[tuple[RecordedStack, str, str, str]]:
        """The stacks, each with its part of the step, kind and line."""
        calls = [tuple(StackFrame(*self.frames[number]) for number in stack.frames) for stack in self.stacks]
        return [
            (stack, *classify_allocation(stack, each), _line_of(each))
            for stack, each in zip(self.stacks, calls, strict=True)
        ]


@lru_cache(maxsize=64)
def parse_peak(content: bytes) -> RecordedPeak:
    """Read what the observer wrote. Raises `ValueError`. Cached, as a screen asks each second."""
    peak = from_json(RecordedPeak, json.loads(content))
    if any(not 0 <= number < len(peak.frames) for stack in peak.stacks for number in stack.frames):
        raise ValueError("a stack names a call that is not there")
    if peak.breakdown.total <= 0 or any(stack.bytes < 0 for stack in peak.stacks):
        raise ValueError("there are no allocations")
    return peak


def classify_allocation(stack: RecordedStack, calls: tuple[StackFrame, ...]) -> tuple[str, str]:
    """Part of the step and kind of allocations with these calls, innermost first."""
    if stack.owner == "refused":
        return _match(stack.module, calls)[0], REFUSED
    if not stack.recorded:
        part, kind = "before the recording", UNKNOWN
    elif not calls:  # the thread of autograd has no Python calls
        part, kind = "backward", "temporary in backward"
    else:
        part, kind = _match(stack.module, calls)
    return part, stack.owner if stack.owner in PERMANENT else kind


def _line_of(calls: tuple[StackFrame, ...]) -> str:
    """The innermost call of the user's own code, else of a package other than torch."""
    frame = next((call for call in calls if not call.is_library), None)
    frame = frame or next((call for call in calls if "/torch/" not in call.file), None)
    return "" if frame is None else single_line(f"{Path(frame.file).name}:{frame.line}")


def _match(module: str, calls: tuple[StackFrame, ...]) -> tuple[str, str]:
    for rule in read_data_file(TABLE)["rules"]:
        if "module" in rule:
            matches = re.search(rule["module"], module) is not None
        else:
            considered = calls[-1:] if rule.get("outermost") else calls[: rule.get("within")]
            file, function = rule.get("file", ""), rule.get("function", "")
            matches = any(re.search(file, call.file) and re.search(function, call.function) for call in considered)
        if matches:
            return rule["part"], rule["kind"]
    return UNKNOWN, UNKNOWN
