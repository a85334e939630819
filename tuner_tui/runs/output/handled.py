"""Whether the training survived a failure: it was caught, retried or only told about."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

from tuner_tui.runs.output.failures import Failure
from tuner_tui.runs.output.lines import BAR, Line
from tuner_tui.runs.output.progress import DEALT_WITH, Signs, find_signs

NEAR = 4
"""Lines after a failure in which a program says that it dealt with it."""
FAR = 12
"""Ordinary lines after a failure that a dying process does not write any more."""
NATIVE_NOISE = re.compile(
    r"^\s*(?:frame #|#\d+ |File |at |wandb|\^|~|Exception raised from|\[W|Compile with|For debugging|CUDA kernel errors"
    r"|/|=+$|-+$|srun|slurmstepd|Aborted|terminate called|what\(\)|Failures|Root Cause|\[\d+\]:|time |host |rank "
    r"|exitcode|error_file|traceback|<NO_OTHER|\S+ FAILED$)"
)


@dataclass(frozen=True, slots=True)
class Story:
    """What an output says around its failures, found once: its signs of life, and its ordinary lines.

    `ended` says that something is known to have ended badly; `ordinary` holds the numbers of lines that are neither
    blank nor what a dying process writes, ascending.
    """

    lines: tuple[Line, ...]
    signs: Signs
    ordinary: tuple[int, ...]
    ended: bool

    def survived(self, failure: Failure, later: Sequence[Failure]) -> bool:
        """Whether the training went on after `failure`; `later` are the failures written after it."""
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
        """The next lines say so."""
        following = [line for line in self.lines[failure.last + 1 : failure.last + 3 * NEAR] if not line.blank][:NEAR]
        return any(DEALT_WITH.search(line.text) and not BAR.search(line.text) for line in following)

    def _far_from_end(self, failure: Failure, later: Sequence[Failure]) -> bool:
        """Much ordinary output follows: what dies does not talk on."""
        after = self.ordinary[bisect_right(self.ordinary, failure.last) :]
        if len(after) <= FAR:
            return False
        taken = sum(bisect_right(after, other.last) - bisect_left(after, other.first) for other in later)
        return len(after) - taken > FAR


def story_of(lines: Sequence[Line], ended: bool) -> Story:
    """The story of an output, whose lines are numbered from 0 on."""
    ordinary = tuple(line.number for line in lines if not line.blank and not NATIVE_NOISE.match(line.text))
    return Story(tuple(lines), find_signs(lines), ordinary, ended)
