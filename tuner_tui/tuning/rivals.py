"""Rivals: settings ahead of the best by less than single runs can tell. Run again, they are told apart or left."""

from __future__ import annotations

from dataclasses import dataclass

from tuner_tui.core.units import format_share
from tuner_tui.tuning.objective import LEAST_NOISE, Result, Results, apart

MOST_RUNS = 3
"""Runs of one settings; more would seldom change what is chosen."""
WORTH = LEAST_NOISE
"""A lead below this share is not worth a run."""


@dataclass(frozen=True, slots=True)
class Rivals:
    """The rivals of `best`."""

    best: Result
    results: Results

    def next(self) -> tuple[Result, str] | None:
        """Whom to run again and why: the nearest rival, or the best where it was run less often; None where nobody."""
        rival = max(self._rivals(), key=self._lead, default=None)
        if rival is None:
            return None
        reason = f"{format_share(self._lead(rival), 1, signed=True)}, within the noise: once more"
        fewer = len(self.best.runs) < len(rival.runs)
        return self.best if fewer else rival, reason

    def _rivals(self) -> list[Result]:
        return [one for one in self.results.results if self._is_rival(one)]

    def _is_rival(self, one: Result) -> bool:
        if one is self.best or not self.results.trusted(one) or min(len(one.runs), len(self.best.runs)) >= MOST_RUNS:
            return False
        return WORTH < self._lead(one) <= apart(one, self.best, self.results.noise)

    def _lead(self, one: Result) -> float:
        return (one.throughput or 0.0) / (self.best.throughput or 1.0) - 1
