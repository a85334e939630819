"""The end of a search: start and winner in turn, and what that says of the two."""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass

from tuner_tui.settings.model import Settings
from tuner_tui.tuning.measurement import Measurement
from tuner_tui.tuning.objective import Results, rates_of, undisturbed
from tuner_tui.tuning.paired import half_width
from tuner_tui.tuning.trial import Tried

LEAST_PAIRS = 2
MOST_PAIRS = 4
LEAST_SIGMA = 0.003
"""No two runs are believed to be nearer to each other than this share, however steady each of them was."""
DOUBTED = 2.0
"""The noise of a pair may be this many times that of all runs: few runs tell it."""


@dataclass(frozen=True, slots=True)
class Pairs:
    """The confirming runs of `start` and `winner`, and the noise known from all runs.

    The order within a pair turns with every pair: a box that grows steadily slower or faster favours nobody.
    """

    start: Settings
    winner: Settings
    tried: tuple[Tried, ...]
    results: Results

    @property
    def ratios(self) -> list[float]:
        """The winner's throughput over the start's, pair by pair; of disturbed pairs only where there is no other."""
        pairs = list(zip(self._runs(self.start), self._runs(self.winner), strict=False))
        steady = [pair for pair in pairs if self._steady(self.start, pair[0]) and self._steady(self.winner, pair[1])]
        rates = [rates_of(pair, self.results.tokens) for pair in steady or pairs]
        return [after / before for before, after in rates]

    @property
    def interval(self) -> tuple[float, float, float] | None:
        """The ratio, and its 95 % interval's ends; None before the first pair.

        It rests on the ratios of the pairs, and for their noise on how far they agree. What drifts from minute to
        minute is shared by a pair and is not in its ratio, so that the noise of pairs may be far below that of all
        runs of the tuning. It is taken to lie between what the runs spread by within themselves, which no pairing
        takes out, and `DOUBTED` times what runs of one settings differ by over the whole tuning.
        """
        ratios = [math.log(ratio) for ratio in self.ratios]
        if not ratios:
            return None
        mean = statistics.fmean(ratios)
        least = math.sqrt(2) * max(LEAST_SIGMA, self.results.sigma_within)
        half = half_width(ratios, least, max(least, math.sqrt(2) * DOUBTED * self.results.sigma))
        return math.exp(mean), math.exp(mean - half), math.exp(mean + half)

    @property
    def decided(self) -> bool:
        """Whether further pairs would tell no more, or the winner turned out to be no faster."""
        if len(self.ratios) < LEAST_PAIRS and self._taken < MOST_PAIRS:
            return False
        ratio, low, _ = self.interval or (1.0, 1.0, 1.0)
        return self._taken >= MOST_PAIRS or low > 1 or ratio <= 1

    def next(self) -> Settings:
        """Whose turn it is: in the first pair the start's, in the next the winner's, and so on."""
        start, winner = len(self._runs(self.start)), len(self._runs(self.winner))
        if start != winner:
            return self.start if start < winner else self.winner
        return self.start if start % 2 == 0 else self.winner

    @property
    def _taken(self) -> int:
        """Pairs that were run, disturbed or not."""
        return min(len(self._runs(self.start)), len(self._runs(self.winner)))

    def _runs(self, settings: Settings) -> list[Measurement]:
        """The confirming runs that were measured."""
        confirming = [one for one in self.tried if one.trial.purpose == "confirm" and one.trial.settings == settings]
        return [one.measurement for one in confirming if rates_of([one.measurement], self.results.tokens)]

    def _steady(self, settings: Settings, run: Measurement) -> bool:
        result = self.results.get(settings)
        return result is None or run in undisturbed(result.runs)
