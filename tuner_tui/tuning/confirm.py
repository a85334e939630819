"""The end of a search: start and winner in turn, and what that says of the two."""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass

from tuner_tui.settings.model import Settings
from tuner_tui.tuning.objective import Results, rates_of
from tuner_tui.tuning.trial import Tried

LEAST_PAIRS = 2
MOST_PAIRS = 3
INTERVAL = 1.96
"""Standard deviations of a 95 % interval."""


@dataclass(frozen=True, slots=True)
class Pairs:
    """The confirming runs of `start` and `winner`, and the noise known from all runs."""

    start: Settings
    winner: Settings
    tried: tuple[Tried, ...]
    results: Results

    @property
    def ratios(self) -> list[float]:
        """The winner's throughput over the start's, pair by pair."""
        pairs = zip(self._rates(self.start), self._rates(self.winner), strict=False)
        return [after / before for before, after in pairs]

    @property
    def interval(self) -> tuple[float, float, float] | None:
        """The ratio, and its 95 % interval's ends."""
        ratios = [math.log(ratio) for ratio in self.ratios]
        if not ratios:
            return None
        mean = statistics.fmean(ratios)
        half = INTERVAL * math.sqrt(2 / len(ratios)) * self.results.sigma
        return math.exp(mean), math.exp(mean - half), math.exp(mean + half)

    @property
    def decided(self) -> bool:
        """Whether further pairs would tell no more."""
        pairs, interval = len(self.ratios), self.interval
        if interval is None or pairs < LEAST_PAIRS:
            return False
        _, low, high = interval
        return pairs >= MOST_PAIRS or low > 1 or high < 1

    def next(self) -> Settings:
        """Whose turn it is: the start's first."""
        return self.start if len(self._rates(self.start)) <= len(self._rates(self.winner)) else self.winner

    def _rates(self, settings: Settings) -> list[float]:
        confirming = [one for one in self.tried if one.trial.purpose == "confirm"]
        runs = [one.measurement for one in confirming if one.trial.settings == settings]
        return rates_of(runs, self.results.tokens)
