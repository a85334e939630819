"""From the text of an output to the one failure that ended the training, or none.

The steps: every place where a failure stands → what each means → those the training survived fall away → of the rest,
the one that came first and is not merely the echo of another process's end.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from tuner_tui.runs.crash_patterns.order import BARE, PATTERNS
from tuner_tui.runs.crash_patterns.pattern import Pattern
from tuner_tui.runs.output.failures import Failure, find_exceptions
from tuner_tui.runs.output.handled import story_of
from tuner_tui.runs.output.launcher import Launched, is_launcher
from tuner_tui.runs.output.lines import Line

T = TypeVar("T")
TRUST = {"certain": 0, "likely": 1, "possible": 3}
UNRECOGNISED = 2
"""An exception that matches nothing says more than a form that is only a possibility."""
WRAPPERS = frozenset({"worker-crash", "compile-failed", "collective-timeout"})
"""Causes whose messages often carry the real one inside."""
FIRST_KEPT, LAST_KEPT = 20, 80
"""Failures looked at where an output repeats one endlessly."""
INTERRUPT = re.compile(r"(?:^|\.)(?:KeyboardInterrupt|SystemExit|SignalException)$")
ECHOES = frozenset({"worker-crash", "collective-timeout", "unknown"})
"""What the other processes say when one is interrupted."""


@dataclass(frozen=True, slots=True)
class Reading:
    """A failure and the form it matched; `pattern` is None where nothing known matched."""

    failure: Failure
    pattern: Pattern | None

    @property
    def cause(self) -> str:
        """The cause's identifier."""
        return "unknown" if self.pattern is None else self.pattern.cause


def fatal_reading(lines: Sequence[Line], launched: Launched, exited_badly: bool | None) -> Reading | None:
    """The failure that ended the training. `exited_badly` is None where the exit status is not known."""
    exceptions = find_exceptions(lines)
    readings = sorted((*_of_exceptions(exceptions), *_of_bare_lines(lines, exceptions)), key=lambda r: r.failure.first)
    readings = first_and_last(readings)
    ended = launched.spoke or bool(exited_badly)
    story = story_of(lines, ended)
    alive = [reading for reading in readings if not story.survived(reading.failure, failures_after(readings, reading))]
    if any(interrupted(reading) and not reading.failure.aside for reading in alive):
        alive = [reading for reading in alive if not interrupted(reading) and reading.cause not in ECHOES]
    if not alive:
        return None
    return min(alive, key=lambda reading: _order(reading, launched, alive))


def interrupted(reading: Reading) -> bool:
    """Whether somebody stopped the process: by hand, or by a signal that asks it to end."""
    return INTERRUPT.search(reading.failure.type or "") is not None


def failures_after(readings: Sequence[Reading], one: Reading) -> tuple[Failure, ...]:
    """The failures written after `one`."""
    return tuple(other.failure for other in readings if other.failure.first > one.failure.last)


def classify(failure: Failure) -> Pattern | None:
    """The first form that fits: the exception's own line decides before the rest of its message.

    A wrapper's line (a compiler, a collective, a worker that passes on what it caught) gives way to what it wraps.
    """
    if is_launcher(failure.type, failure.headline):
        return None
    own = next((pattern for pattern in PATTERNS if pattern.form.search(failure.headline)), None)
    if own is not None and own.cause not in WRAPPERS:
        return own
    whole = next((pattern for pattern in PATTERNS if pattern.form.search(failure.message)), None)
    return own if own is not None and (whole is None or whole.cause in WRAPPERS) else whole


def _of_exceptions(exceptions: Sequence[Failure]) -> list[Reading]:
    """One reading a chain: the first of its exceptions that is known, else the first one of all."""
    chains: dict[tuple[int | None, int], list[Failure]] = {}
    for failure in exceptions:
        chains.setdefault((failure.rank, failure.chain), []).append(failure)
    return [_of_chain(chain) for chain in first_and_last(list(chains.values()))]


def first_and_last(found: list[T]) -> list[T]:
    """The first and the last of very many."""
    return found if len(found) <= FIRST_KEPT + LAST_KEPT else found[:FIRST_KEPT] + found[-LAST_KEPT:]


def _of_chain(chain: Sequence[Failure]) -> Reading:
    readings = [Reading(_spanning(failure, chain), classify(failure)) for failure in chain]
    known = [reading for reading in readings if reading.pattern is not None]
    if all(failure.thread for failure in chain):
        known = [reading for reading in known if reading.pattern is not None and not reading.pattern.consequence]
        if not known:
            return Reading(replace(readings[0].failure, aside=True, uncaught=False), None)
    return min(known, key=_specific) if known else readings[0]


def _specific(reading: Reading) -> tuple[bool, bool, int]:
    pattern = reading.pattern
    assert pattern is not None
    return pattern.consequence, pattern.cause in WRAPPERS, TRUST[pattern.confidence]


def _spanning(failure: Failure, chain: Sequence[Failure]) -> Failure:
    """The failure stretched over its chain, so that what comes after it is after all of it."""
    frames = max((each.frames for each in chain), key=len)
    return replace(
        failure,
        first=min(each.first for each in chain),
        last=max(each.last for each in chain),
        frames=failure.frames if len(failure.frames) > 2 or failure.frames == frames else (*frames, *failure.frames),
        uncaught=any(each.uncaught or each.thread for each in chain),
        aside=all(each.aside for each in chain),
    )


def _of_bare_lines(lines: Sequence[Line], exceptions: Sequence[Failure]) -> list[Reading]:
    """Native messages, shells and kernels: forms that are believed without an exception."""
    taken = {number for failure in exceptions for number in range(failure.first, failure.last + 1)}
    found = []
    for line in lines:
        if line.quiet or line.number in taken:
            continue
        text = line.text.strip().removeprefix("what():").strip()
        pattern = next((pattern for pattern in BARE if pattern.form.search(text)), None)
        if text is not line.text and pattern is None and "what():" in line.text:
            pattern = next((pattern for pattern in PATTERNS if pattern.form.search(text)), None)
        if pattern is not None:
            found.append(Reading(Failure(line.number, line.number, text, text, rank=line.rank), pattern))
    return found


def _order(reading: Reading, launched: Launched, alive: Sequence[Reading]) -> tuple[object, ...]:
    """What makes one failure the cause rather than another: sorts the cause first."""
    failure, pattern = reading.failure, reading.pattern
    launcher = is_launcher(failure.type, failure.headline)
    return (
        launcher,
        pattern is not None and pattern.consequence,
        failure.aside,
        launched.rank is not None and failure.rank is not None and failure.rank != launched.rank,
        pattern is None and _others_known(alive),
        failure.traceback and not failure.uncaught,
        2 if pattern is not None and reading.cause == "unknown" else int(reading.cause in WRAPPERS),
        TRUST[pattern.confidence] if pattern is not None else UNRECOGNISED,
        failure.first,
    )


def _others_known(alive: Sequence[Reading]) -> bool:
    return any(reading.pattern is not None and not reading.pattern.consequence for reading in alive)
