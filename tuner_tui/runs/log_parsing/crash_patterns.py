"""The rows of `crashes.yaml`: forms of error messages, and what each means."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal

from tuner_tui.core.files import read_data_file

Confidence = Literal["certain", "likely", "possible"]

FILE = Path(__file__).with_name("crashes.yaml")
GPU_MEMORY_FULL = "The GPU's memory is full"
HOST_MEMORY_FULL = "Host memory is full"
WRAPPERS = frozenset({"worker-crash", "compile-failed", "collective-timeout"})
"""Causes whose messages often wrap the real cause."""
GENERAL = frozenset(
    {"precision-unsupported", "program-error", "bad-arguments", "checkpoint-io", "disk-full", "unknown", *WRAPPERS}
)
"""Causes whose words say less than the code that raised the error."""
TRANSPARENT = re.compile(
    r"/torch/nn/modules/module\.py:|:(?:wrapper|wrapped\w*|inner\w?|inner_f|new_init|decorate\w*)$"
)
"""Frames that only pass a call or an access on."""
FRAGMENT = re.compile(r"\{([A-Z_]+)\}")


@dataclass(frozen=True, slots=True, kw_only=True)
class CrashPattern:
    """Forms of an error message and what they mean; `README.md` describes the fields."""

    cause: str
    sentence: str
    regexes: tuple[re.Pattern[str], ...] = ()
    confidence: Confidence = "certain"
    bare: bool = False
    consequence: bool = False
    topic: str | None = None

    def matches(self, text: str) -> bool:
        return any(regex.search(text) for regex in self.regexes)


@dataclass(frozen=True, slots=True, kw_only=True)
class FramePattern(CrashPattern):
    """An error recognised by its headline and one of the innermost `depth` frames, as `file:function`.

    It takes the place of a pattern that was recognised by words alone if that has one of the causes `replaces`.
    """

    headline: re.Pattern[str]
    frame: re.Pattern[str]
    replaces: frozenset[str] = GENERAL
    depth: int = 3


@dataclass(frozen=True, slots=True)
class CrashTable:
    """The patterns in the order in which they are tried; `bare` are those of `messages` for lines without exception."""

    messages: tuple[CrashPattern, ...]
    bare: tuple[CrashPattern, ...]
    frames: tuple[FramePattern, ...]


@cache
def crash_table() -> CrashTable:
    """The patterns of `crashes.yaml`, read when the first failure is looked at."""
    document = read_data_file(FILE)
    fragments = document["fragments"]
    messages = tuple(
        CrashPattern(regexes=tuple(_compile(form, fragments) for form in _forms(row)), **_common_fields(row))
        for row in document["messages"]
    )
    frames = tuple(
        FramePattern(
            headline=_compile(row["headline"], fragments),
            frame=_compile(row["frame"], fragments),
            replaces=frozenset(row.get("replaces", GENERAL)),
            depth=row.get("depth", 3),
            **_common_fields(row),
        )
        for row in document["frames"]
    )
    return CrashTable(messages, tuple(pattern for pattern in messages if pattern.bare), frames)


def _forms(row: Mapping[str, Any]) -> Sequence[str]:
    return row["any"] if "any" in row else [row["match"]]


def _compile(form: str, fragments: Mapping[str, str]) -> re.Pattern[str]:
    return re.compile(FRAGMENT.sub(lambda name: fragments[name[1]], form))


def _common_fields(row: Mapping[str, Any]) -> dict[str, Any]:
    optional = {name: row[name] for name in ("confidence", "bare", "consequence", "topic") if name in row}
    return {"cause": row["cause"], "sentence": row["say"], **optional}
