"""The comparison of start and winner, run alternately in pairs, with its confidence interval."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Sequence

from msgspec import Struct

from tuner_tui.settings.model import Settings
from tuner_tui.tuning.search.results import SearchContext, job_rate, steady_runs, throughputs
from tuner_tui.tuning.trial import Measurement, Trial

MIN_PAIRS = 2
MAX_PAIRS = 4
MAX_REPLACED = 2
"""Number of pairs disturbed by other programs that are run anew."""
MIN_SIGMA = 0.003
"""Minimum standard deviation between runs, as a share, however steady each of them was."""
MAX_PAIR_NOISE = 2.0
"""Upper bound on the noise of a pair, relative to that of all runs, which few runs estimate badly."""
NOISE_STEPS = 20
"""Number of noise levels between the two bounds, evenly spaced on a logarithmic scale."""
TAIL = 0.025
"""Probability outside the 95 % interval on either side."""
BISECTIONS = 40
_NORMAL = statistics.NormalDist()
Pair = tuple[bool, tuple[Measurement, Measurement]]
"""Whether the start ran first, and the runs of start and winner."""


class PairedTest(Struct, frozen=True):
    """Compares the start of `context` with `winner` by their confirming runs.

    The order alternates from pair to pair, so that a machine that steadily slows down or speeds up favours neither.
    """

    context: SearchContext
    winner: Settings

    @property
    def pairs(self) -> list[tuple[Measurement, Measurement]]:
        """The runs of start and winner in each pair; disturbed pairs are taken only if there are no others."""
        return [pair for _, pair in self._counted]

    @property
    def ratios(self) -> list[float]:
        """The winner's speed over the start's for each of `pairs`: over the whole job if its time counts.

        The overhead is that of all runs of the same settings, which is less noisy than a single one.
        """
        results = self.context.results
        compared = results.get(self.context.start), results.get(self.winner)
        ratios = []
        for pair in self.pairs:
            before, after = (
                rate if result is None else result.rate_of(rate)
                for rate, result in zip(throughputs(pair, results.tokens), compared, strict=True)
            )
            ratios.append(after / before)
        return ratios

    @property
    def in_both_orders(self) -> bool:
        """Whether `pairs` has one that began with the start and one that began with the winner."""
        return _has_both_orders(self._counted)

    @property
    def _counted(self) -> list[Pair]:
        start = self.context.start
        pairs = [pair for pair in self._all_pairs if not self._is_disturbed(pair[1])] or self._all_pairs
        steady = [
            pair for pair in pairs if self._is_steady(start, pair[1][0]) and self._is_steady(self.winner, pair[1][1])
        ]
        # Unsteady pairs widen the interval; without them, all that is left may be of one order.
        return steady if _has_both_orders(steady) or (steady and self._pairs_run < self._max_pairs) else pairs

    @property
    def interval(self) -> tuple[float, float, float] | None:
        """The mean ratio and the ends of its 95 % confidence interval; None before the first pair.

        Slow drift affects both runs of a pair and cancels in their ratio, so the noise of pairs may be far below that
        of all runs. It is taken to lie between the spread within runs, which pairing cannot remove, and
        `MAX_PAIR_NOISE` times the noise between all runs.
        """
        # Ratios are compared by their logarithms, where twice as fast and half as fast are equally far from equal.
        logs = [math.log(ratio) for ratio in self.ratios]
        if not logs:
            return None
        mean = statistics.fmean(logs)
        results = self.context.results
        low = math.sqrt(2) * max(MIN_SIGMA, results.sigma_within)
        half = confidence_half_width(logs, low, max(low, math.sqrt(2) * MAX_PAIR_NOISE * results.sigma))
        return math.exp(mean), math.exp(mean - half), math.exp(mean + half)

    @property
    def disturbed(self) -> bool:
        """Whether other programs kept the machine busy in every pair, so that nothing can be confirmed."""
        return any(map(self._is_disturbed, self.pairs))

    @property
    def decided(self) -> bool:
        """Whether no more pairs are needed: the winner is faster or not, the maximum is reached, or the machine is
        too busy."""
        if self._pairs_run >= self._max_pairs or (self._pairs_run >= MIN_PAIRS and self.disturbed):
            return True
        if len(self.ratios) < MIN_PAIRS or not self.in_both_orders:
            return False
        ratio, _, _ = self.interval or (1.0, 1.0, 1.0)
        return self.confirmed or ratio <= 1

    @property
    def confirmed(self) -> bool:
        """Whether the winner is faster: by at least `MIN_PAIRS` undisturbed pairs in both orders, whose whole interval
        lies above 1 and above the noise of the start itself."""
        if len(self.ratios) < MIN_PAIRS or not self.in_both_orders or self.interval is None or self.disturbed:
            return False
        return self.interval[1] > 1 + self.start_noise

    @property
    def start_noise(self) -> float:
        """Standard deviation of the start's confirming runs as a share of their speed; 0 if it ran once.

        Unlike the noise of the search it is not pulled towards a prior, so that it shows a busy machine, and each run
        has its own overhead.
        """
        results = self.context.results
        start = results.get(self.context.start)
        runs = [run for trial, run in self._runs if trial.settings == self.context.start]
        rates = [
            job_rate(rate, run.overhead_s, None if start is None else start.amount)
            for run, rate in zip(runs, throughputs(runs, results.tokens), strict=True)
        ]
        return statistics.stdev(map(math.log, rates)) if len(rates) > 1 else 0.0

    def next(self, gpu: str | None = None, under_way: Sequence[Trial] = ()) -> Settings | None:
        """Return the settings to run next on `gpu` while `under_way` run on others; None if no pair is to be begun.

        Both runs of a pair are made on the same GPU: GPUs of one kind differ by some percent, as much as the gains
        that are to be confirmed.
        """
        ran = [trial for trial, _ in self._runs] + [trial for trial in under_way if trial.purpose == "confirm"]
        counts = Counter((trial.gpu, trial.settings == self.context.start) for trial in ran)
        starts, winners = counts[gpu, True], counts[gpu, False]
        if starts != winners:
            return self.context.start if starts < winners else self.winner
        begun = sum(max(counts[gpu, True], counts[gpu, False]) for gpu in {trial.gpu for trial in ran})
        if gpu is not None and begun >= self._max_pairs:
            return None
        start_first = begun % 2 == 0
        if begun == self._pairs_run and self.pairs and not self.in_both_orders:
            start_first = not self._counted[0][0]
        return self.context.start if start_first else self.winner

    @property
    def _pairs_run(self) -> int:
        return len(self._all_pairs)

    @property
    def _max_pairs(self) -> int:
        disturbed = sum(self._is_disturbed(pair) for _, pair in self._all_pairs)
        return MAX_PAIRS + min(disturbed, MAX_REPLACED)

    @property
    def _all_pairs(self) -> list[Pair]:
        pairs: list[Pair] = []
        for gpu in dict.fromkeys(trial.gpu for trial, _ in self._runs):
            runs = [
                (position, trial.settings, run) for position, (trial, run) in enumerate(self._runs) if trial.gpu == gpu
            ]
            starts = [(position, run) for position, settings, run in runs if settings == self.context.start]
            winners = [(position, run) for position, settings, run in runs if settings == self.winner]
            pairs += [(a < b, (before, after)) for (a, before), (b, after) in zip(starts, winners, strict=False)]
        return pairs

    @property
    def _runs(self) -> list[tuple[Trial, Measurement]]:
        """The confirming runs of start and winner that were measured."""
        return [
            (completed.trial, completed.measurement)
            for completed in self.context.trials
            if completed.trial.purpose == "confirm"
            and completed.trial.settings in (self.context.start, self.winner)
            and throughputs([completed.measurement], self.context.results.tokens)
        ]

    def _is_disturbed(self, pair: tuple[Measurement, Measurement]) -> bool:
        return any(map(self.context.space.quiet.is_disturbed, pair))

    def _is_steady(self, settings: Settings, run: Measurement) -> bool:
        result = self.context.results.get(settings)
        return result is None or run in steady_runs(result.runs)


def _has_both_orders(pairs: Sequence[Pair]) -> bool:
    return len({start_first for start_first, _ in pairs}) == 2


def confidence_half_width(differences: Sequence[float], low: float, high: float) -> float:
    """Return half the width of the 95 % confidence interval of the mean of `differences`.

    The differences have the same noise, whose standard deviation is only known to lie between `low` and `high` (both
    above 0). With so few differences, a t-distribution would give a useless width. Instead, the noise gets a
    log-uniform prior between the bounds, weighted by how well each level explains the scatter of the differences; the
    interval is that of the mixture of normal distributions, found by bisection.
    """
    levels = [low * (high / low) ** (step / (NOISE_STEPS - 1)) for step in range(NOISE_STEPS)] if low < high else [low]
    # The likelihood of the scatter of the differences at each noise level, normalized to 1.
    mean, freedom = statistics.fmean(differences), len(differences) - 1
    squares = sum((difference - mean) ** 2 for difference in differences)
    logs = [-freedom * math.log(level) - squares / (2 * level**2) for level in levels]
    likelihoods = [math.exp(log - max(logs)) for log in logs]
    weights = [likelihood / sum(likelihoods) for likelihood in likelihoods]
    root = math.sqrt(len(differences))
    inside, outside = 0.0, 10 * levels[-1] / root
    for _ in range(BISECTIONS):
        middle = (inside + outside) / 2
        tail = sum(w * _NORMAL.cdf(-middle * root / level) for w, level in zip(weights, levels, strict=True))
        inside, outside = (middle, outside) if tail > TAIL else (inside, middle)
    return outside
