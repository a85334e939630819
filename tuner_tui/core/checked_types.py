"""Values of files that become part of a path or a command, or that name a process: one type for each kind.

`from_json` converts by these types, and `checked` checks what msgspec has converted, so that a value that does not fit
never leaves its reader.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Annotated, Any

from msgspec import Struct

from tuner_tui.core.clock import LATEST_T

MAX_PID = 2**31 - 1
"""The largest `pid_t`."""
LONGEST_PATH_BYTES, LONGEST_NAME_BYTES = 4095, 255
"""Linux's PATH_MAX and NAME_MAX."""


class Check(Struct, frozen=True):
    """Accepts some values of a type; `meaning` completes "not …" for the others."""

    meaning: str
    accepts: Callable[[Any], object]

    def __call__(self, value: Any) -> Any:
        """The value. Raises `ValueError` if it is not accepted."""
        if not self.accepts(value):
            raise ValueError(f"not {self.meaning}")
        return value


def _matches(pattern: str) -> Callable[[str], object]:
    return re.compile(pattern, re.ASCII).fullmatch


def _within(least: float, most: float) -> Callable[[float], object]:
    return lambda value: least <= value <= most  # false for NaN


def _is_path(text: str) -> bool:
    path = text.encode("utf-8", "replace")
    names = path.split(b"/")
    return 0 < len(path) <= LONGEST_PATH_BYTES and max(map(len, names)) <= LONGEST_NAME_BYTES and b"\0" not in path


IDENTIFIER = Check("an identifier", _matches(r"[a-z0-9][a-z0-9-]{0,63}"))
Identifier = Annotated[str, IDENTIFIER]
"""The name of a run or tuning, and of its folder. Never a path."""
HostName = Annotated[str, Check("the name of a host", _matches(r"(?!-)[^/\x00-\x1f\x7f]{0,255}"))]
GpuUuid = Annotated[str, Check("the UUID of a GPU", _matches(r"[A-Za-z0-9][A-Za-z0-9/-]{0,99}"))]
"""A word of CUDA_VISIBLE_DEVICES."""
JobId = Annotated[str, Check("the id of a Slurm job", _matches(r"[0-9]{1,19}"))]
PathText = Annotated[str, Check("a path", _is_path)]
AbsolutePath = Annotated[PathText, Check("an absolute path", lambda text: text.startswith("/"))]
ProgramPath = Annotated[PathText, Check("the path of a program", lambda text: not text.startswith("-"))]
WORD = Check("a word of a command", lambda text: isinstance(text, str) and "\0" not in text)
"""The one text that may hold surrogates: they stand for bytes of the command line that are not UTF-8."""
Word = Annotated[str, WORD]
VARIABLE_NAME = Check("the name of a variable", _matches(r"[^=\0]+"))
VariableName = Annotated[str, WORD, VARIABLE_NAME]
Pid = Annotated[int, Check("the id of a process", _within(0, MAX_PID))]
"""0: no process."""
StartTicks = Annotated[int, Check("the start of a process", _within(0, 1 << 62))]
SignalNumber = Annotated[int, Check("a signal", _within(1, 64))]
ExitCode = Annotated[int, Check("an exit code", _within(-255, 255))]
Count = Annotated[int, Check("a number of things", _within(0, 1 << 20))]
Seconds = Annotated[float, Check("a duration", _within(0, LATEST_T))]
Time = Annotated[float, Check("a time", _within(0, LATEST_T))]
"""Seconds since the epoch."""
