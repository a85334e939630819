"""The comparison of start and winner, run alternately in pairs, with its confidence interval."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from tuner_tui.settings.model import Settings
from tuner_tui.tuning.search.results import SearchResults, steady_runs, throughputs
from tuner_tui.tuning.trial import CompletedTrial, Measurement

NOISE_STEPS = 20
"""Sizes of noise between the bounds, evenly spaced in their logarithm, that stand for all of them."""
TAIL = 0.025
"""Of the 95 % interval, on either side."""
BISECTIONS = 40
_NORMAL = statistics.NormalDist()


def confidence_half_width(differences: Sequence[float], least: float, most: float) -> float:
    """Half the 95 % interval of the mean of `differences`, each with the same noise of unknown size.

    The noise is a standard deviation between `least` and `most` (both above 0). Before the differences are looked at,
    every size between is believed alike on a scale of ratios; how far they agree weighs the sizes, and the interval is
    that of all of them together. Differences that agree well so narrow it, as far as their number bears it out, and
    what is known of the noise from elsewhere keeps it from the width that a t-distribution of one degree of freedom
    would give. One difference says nothing of its noise.
    """
    sizes = (
        [least * (most / least) ** (step / (NOISE_STEPS - 1)) for step in range(NOISE_STEPS)]
        if least < most
        else [least]
    )
    weights = _weights(differences, sizes)
    root = math.sqrt(len(differences))
    low, high = 0.0, 10 * sizes[-1] / root
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        beyond = sum(weight * _NORMAL.cdf(-middle * root / size) for weight, size in zip(weights, sizes, strict=True))
        low, high = (middle, high) if beyond > TAIL else (low, middle)
    return high


def _weights(differences: Sequence[float], sizes: Sequence[float]) -> list[float]:
    """How likely each size of noise makes it that the differences lie as far apart as they do; together 1."""
    mean, free = statistics.fmean(differences), len(differences) - 1
    squares = sum((one - mean) ** 2 for one in differences)
    logs = [-free * math.log(size) - squares / (2 * size**2) for size in sizes]
    likely = [math.exp(one - max(logs)) for one in logs]
    return [one / sum(likely) for one in likely]


MIN_PAIRS = 2
MAX_PAIRS = 4
MIN_SIGMA = 0.003
"""No two runs are believed to be nearer to each other than this share, however steady each of them was."""
MAX_PAIR_NOISE = 2.0
"""The noise of a pair may be this many times that of all runs: few runs tell it."""


@dataclass(frozen=True, slots=True)
class PairedTest:
    """The confirming runs of `start` and `winner`, and the noise known from all runs.

    The order within a pair turns with every pair: a box that grows steadily slower or faster favours nobody.
    """

    start: Settings
    winner: Settings
    tried: tuple[CompletedTrial, ...]
    results: SearchResults

    @property
    def ratios(self) -> list[float]:
        """The winner's throughput over the start's, pair by pair; of disturbed pairs only where there is no other."""
        pairs = list(zip(self._runs(self.start), self._runs(self.winner), strict=False))
        steady = [pair for pair in pairs if self._steady(self.start, pair[0]) and self._steady(self.winner, pair[1])]
        rates = [throughputs(pair, self.results.tokens) for pair in steady or pairs]
        return [after / before for before, after in rates]

    @property
    def interval(self) -> tuple[float, float, float] | None:
        """The ratio, and its 95 % interval's ends; None before the first pair.

        It rests on the ratios of the pairs, and for their noise on how far they agree. What drifts from minute to
        minute is shared by a pair and is not in its ratio, so that the noise of pairs may be far below that of all
        runs of the tuning. It is taken to lie between what the runs spread by within themselves, which no pairing
        takes out, and `MAX_PAIR_NOISE` times what runs of one settings differ by over the whole tuning.
        """
        ratios = [math.log(ratio) for ratio in self.ratios]
        if not ratios:
            return None
        mean = statistics.fmean(ratios)
        least = math.sqrt(2) * max(MIN_SIGMA, self.results.sigma_within)
        half = confidence_half_width(ratios, least, max(least, math.sqrt(2) * MAX_PAIR_NOISE * self.results.sigma))
        return math.exp(mean), math.exp(mean - half), math.exp(mean + half)

    @property
    def decided(self) -> bool:
        """Whether further pairs would tell no more, or the winner turned out to be no faster."""
        if len(self.ratios) < MIN_PAIRS and self._taken < MAX_PAIRS:
            return False
        ratio, low, _ = self.interval or (1.0, 1.0, 1.0)
        return self._taken >= MAX_PAIRS or low > 1 or ratio <= 1

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
        return [one.measurement for one in confirming if throughputs([one.measurement], self.results.tokens)]

    def _steady(self, settings: Settings, run: Measurement) -> bool:
        result = self.results.get(settings)
        return result is None or run in steady_runs(result.runs)
