"""What a thread does, by the calls on its stack (activities.yaml) and the line that it is at."""

from __future__ import annotations

import linecache
import re
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from msgspec import Struct

from tuner_tui.core.files import parse_data_file
from tuner_tui.inspection.process_dump import ProcessDump, StackFrame, ThreadStack

BUSY_SHARE = 0.5
"""Of one core: a process above it computes, whatever its stack says."""
TABLE = Path(__file__).with_name("activities.yaml")


class Activity(Struct, frozen=True):
    """`name` and `phrase` of an entry of the table, or `idle`, `computing` or `other`; the user's call."""

    name: str
    phrase: str
    frame: StackFrame | None

    def __str__(self) -> str:
        return self.phrase if self.frame is None else f"{self.phrase} in {self.frame}"


class _Pattern(Struct, frozen=True):
    activity: str
    phrase: str
    file: re.Pattern[str]
    function: re.Pattern[str]
    source: re.Pattern[str] | None
    kernel: re.Pattern[str] | None
    within: int | None

    @property
    def is_idle(self) -> bool:
        """Whether a thread that does this uses no processor time."""
        return self.kernel is not None or self.activity in ("lock", "queue")

    def matches(self, stack: ThreadStack, source_line: str, kernel_wait: str) -> bool:
        if self.kernel is not None:
            return self.kernel.search(kernel_wait) is not None
        if self.source is not None:
            waits_itself = bool(stack.frames) and not stack.frames[0].is_library
            return waits_itself and self.source.search(source_line) is not None
        frames = stack.frames[: self.within]
        return any(self.file.search(frame.file) and self.function.search(frame.function) for frame in frames)


def read_source_line(frame: StackFrame) -> str:
    """The line of the file, empty where it cannot be read."""
    return "" if frame.line is None else linecache.getline(frame.file, frame.line)


def find_activity(process: ProcessDump, read_line: Callable[[StackFrame], str] = read_source_line) -> Activity:
    """What the main thread of `process` does; a loader worker is `idle` between two batches."""
    if process.is_loader_worker:
        process = process.in_data_set()
        if process.main.own_frame is None:
            return Activity("idle", "waits for work", None)
    stack = process.main
    frame = stack.own_frame or next(iter(stack.frames), None)
    if process.state == "D":
        return Activity("storage", "waits for a disk or a driver (state D)", frame)
    line = "" if stack.own_frame is None else read_line(stack.own_frame)
    pattern = next((pattern for pattern in _patterns() if pattern.matches(stack, line, process.kernel_wait)), None)
    computes = process.cpu_share > BUSY_SHARE
    if pattern is not None and not (computes and pattern.is_idle):
        return Activity(pattern.activity, pattern.phrase, frame)
    if computes:
        return Activity("computing", "computes", frame)
    return Activity("other", "waits" if process.threads else process.silence or "did not answer", frame)


@cache
def _patterns() -> tuple[_Pattern, ...]:
    return tuple(map(_pattern, parse_data_file(TABLE)))


def _pattern(entry: dict[str, Any]) -> _Pattern:
    def compiled(name: str) -> re.Pattern[str] | None:
        return re.compile(entry[name]) if name in entry else None

    everything = re.compile("")
    return _Pattern(
        entry["activity"],
        entry["phrase"],
        compiled("file") or everything,
        compiled("function") or everything,
        compiled("source"),
        compiled("kernel"),
        entry.get("within"),
    )
