"""Finds the failure in an output that ended the training, if any.

Steps: find every failure; match each against the crash patterns; drop those the training survived; of the rest, take
the first that is not a consequence of another process's end.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from tuner_tui.runs.log_parsing.crash_patterns import gpu_errors, memory_errors, program_errors
from tuner_tui.runs.log_parsing.crash_patterns.by_frames import BY_FRAMES, TRANSPARENT, WRAPPERS
from tuner_tui.runs.log_parsing.crash_patterns.pattern import CrashPattern
from tuner_tui.runs.log_parsing.failures import (
    DEALT_WITH,
    Failure,
    LauncherReport,
    ProgressSigns,
    find_exceptions,
    find_progress_signs,
    is_launcher_error,
)
from tuner_tui.runs.log_parsing.lines import BAR, LogLine

NEAR = 4
"""Lines after a failure in which a program logs that it handled it."""
FAR = 12
"""Ordinary lines after a failure that a process which ends does not write."""
NATIVE_NOISE = re.compile(
    r"^\s*(?:frame #|#\d+ |File |at |wandb|\^|~|Exception raised from|\[W|Compile with|For debugging|CUDA kernel errors"
    r"|/|=+$|-+$|srun|slurmstepd|Aborted|terminate called|what\(\)|Failures|Root Cause|\[\d+\]:|time |host |rank "
    r"|exitcode|error_file|traceback|<NO_OTHER|\S+ FAILED$)"
)

MESSAGE_ALONE = re.compile(r"(?:CUDA|HIP|cuDNN|NCCL) error: ")
"""The beginning of an exception's message that stands without the exception's type."""


@dataclass(frozen=True, slots=True)
class FailureContext:
    """Signs of progress and ordinary lines of an output, found once.

    `ended`: it is known that the training failed. `ordinary`: numbers of the lines that are neither blank nor written
    by a process that crashes, ascending.
    """

    lines: tuple[LogLine, ...]
    signs: ProgressSigns
    ordinary: tuple[int, ...]
    ended: bool

    def survived(self, failure: Failure, later: Sequence[Failure]) -> bool:
        """Whether the training continued after `failure`; `later` are the failures after it."""
        if failure.aside and not failure.uncaught:
            return True
        if failure.traceback and not failure.headline:
            return not failure.uncaught
        if self._goes_on(failure):
            return True
        if failure.uncaught:
            return False
        dies = any(other.uncaught and other.headline == failure.headline for other in later)
        return (self._dealt_with(failure) and not dies) or (not self.ended and self._far_from_end(failure, later))

    def _goes_on(self, failure: Failure) -> bool:
        if failure.rank is not None and self.ended:
            return False
        buffered = failure.uncaught and not self.signs.speaks_before(failure.first)
        return self.signs.goes_on(failure.last, failure.rank, buffered)

    def _dealt_with(self, failure: Failure) -> bool:
        following = [line for line in self.lines[failure.last + 1 : failure.last + 3 * NEAR] if not line.blank][:NEAR]
        return any(DEALT_WITH.search(line.text) and not BAR.search(line.text) for line in following)

    def _far_from_end(self, failure: Failure, later: Sequence[Failure]) -> bool:
        """Whether much ordinary output follows, which a process that ends does not write."""
        after = self.ordinary[bisect_right(self.ordinary, failure.last) :]
        if len(after) <= FAR:
            return False
        taken = sum(bisect_right(after, other.last) - bisect_left(after, other.first) for other in later)
        return len(after) - taken > FAR


def failure_context(lines: Sequence[LogLine], ended: bool) -> FailureContext:
    """The context of an output whose lines are numbered from 0."""
    ordinary = tuple(line.number for line in lines if not line.blank and not NATIVE_NOISE.match(line.text))
    return FailureContext(tuple(lines), find_progress_signs(lines), ordinary, ended)


T = TypeVar("T")
TRUST = {"certain": 0, "likely": 1, "possible": 3}
UNRECOGNISED = 2
"""Rank of an exception without pattern: above a pattern that is only possible."""
FIRST_KEPT, LAST_KEPT = 20, 80
"""Failures looked at where an output repeats one endlessly."""
INTERRUPT = re.compile(r"(?:^|\.)(?:KeyboardInterrupt|SystemExit|SignalException)$")
ECHOES = frozenset({"worker-crash", "collective-timeout", "unknown"})
"""What other processes report when one is interrupted."""


@dataclass(frozen=True, slots=True)
class FailureMatch:
    """A failure and its crash pattern, or None."""

    failure: Failure
    pattern: CrashPattern | None

    @property
    def cause(self) -> str:
        """The identifier of the cause."""
        return "unknown" if self.pattern is None else self.pattern.cause


def find_fatal_failure(
    lines: Sequence[LogLine], launched: LauncherReport, exited_badly: bool | None
) -> FailureMatch | None:
    """The failure that ended the training. `exited_badly` is None if the exit status is unknown."""
    exceptions = find_exceptions(lines)
    readings = sorted(
        (*_match_exceptions(exceptions), *_match_bare_lines(lines, exceptions)), key=lambda r: r.failure.first
    )
    readings = first_and_last(readings)
    ended = launched.spoke or bool(exited_badly)
    story = failure_context(lines, ended)
    alive = [reading for reading in readings if not story.survived(reading.failure, failures_after(readings, reading))]
    if any(is_interrupt(reading) and not reading.failure.aside for reading in alive):
        alive = [reading for reading in alive if not is_interrupt(reading) and reading.cause not in ECHOES]
    if not alive:
        return None
    return min(alive, key=lambda reading: _sort_key(reading, launched, alive))


def is_interrupt(reading: FailureMatch) -> bool:
    """Whether the process was stopped by a user or a signal."""
    return INTERRUPT.search(reading.failure.type or "") is not None


def failures_after(readings: Sequence[FailureMatch], one: FailureMatch) -> tuple[Failure, ...]:
    """The failures after `one`."""
    return tuple(other.failure for other in readings if other.failure.first > one.failure.last)


def classify(failure: Failure) -> CrashPattern | None:
    """The first pattern that matches the exception line, else the whole message.

    The line of a wrapper (a compiler, a collective, a worker that forwards an exception) yields to what it wraps.
    """
    if is_launcher_error(failure.type, failure.headline):
        return None
    own = next((pattern for pattern in PATTERNS if pattern.regex.search(failure.headline)), None)
    raised_in = _classify_by_frames(failure, own)
    if raised_in is not None:
        return raised_in
    if own is not None and own.cause not in WRAPPERS:
        return own
    flat = " ".join(failure.message.split())
    whole = next((pattern for pattern in PATTERNS if pattern.regex.search(failure.message)), None) or next(
        (pattern for pattern in PATTERNS if pattern.regex.search(flat)), None
    )
    return own if own is not None and (whole is None or whole.cause in WRAPPERS) else whole


def _classify_by_frames(failure: Failure, by_words: CrashPattern | None) -> CrashPattern | None:
    """The cause of an error recognised by the code that raised it, if that says more than its words."""
    frames = [f"{file}:{function}".replace("\\", "/") for file, function in failure.frames]
    frames = [frame for frame in frames if not TRANSPARENT.search(frame)]
    return next(
        (
            rule.pattern
            for rule in BY_FRAMES
            if rule.headline.search(failure.headline)
            and any(rule.frame.search(frame) for frame in frames[-rule.depth :])
            and (by_words is None or by_words.cause in rule.replaces)
        ),
        None,
    )


def _match_exceptions(exceptions: Sequence[Failure]) -> list[FailureMatch]:
    """One match for each chain: its first exception with a pattern, else its first exception."""
    chains: dict[tuple[int | None, int], list[Failure]] = {}
    for failure in exceptions:
        chains.setdefault((failure.rank, failure.chain), []).append(failure)
    return [_match_chain(chain) for chain in first_and_last(list(chains.values()))]


def first_and_last(found: list[T]) -> list[T]:
    """The first and last items of a very long list."""
    return found if len(found) <= FIRST_KEPT + LAST_KEPT else found[:FIRST_KEPT] + found[-LAST_KEPT:]


FORWARDED = re.compile(r": Caught \w+ in ")
"""The message of an exception that another thread or process raised, which follows as the original one."""


def _match_chain(chain: Sequence[Failure]) -> FailureMatch:
    readings = [FailureMatch(_spanning(failure, chain), classify(failure)) for failure in chain]
    known = [reading for reading in readings if reading.pattern is not None]
    if all(failure.thread for failure in chain):
        known = [reading for reading in known if reading.pattern is not None and not reading.pattern.consequence]
        if not known:
            return FailureMatch(replace(readings[0].failure, aside=True, uncaught=False), None)
    if not known:
        return readings[-1 if FORWARDED.search(readings[0].failure.headline) else 0]
    best = min(known, key=_specific)
    inner = readings[-1].failure
    if best.cause in WRAPPERS and best.failure.traceback and inner.traceback and inner.headline:
        return FailureMatch(inner, best.pattern)  # what a wrapper forwards says more, even where it is not recognised
    return best


def _specific(reading: FailureMatch) -> tuple[bool, bool, int]:
    pattern = reading.pattern
    assert pattern is not None
    return pattern.consequence, pattern.cause in WRAPPERS, TRUST[pattern.confidence]


def _spanning(failure: Failure, chain: Sequence[Failure]) -> Failure:
    """The failure extended over its chain, so that later failures come after all of it."""
    frames = max((each.frames for each in chain), key=len)
    return replace(
        failure,
        first=min(each.first for each in chain),
        last=max(each.last for each in chain),
        frames=failure.frames if len(failure.frames) > 2 or failure.frames == frames else (*frames, *failure.frames),
        uncaught=any(each.uncaught or each.thread for each in chain),
        aside=all(each.aside for each in chain),
    )


def _match_bare_lines(lines: Sequence[LogLine], exceptions: Sequence[Failure]) -> list[FailureMatch]:
    """Matches native messages, shells and kernels: patterns that need no exception."""
    taken = {number for failure in exceptions for number in range(failure.first, failure.last + 1)}
    found = []
    for line in lines:
        if line.quiet or line.number in taken:
            continue
        text = line.text.strip().removeprefix("what():").strip()
        pattern = next((pattern for pattern in BARE if pattern.regex.search(text)), None)
        if pattern is None and (MESSAGE_ALONE.match(text) or (text is not line.text and "what():" in line.text)):
            pattern = next((pattern for pattern in PATTERNS if pattern.regex.search(text)), None)
        if pattern is not None:
            found.append(FailureMatch(Failure(line.number, line.number, text, text, rank=line.rank), pattern))
    return found


def _sort_key(reading: FailureMatch, launched: LauncherReport, alive: Sequence[FailureMatch]) -> tuple[object, ...]:
    """Sorts the cause before its consequences."""
    failure, pattern = reading.failure, reading.pattern
    launcher = is_launcher_error(failure.type, failure.headline)
    return (
        launcher,
        pattern is not None and pattern.consequence,
        failure.aside,
        launched.rank is not None and failure.rank is not None and failure.rank != launched.rank,
        pattern is None and _others_known(alive),
        failure.traceback and not failure.uncaught,
        2 if pattern is not None and reading.cause in ("unknown", "program-error") else int(reading.cause in WRAPPERS),
        TRUST[pattern.confidence] if pattern is not None else UNRECOGNISED,
        failure.first,
    )


def _others_known(alive: Sequence[FailureMatch]) -> bool:
    return any(reading.pattern is not None and not reading.pattern.consequence for reading in alive)


PATTERNS: tuple[CrashPattern, ...] = (
    *memory_errors.LOOK_ALIKES,
    *memory_errors.GPU_MEMORY,
    *memory_errors.HOST_MEMORY,
    *program_errors.PATTERNS,
    *gpu_errors.ATTENTION_PATTERNS,
    *gpu_errors.FUSED_PATTERNS,
    *gpu_errors.ASSERTS,
    *gpu_errors.ILLEGALS,
    *program_errors.PRECISION,
    *gpu_errors.COMPILE_PATTERNS,
    *program_errors.NOT_FINITE,
    *gpu_errors.NETWORK,
    *program_errors.PACKAGES,
    *program_errors.DATA,
    *program_errors.WORKERS,
    *program_errors.USAGE,
    *program_errors.CODE,
    *gpu_errors.COLLECTIVES,
    *gpu_errors.UNEXPLAINED,
)
BARE: tuple[CrashPattern, ...] = tuple(pattern for pattern in PATTERNS if pattern.bare)
