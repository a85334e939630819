"""The patterns of `crashes.yaml`, forms of errors and what each means, and which of them explains a failure."""

from __future__ import annotations

import builtins
import re
import signal
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from msgspec import Struct

from tuner_tui.core.files import parse_data_file
from tuner_tui.runs.log_parsing.failures import Failure
from tuner_tui.runs.log_parsing.frame_roles import role_of_traceback
from tuner_tui.runs.log_parsing.lines import Confidence, expand, log_forms

FILE = Path(__file__).with_name("crashes.yaml")
KILLED = "killed"
"""The topic of ends by want of memory in which no allocation failed: a process was killed, or memory was not pinned."""
WRAPPERS = frozenset({"worker-crash", "compile-failed", "collective-timeout"})
"""Causes whose messages often wrap the real cause."""
GENERAL = frozenset(
    {"precision-unsupported", "program-error", "bad-arguments", "checkpoint-io", "disk-full", "unknown", *WRAPPERS}
)
"""Causes whose words say less than the code that raised the error."""

PLAIN_CLASS = re.compile(r"(?:Assertion|Attribute|Index|Key|OS|Runtime|Type|Value)Error\b|Exception\b")
"""Exceptions that any code raises: their class says nothing of the reason."""

DEFAULTS: Mapping[str, Mapping[str, Any]] = {"frames": {"replaces": GENERAL}, "classes": {"confidence": "likely"}}
PLAIN = ("cause", "confidence", "bare", "consequence", "topic", "outcome", "depth", "raised", "spared")


class CrashPattern(Struct, frozen=True, kw_only=True):
    """A form of error and what it means; `README.md` describes the fields.

    It is recognised by the words of a message (`regexes`); by the `headline` of an exception and the code that raised
    it: one of the innermost `depth` frames as `file:function`, the `statement` of the innermost one, or the role of the
    traceback, one of `where`; by the names of an exception's class; or by the signal that ended a process which said
    nothing else, any if there are no `signals`. The second and third take the place of a pattern recognised by words if
    that has one of the causes `replaces`.
    """

    cause: str
    sentence: str
    regexes: tuple[re.Pattern[str], ...] = ()
    headline: re.Pattern[str] = re.compile("")
    frame: re.Pattern[str] = re.compile(r"(?!)")
    statement: re.Pattern[str] | None = None
    depth: int = 3
    raised: bool | None = None
    """Whether the innermost frame has a `raise` of the exception; an `assert` counts as both, None as either."""
    where: frozenset[str] = frozenset()
    classes: frozenset[str] = frozenset()
    replaces: frozenset[str] = frozenset()
    signals: frozenset[int] = frozenset()
    spared: bool | None = None
    """Whether the kernel is known not to have killed the process for memory; None if that does not matter."""
    confidence: Confidence = "certain"
    bare: bool = False
    consequence: bool = False
    topic: str | None = None
    outcome: str | None = None

    def is_by_place(self, headline: str) -> bool:
        """Whether only the code that raised a plain exception led to it: any words would do."""
        kind = None if self.regexes or self.classes or self.signals or self.statement else PLAIN_CLASS.match(headline)
        return kind is not None and self.headline.search(f"{kind[0]}: plate") is not None

    def fits(self, role: str | None, statement: str) -> bool:
        """Whether code of a role with this statement is meant: by both, where the pattern has both."""
        in_role = role in self.where if self.where else self.statement is not None
        return in_role and (self.statement is None or self.statement.search(statement) is not None)


class CrashTable(Struct, frozen=True):
    """The patterns in the order in which they are tried; `bare` are those of `messages` for lines without exception.

    `classes` are found by the name of an exception's class, `bases` has the class above that of a package.
    """

    messages: tuple[CrashPattern, ...]
    bare: tuple[CrashPattern, ...]
    frames: tuple[CrashPattern, ...]
    signals: tuple[CrashPattern, ...]
    classes: Mapping[str, CrashPattern]
    bases: Mapping[str, str]


@cache
def crash_table() -> CrashTable:
    """The patterns of `crashes.yaml`, read when the first failure is looked at."""
    document = parse_data_file(FILE)
    messages, frames, signals, classes = (
        tuple(_pattern(row, DEFAULTS.get(part, {}), document["fragments"]) for row in document[part])
        for part in ("messages", "frames", "signals", "classes")
    )
    bare = tuple(pattern for pattern in messages if pattern.bare)
    by_class = {name: pattern for pattern in classes for name in pattern.classes}
    return CrashTable(messages, bare, frames, signals, by_class, document["bases"])


def _pattern(row: Mapping[str, Any], defaults: Mapping[str, Any], fragments: Mapping[str, str]) -> CrashPattern:
    def compile_form(form: str) -> re.Pattern[str]:
        return re.compile(expand(form, fragments))

    forms = row.get("any", [row["match"]] if "match" in row else [])
    fields: dict[str, Any] = {
        **defaults,
        **{name: row[name] for name in PLAIN if name in row},
        **{name: frozenset(row[name]) for name in ("where", "classes", "replaces") if name in row},
        **{name: compile_form(row[name]) for name in ("headline", "frame", "statement") if name in row},
    }
    signals = frozenset(int(signal.Signals[name]) for name in row.get("signals", ()))
    return CrashPattern(sentence=row["say"], regexes=tuple(map(compile_form, forms)), signals=signals, **fields)


def explain_signal(number: int, spared: bool) -> CrashPattern:
    """What it means that a signal ended the training without a message; `spared`: it was not killed for memory."""
    rows = (row for row in crash_table().signals if row.spared in (None, spared))
    return next(row for row in rows if not row.signals or number in row.signals)


def classify(failure: Failure) -> CrashPattern | None:
    """The first pattern that matches the exception line, else the whole message.

    The line of a wrapper (a compiler, a collective, a worker that forwards an exception) yields to what it wraps.
    """
    if failure.is_of_launcher:
        return None
    messages = crash_table().messages
    by_headline = first_of(messages, failure.headline)
    by_frames = _classify_by_frames(failure, by_headline)
    by_class = next(filter(None, map(crash_table().classes.get, _class_names(failure.type))), None)
    if by_class is not None and by_class.consequence and by_class.cause == "worker-crash":
        by_frames = None  # where it waited for the process that died
    if by_frames is not None and not by_frames.raised:
        return by_frames
    by_words = by_headline
    # A pattern may span lines that the message breaks, so it is also tried on the message as one line.
    inner = log_forms("wrapped")[0].split(failure.message, maxsplit=1)[-1]
    by_message = first_of(messages, inner) or first_of(messages, " ".join(inner.split()))
    if by_message is not None and (
        by_headline is None
        # A compiler's missing file is none that the user gave.
        or (
            by_headline.cause in WRAPPERS
            and by_message.cause not in (GENERAL if by_headline.cause == "compile-failed" else WRAPPERS)
        )
        # The rows of one cause are in order, so the message as a whole only leads to a more specific one.
        or (by_headline.cause in {by_message.cause, *by_message.replaces} and by_message.topic is not None)
    ):
        by_words = by_message
    if by_words is None and by_frames is not None:
        # What is known of a part of a package yields to any words, and to a class of another package.
        package, _, name = (failure.type or "").partition(".")
        if by_class is None or not name or f"{package}/" in failure.frames[-1].file:
            return by_frames
    if by_class is not None and (by_words is None or by_words.cause in by_class.replaces):
        return by_class
    return by_words


def _class_names(type_name: str | None) -> Iterator[str]:
    """The names of an exception's class and of those above it, each with its module and without; then its package."""
    seen = set[str]()
    package, _, below = (type_name or "").partition(".")
    while type_name and type_name not in seen:
        seen.add(type_name)
        short = type_name.rpartition(".")[2]
        yield from (type_name, short)
        builtin = vars(builtins).get(short)
        if isinstance(builtin, type):
            yield from (base.__name__ for base in builtin.__mro__)
            return
        type_name = crash_table().bases.get(type_name) or crash_table().bases.get(short)
    if below:
        yield f"{package}.*"


def first_of(patterns: Iterable[CrashPattern], text: str) -> CrashPattern | None:
    return next((pattern for pattern in patterns if any(regex.search(text) for regex in pattern.regexes)), None)


def _classify_by_frames(failure: Failure, by_words: CrashPattern | None) -> CrashPattern | None:
    """The cause of an error recognised by the code that raised it, if that says more than its words."""
    if not failure.frames:
        return None
    role = role_of_traceback(failure.frames)
    name = None if role is None else role.name
    calls = [frame.name for frame in failure.calls]
    statement = (failure.calls or failure.frames)[-1].statement
    raised = (None, failure.refuses, statement.startswith("raise "))
    rows = (row for row in crash_table().frames if by_words is None or by_words.cause in row.replaces)
    rows = (row for row in rows if row.raised in raised and row.headline.search(failure.headline))
    fitting = (row for row in rows if any(map(row.frame.search, calls[-row.depth :])) or row.fits(name, statement))
    return next(fitting, None)
