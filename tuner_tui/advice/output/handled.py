"""Whether the training survived a failure: it was caught, retried or only told about."""

from __future__ import annotations

import re
from collections.abc import Sequence

from tuner_tui.advice.output.failures import Failure
from tuner_tui.advice.output.lines import BAR, Line
from tuner_tui.advice.output.progress import goes_on, speaks_before

NEAR = 4
"""Lines after a failure in which a program says that it dealt with it."""
FAR = 12
"""Ordinary lines after a failure that a dying process does not write any more."""
DEALT_WITH = re.compile(
    r"(?i)\b(?:retry|retrying|trying again|try(?:ing)? (?:a )?(?:batch|with|smaller)"
    r"|(?:reduc|decreas|lower|halv)(?:e|ing) (?:the )?(?:micro )?(?:batch|bs)|new batch size"
    r"|fall(?:ing)? ?back|skipp?(?:ed|ing)|ignor(?:ed|ing)|recover(?:ed|ing)|continu(?:e|ing)"
    r"|using .{1,40} instead|disabling|will not be used)\b"
)
NATIVE_NOISE = re.compile(
    r"^\s*(?:frame #|#\d+ |File |at |wandb|\^|~|Exception raised from|\[W|Compile with|For debugging|CUDA kernel errors"
    r"|/|=+$|-+$|srun|slurmstepd|Aborted|terminate called|what\(\)|Failures|Root Cause|\[\d+\]:|time |host |rank "
    r"|exitcode|error_file|traceback|<NO_OTHER|\S+ FAILED$)"
)


def survived(failure: Failure, later: Sequence[Failure], lines: Sequence[Line], ended: bool) -> bool:
    """Whether the training went on after `failure`. `ended` says that something is known to have ended badly."""
    if failure.aside and not failure.uncaught:
        return True
    if failure.traceback and not failure.headline:
        return not failure.uncaught
    rank_died = failure.rank is not None and ended
    buffered = failure.uncaught and not speaks_before(lines, failure.first)
    if not rank_died and goes_on(lines, failure.last, failure.rank, buffered):
        return True
    if failure.uncaught:
        return False
    return (_dealt_with(failure, lines) and not _dies_of(failure, later)) or (
        not ended and _far_from_end(failure, later, lines)
    )


def _dealt_with(failure: Failure, lines: Sequence[Line]) -> bool:
    """The next lines say so."""
    following = [line for line in lines if line.number > failure.last and not line.blank][:NEAR]
    return any(DEALT_WITH.search(line.text) and not BAR.search(line.text) for line in following)


def _dies_of(failure: Failure, later: Sequence[Failure]) -> bool:
    """The same failure stands there again, uncaught."""
    return any(other.uncaught and other.headline == failure.headline for other in later)


def _far_from_end(failure: Failure, later: Sequence[Failure], lines: Sequence[Line]) -> bool:
    """Much ordinary output follows: what dies does not talk on."""
    taken = {number for other in later for number in range(other.first, other.last + 1)}
    after = (line for line in lines if line.number > failure.last and line.number not in taken)
    return sum(1 for line in after if not line.blank and not NATIVE_NOISE.match(line.text)) > FAR
