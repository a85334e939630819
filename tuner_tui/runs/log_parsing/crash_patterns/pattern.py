"""One form of an error message and what it means."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

Confidence = Literal["certain", "likely", "possible"]


@dataclass(frozen=True, slots=True)
class CrashPattern:
    """A form searched for in an exception's line (its type and message), and the cause it stands for.

    `bare` forms are believed on a line that is no exception too: what native code, shells and kernels write.
    `consequence` marks what one process says because another one died: any other cause comes before it.
    """

    cause: str
    form: re.Pattern[str]
    sentence: str
    confidence: Confidence = "certain"
    bare: bool = False
    consequence: bool = False


def pattern(
    cause: str,
    regex: str,
    sentence: str,
    confidence: Confidence = "certain",
    *,
    bare: bool = False,
    consequence: bool = False,
) -> CrashPattern:
    """A pattern from its regular expression."""
    return CrashPattern(cause, re.compile(regex), sentence, confidence, bare, consequence)
