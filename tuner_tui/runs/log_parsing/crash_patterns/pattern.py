"""One form of an error message and what it means."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

Confidence = Literal["certain", "likely", "possible"]


@dataclass(frozen=True, slots=True)
class CrashPattern:
    """A form of an error message, the cause it indicates, and a sentence about it.

    `bare` patterns also match lines that are no exception: native code, shells, kernels. Such a line may also be
    ordinary output, so the form has to be one that nothing else writes. A `consequence` is what one
    process reports because another one ended; every other cause takes precedence. `topic` names what its remedies
    depend on, where those of the cause are too general (`advice.remedies.specific_errors`).
    """

    cause: str
    regex: re.Pattern[str]
    sentence: str
    confidence: Confidence = "certain"
    bare: bool = False
    consequence: bool = False
    topic: str | None = None


@dataclass(frozen=True, slots=True)
class FramePattern:
    """An error recognised by its headline and by the code that raised it.

    `frame` matches one of the innermost `depth` frames as `file:function`. It takes the place of a pattern that was
    recognised by words alone if that has one of the causes `replaces`.
    """

    headline: re.Pattern[str]
    frame: re.Pattern[str]
    pattern: CrashPattern
    replaces: frozenset[str]
    depth: int = 3


def pattern(
    cause: str,
    regex: str,
    sentence: str,
    confidence: Confidence = "certain",
    *,
    bare: bool = False,
    consequence: bool = False,
    topic: str | None = None,
) -> CrashPattern:
    """A compiled `CrashPattern`."""
    return CrashPattern(cause, re.compile(regex), sentence, confidence, bare, consequence, topic)
