"""Trials grouped by settings: throughput, memory, the noise between runs, and the best settings."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from operator import attrgetter

from tuner_tui.settings.model import Settings
from tuner_tui.tuning.trial import CompletedTrial, Measurement, StepBreakdown

MIN_NOISE = 0.01
"""No difference below this share is believed, however quiet the box seemed: few runs were compared."""
DEFAULT_SIGMA = 0.01
"""Standard deviation between two runs of one settings where nothing was repeated yet."""
DEFAULT_SIGMA_WEIGHT = 2.0
"""How many repetitions that usual figure, or the spread within the runs, is worth."""
CONFIDENCE = 1.3
"""A difference of two single runs is believed above this many of its standard deviations: nine in ten."""
MAX_STEADY_SPREAD = 0.1
"""A run whose own steps spread by more than this share was disturbed: by a cold cache, by another program."""
MAX_SPREAD_RATIO = 5.0
"""And by so many times more than the steadiest run of the same settings."""
SAFE_MEMORY_SHARE = 0.75
"""What takes at most this share of the memory there is does not run out of it by itself."""
MIN_MEMORY_SAVING = 0.03
"""As fast and this share smaller is better."""
MEMORY_NEUTRAL = frozenset(
    {
        "per_device_train_batch_size", "gradient_accumulation_steps", "train_sampling_strategy", "optim",
        "dataloader_num_workers", "dataloader_prefetch_factor", "dataloader_pin_memory",
        "dataloader_persistent_workers", "tf32",
    }
)  # fmt: skip
"""Knobs that leave the line of memory against micro batch where it is; any other moves it."""
FUSED = "_fused"
_memory_key = attrgetter(*(name for name in Settings.model_fields if name not in MEMORY_NEUTRAL))


@dataclass(frozen=True)
class SettingsResult:
    """All runs of one settings, oldest first, aborted ones left out. Where they differ, the worse is trusted."""

    settings: Settings
    runs: tuple[Measurement, ...]
    tokens: bool = True

    @cached_property
    def measured(self) -> bool:
        """Whether it ran, each time."""
        return all(run.outcome == "measured" for run in self.runs) and self.throughput is not None

    @cached_property
    def out_of_memory(self) -> bool:
        """Whether it ran out of memory, once at least."""
        return any(run.outcome == "out-of-memory" for run in self.runs)

    @cached_property
    def rates(self) -> tuple[float, ...]:
        """The throughput of each run that was measured; of one that was disturbed only where no other is left."""
        return tuple(throughputs(steady_runs(self.runs), self.tokens))

    @cached_property
    def throughput(self) -> float | None:
        """The geometric mean of its runs."""
        return statistics.geometric_mean(self.rates) if self.rates else None

    @cached_property
    def peak_bytes(self) -> int | None:
        """The highest peak of its runs."""
        return max((run.peak_bytes for run in self.runs if run.peak_bytes is not None), default=None)

    @property
    def batch_peak_bytes(self) -> int | None:
        """The highest peak of forward and backward alone."""
        return max((run.batch_peak_bytes for run in self.runs if run.batch_peak_bytes is not None), default=None)

    @property
    def line_bytes(self) -> int | None:
        """What the micro batch is answerable for, where that is known apart; else the peak."""
        return self.peak_bytes if self.batch_peak_bytes is None else self.batch_peak_bytes

    @property
    def breakdown(self) -> StepBreakdown:
        """Where the time of a step went in the last run that was measured."""
        return next((run.breakdown for run in reversed(self.runs) if run.outcome == "measured"), StepBreakdown())

    @property
    def last(self) -> Measurement:
        """The last run."""
        return self.runs[-1]


@dataclass(frozen=True)
class SearchResults:
    """The results in the order in which their settings were first tried, and what a trusted one may take.

    `tokens` says whether throughput counts tokens, else samples.
    """

    results: tuple[SettingsResult, ...]
    limit_bytes: float | None = None
    tokens: bool = True
    _by_settings: dict[Settings, SettingsResult] = field(default_factory=dict, compare=False)

    @classmethod
    def of(cls, tried: Iterable[CompletedTrial], limit_bytes: float | None) -> SearchResults:
        """The results of all trials. Tokens are compared where every measured run counted them, else samples."""
        kept = [one for one in tried if one.measurement.outcome != "aborted"]
        tokens = all(one.measurement.tokens_s for one in kept if one.measurement.outcome == "measured")
        runs: dict[Settings, list[Measurement]] = {}
        for one in kept:
            runs.setdefault(one.trial.settings, []).append(one.measurement)
        results = {
            one: SettingsResult(one, without_transient_failures(found, limit_bytes), tokens)
            for one, found in runs.items()
        }
        return cls(tuple(results.values()), limit_bytes, tokens, results)

    def get(self, settings: Settings) -> SettingsResult | None:
        """The result of these settings, None where they were not tried."""
        return self._by_settings.get(settings)

    @cached_property
    def sigma(self) -> float:
        """Standard deviation between two runs of one settings, as a share of throughput."""
        groups = [[math.log(rate) for rate in one.rates] for one in self.results if len(one.rates) > 1]
        squares = sum(sum((rate - statistics.fmean(group)) ** 2 for rate in group) for group in groups)
        free = sum(len(group) - 1 for group in groups)
        return math.sqrt((DEFAULT_SIGMA_WEIGHT * self.sigma_within**2 + squares) / (DEFAULT_SIGMA_WEIGHT + free))

    @property
    def sigma_within(self) -> float:
        """The part of it that shows within a run, as the usual run spreads; `DEFAULT_SIGMA` where none told."""
        spreads = [run.spread / 1.96 for one in self.results for run in one.runs if run.spread is not None]
        return statistics.median(spreads) if spreads else DEFAULT_SIGMA

    @cached_property
    def noise(self) -> float:
        """The share by which two single runs must differ to be told apart."""
        return max(MIN_NOISE, CONFIDENCE * math.sqrt(2) * self.sigma)

    def trusted(self, result: SettingsResult) -> bool:
        """Whether it ran, left the reserve free, and nothing smaller failed to.

        Memory of a card that is shared moves: a size that fitted once and did not another time does not fit.
        """
        if not result.measured or self.over(result):
            return False
        micro = result.settings.per_device_train_batch_size
        return not any(
            other.settings.per_device_train_batch_size <= micro and same_memory_line(other.settings, result.settings)
            for other in self.results
            if other is not result and self.over(other)
        )

    def over(self, result: SettingsResult) -> bool:
        """Whether it ran out of memory or left too thin a reserve."""
        if result.out_of_memory:
            return True
        peak = result.peak_bytes
        return self.limit_bytes is not None and peak is not None and peak > self.limit_bytes

    @cached_property
    def best(self) -> SettingsResult | None:
        """The fastest trusted result; of those that cannot be told apart, the earlier or the one that takes less."""
        noise, best = self.noise, None
        for result in self.results:
            if self.trusted(result) and (best is None or is_better(result, best, noise)):
                best = result
        return best


def without_transient_failures(runs: Sequence[Measurement], limit_bytes: float | None) -> tuple[Measurement, ...]:
    """The runs of one settings without what passed: one failure where others were measured, and one run out of memory
    where others stayed far below the limit. What happens twice stands.
    """
    peaks = [run.peak_bytes for run in runs if run.outcome == "measured"]
    if not peaks:
        return tuple(runs)
    failed = [run for run in runs if run.outcome in ("failed", "no-step")]
    passed = failed if len(failed) == 1 else []
    short = [run for run in runs if run.outcome == "out-of-memory"]
    known = [peak for peak in peaks if peak is not None]
    if len(short) == 1 and limit_bytes is not None and known and max(known) <= SAFE_MEMORY_SHARE * limit_bytes:
        passed = [*passed, *short]
    return tuple(run for run in runs if run not in passed)


def steady_runs(runs: Iterable[Measurement]) -> list[Measurement]:
    """The runs of one settings that are worth comparing: a disturbed one says little beside a steady one."""
    found = list(runs)
    steadiest = min((run.spread for run in found if run.spread is not None), default=0.0)
    bound = max(MAX_STEADY_SPREAD, MAX_SPREAD_RATIO * steadiest)
    return [run for run in found if run.spread is None or run.spread <= bound]


def throughputs(runs: Iterable[Measurement], tokens: bool) -> list[float]:
    """Tokens (else samples) a second of the runs that were measured."""
    found = [run.tokens_s if tokens else run.samples_s for run in runs if run.outcome == "measured"]
    return [rate for rate in found if rate]


def is_better(result: SettingsResult, than: SettingsResult, noise: float) -> bool:
    """Whether `result` is faster by more than the noise, or as fast and smaller."""
    ratio = (result.throughput or 0.0) / (than.throughput or 1.0)
    if ratio > 1 + min_difference(result, than, noise):
        return True
    if ratio < 1 or result.peak_bytes is None or than.peak_bytes is None:
        return False
    return result.peak_bytes < than.peak_bytes * (1 - MIN_MEMORY_SAVING)


def min_difference(one: SettingsResult, other: SettingsResult, noise: float) -> float:
    """The share by which two results must differ to be told apart: `noise` where each was run once."""
    return noise * math.sqrt((1 / len(one.rates) + 1 / len(other.rates)) / 2)


def same_memory_line(one: Settings, other: Settings) -> bool:
    """Whether two settings lie on one line of memory against micro batch.

    A fused optimizer moves only what the optimizer's own step takes.
    """
    return _memory_key(one) == _memory_key(other) and one.optim.removesuffix(FUSED) == other.optim.removesuffix(FUSED)
