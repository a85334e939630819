"""Trials grouped by settings: throughput, memory, the noise between runs, and the best settings."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from operator import attrgetter

from msgspec import Struct

from tuner_tui.memory.fit import PeakPoint
from tuner_tui.settings.model import FIELDS, Settings
from tuner_tui.tuning.search.space import SearchSpace
from tuner_tui.tuning.trial import CompletedTrial, Measurement, StepBreakdown, WholeJob

MIN_NOISE = 0.01
"""Minimum noise, as a share of throughput: few runs are compared, so their agreement may be chance."""
DEFAULT_SIGMA = 0.01
"""Standard deviation between runs of the same settings, as a share, before any repeat."""
DEFAULT_SIGMA_WEIGHT = 2.0
"""Weight of the prior (the default, or the spread within runs) in repeats."""
CONFIDENCE = 1.3
"""Standard deviations by which two single runs must differ (one-sided, 90 %)."""
MAX_STEADY_SPREAD = 0.1
"""Spread above which a run counts as disturbed, such as by a cold cache or another program,"""
MAX_SPREAD_RATIO = 5.0
"""if it is also this many times the spread of the steadiest run of the same settings."""
MAX_SLOWDOWN = 0.12
"""Share by which a run may fall behind equal ones that agree: what slows one alone down more lies outside of it."""
SAFE_MEMORY_SHARE = 0.75
"""A training that takes at most this share of the limit does not run out of memory on its own."""
MIN_MEMORY_SAVING = 0.03
"""Of two equally fast settings, the one that takes this much less memory is better."""
MEMORY_NEUTRAL = frozenset({
    "per_device_train_batch_size", "gradient_accumulation_steps", "train_sampling_strategy", "optim",
    "dataloader_num_workers", "dataloader_prefetch_factor", "dataloader_pin_memory",
    "dataloader_persistent_workers", "tf32",
})  # fmt: skip
"""Fields that do not change how peak memory depends on the micro batch; all others do."""
FUSED = "_fused"
_memory_key = attrgetter(*(name for name in FIELDS if name not in MEMORY_NEUTRAL))


class SettingsResult(Struct, frozen=True, dict=True):
    """All runs of the same settings, oldest first, without aborted ones. If they differ, the worst counts.

    `amount` is the tokens (else samples) of the whole job, if its time is what counts; None if steady throughput does.
    """

    settings: Settings
    runs: tuple[Measurement, ...]
    tokens: bool = True
    amount: float | None = None

    @property
    def micro(self) -> int:
        return self.settings.per_device_train_batch_size

    @cached_property
    def measured(self) -> bool:
        """Whether every run was measured."""
        return all(run.outcome == "measured" for run in self.runs) and self.throughput is not None

    @cached_property
    def out_of_memory(self) -> bool:
        """Whether any run ran out of memory."""
        return any(run.outcome == "out-of-memory" for run in self.runs)

    @cached_property
    def rates(self) -> tuple[float, ...]:
        """The throughput of each measured run; disturbed runs count only if there are no others."""
        rates = throughputs(steady_runs(self.runs), self.tokens)
        agreeing = [rate for rate in rates if rate >= max(rates) * (1 - MAX_SLOWDOWN)]
        return tuple(agreeing if len(agreeing) > 1 else rates)

    @cached_property
    def throughput(self) -> float | None:
        """Geometric mean of `rates`; None if nothing was measured."""
        return statistics.geometric_mean(self.rates) if self.rates else None

    @cached_property
    def overhead_s(self) -> float | None:
        """Start-up, compilation and the first evaluation: the median, or the shorter of two, as a first run may find
        cold caches."""
        overheads = [run.overhead_s for run in self.runs if run.outcome == "measured" and run.overhead_s is not None]
        return statistics.median_low(overheads) if overheads else None

    @cached_property
    def speed(self) -> float | None:
        """What results are compared by: the throughput, averaged over the whole job if its time counts."""
        return None if self.throughput is None else self.rate_of(self.throughput)

    def rate_of(self, throughput: float) -> float:
        """Return `throughput` with these settings averaged over the whole job, if its time counts."""
        return job_rate(throughput, self.overhead_s, self.amount)

    def gain(self, bound: float) -> float:
        """Return the gain in `speed` from a gain in throughput of `bound`, as a share, with the same overhead."""
        if not self.throughput or not self.speed:
            return bound
        return self.rate_of(self.throughput * (1 + bound)) / self.speed - 1

    @cached_property
    def peak_bytes(self) -> int | None:
        """The highest peak of all runs."""
        return max((run.peak_bytes for run in self.runs if run.peak_bytes is not None), default=None)

    @property
    def peak_point(self) -> PeakPoint | None:
        """The highest peaks, and the lowest bound of what is resident, for the memory model; None without a peak."""
        batch_peaks = (run.batch_peak_bytes for run in self.runs if run.batch_peak_bytes is not None)
        resident = (run.resident_bytes for run in self.runs if run.resident_bytes is not None)
        if self.peak_bytes is None:
            return None
        return PeakPoint(self.micro, self.peak_bytes, max(batch_peaks, default=None), min(resident, default=None))

    @property
    def breakdown(self) -> StepBreakdown:
        """Where the time of a step went in the last measured run."""
        return next((run.breakdown for run in reversed(self.runs) if run.outcome == "measured"), StepBreakdown())

    @property
    def last(self) -> Measurement:
        return self.runs[-1]


class SearchResults(Struct, frozen=True, dict=True):
    """The results of a search, in the order in which their settings were first tried.

    `limit_bytes` is the peak memory that leaves the reserve free. Throughput counts tokens if `tokens`, else samples.
    `job` is the whole training if its time is compared, None if throughput is.
    """

    results: tuple[SettingsResult, ...]
    limit_bytes: float | None = None
    tokens: bool = True
    job: WholeJob | None = None

    @classmethod
    def of(
        cls, trials: Iterable[CompletedTrial], limit_bytes: float | None, job: WholeJob | None = None
    ) -> SearchResults:
        """Group `trials` by settings. Throughput counts tokens if every measured run counted them.

        The time of the whole `job` is compared if the overhead of every measured run is known, else throughput.
        """
        kept = [completed for completed in trials if completed.measurement.outcome != "aborted"]
        measured = [completed.measurement for completed in kept if completed.measurement.outcome == "measured"]
        tokens = all(run.tokens_s for run in measured)
        amount = None if job is None else job.tokens if tokens else job.samples
        if amount is None or any(run.overhead_s is None for run in measured):
            job = amount = None
        runs: dict[Settings, list[Measurement]] = {}
        for completed in kept:
            runs.setdefault(completed.trial.settings, []).append(completed.measurement)
        results = {
            settings: SettingsResult(settings, without_transient_failures(measurements, limit_bytes), tokens, amount)
            for settings, measurements in runs.items()
        }
        return cls(tuple(results.values()), limit_bytes, tokens, job)

    @cached_property
    def _by_settings(self) -> dict[Settings, SettingsResult]:
        return {result.settings: result for result in self.results}

    def get(self, settings: Settings) -> SettingsResult | None:
        return self._by_settings.get(settings)

    @cached_property
    def sigma(self) -> float:
        """Standard deviation between runs of the same settings, as a share of throughput."""
        # A pooled variance of all repeats. With two or three of them alone it would often be near zero by chance, so
        # the spread within runs counts like `DEFAULT_SIGMA_WEIGHT` further degrees of freedom.
        groups = [[math.log(rate) for rate in result.rates] for result in self.results if len(result.rates) > 1]
        squares = sum(sum((rate - statistics.fmean(group)) ** 2 for rate in group) for group in groups)
        free = sum(len(group) - 1 for group in groups)
        return math.sqrt((DEFAULT_SIGMA_WEIGHT * self.sigma_within**2 + squares) / (DEFAULT_SIGMA_WEIGHT + free))

    @property
    def sigma_within(self) -> float:
        """The same estimated from the spread within runs (median); `DEFAULT_SIGMA` if unknown."""
        spreads = [run.spread / 1.96 for result in self.results for run in result.runs if run.spread is not None]
        return statistics.median(spreads) if spreads else DEFAULT_SIGMA

    @cached_property
    def noise(self) -> float:
        """Share by which the throughput of two single runs must differ to be significant."""
        return max(MIN_NOISE, CONFIDENCE * math.sqrt(2) * self.sigma)

    def fits(self, result: SettingsResult) -> bool:
        """Return whether the settings ran and left the reserve free, and so did all smaller micro batches.

        The free memory of a shared GPU varies, so a size that failed once does not fit.
        """
        if not result.measured or self.exceeds_memory(result):
            return False
        line = (tried for tried in self.on_line(result.settings) if tried is not result)
        return not any(tried.micro <= result.micro and self.exceeds_memory(tried) for tried in line)

    def on_line(self, settings: Settings) -> Iterator[SettingsResult]:
        """The results whose peak memory depends on the micro batch in the same way as that of `settings`."""
        return (result for result in self.results if same_memory_line(result.settings, settings))

    def exceeds_memory(self, result: SettingsResult) -> bool:
        """Return whether the settings ran out of memory or did not leave the reserve free."""
        if result.out_of_memory:
            return True
        peak = result.peak_bytes
        return self.limit_bytes is not None and peak is not None and peak > self.limit_bytes

    def fastest_fitting(self, among: Iterable[SettingsResult]) -> SettingsResult | None:
        """Return the fastest of some results that fits, or None, whatever the noise."""
        fitting = (result for result in among if self.fits(result))
        return max(fitting, key=lambda result: result.speed or 0.0, default=None)

    @cached_property
    def best(self) -> SettingsResult | None:
        """The fastest result that fits. Among equally fast ones, the earlier or the one that takes less memory."""
        # In the order of the trials, so that a later result has to beat an earlier one by more than the noise:
        # otherwise each repeat of equally fast settings could make another one the best, and the search would not end.
        noise, best = self.noise, None
        for result in self.results:
            if self.fits(result) and (best is None or is_better(result, best, noise)):
                best = result
        return best


def without_transient_failures(runs: Sequence[Measurement], limit_bytes: float | None) -> tuple[Measurement, ...]:
    """Return the runs of the same settings without transient failures.

    Transient is a single failure if other runs were measured, and a single out-of-memory error if their peaks were far
    below the limit.
    """
    peaks = [run.peak_bytes for run in runs if run.outcome == "measured"]
    if not peaks:
        return tuple(runs)
    failed = [run for run in runs if run.outcome in ("failed", "no-step")]
    transient = failed if len(failed) == 1 else []
    short = [run for run in runs if run.outcome == "out-of-memory"]
    measured = [peak for peak in peaks if peak is not None]
    if len(short) == 1 and limit_bytes is not None and measured and max(measured) <= SAFE_MEMORY_SHARE * limit_bytes:
        transient = [*transient, *short]
    return tuple(run for run in runs if run not in transient)


def steady_runs(runs: Iterable[Measurement]) -> list[Measurement]:
    """Return the runs of the same settings without disturbed ones, whose steps spread far more than others'."""
    measurements = list(runs)
    steadiest = min((run.spread for run in measurements if run.spread is not None), default=0.0)
    bound = max(MAX_STEADY_SPREAD, MAX_SPREAD_RATIO * steadiest)
    return [run for run in measurements if run.spread is None or run.spread <= bound]


def throughputs(runs: Iterable[Measurement], tokens: bool) -> list[float]:
    """Return tokens (else samples) per second of the measured runs."""
    rates = [run.tokens_s if tokens else run.samples_s for run in runs if run.outcome == "measured"]
    return [rate for rate in rates if rate]


def job_rate(throughput: float, overhead_s: float | None, amount: float | None) -> float:
    """Return the throughput averaged over a job of `amount` tokens or samples; the throughput itself without one."""
    if amount is None or overhead_s is None:
        return throughput
    return amount / (overhead_s + amount / throughput)


def is_better(result: SettingsResult, than: SettingsResult, noise: float) -> bool:
    """Return whether `result` is faster by more than the noise, or as fast with less memory."""
    ratio = (result.speed or 0.0) / (than.speed or 1.0)
    if ratio > 1 + significant_share(result, than, noise):
        return True
    if ratio < 1 or result.peak_bytes is None or than.peak_bytes is None:
        return False
    return result.peak_bytes < than.peak_bytes * (1 - MIN_MEMORY_SAVING)


def significant_share(result: SettingsResult, than: SettingsResult, noise: float) -> float:
    """Return by which share two results must differ to be significant: `noise` if each was run once."""
    return noise * math.sqrt((1 / len(result.rates) + 1 / len(than.rates)) / 2)


def same_memory_line(left: Settings, right: Settings) -> bool:
    """Return whether the peak memory of two settings depends on the micro batch in the same way.

    A fused optimizer changes only the peak of the optimizer step.
    """
    return _memory_key(left) == _memory_key(right) and left.optim.removesuffix(FUSED) == right.optim.removesuffix(FUSED)


class SearchContext(Struct, frozen=True, dict=True):
    """A search from the settings `requested` within `space`, after `trials`."""

    requested: Settings
    space: SearchSpace
    trials: tuple[CompletedTrial, ...] = ()

    @cached_property
    def start(self) -> Settings:
        """The requested settings, with a smaller micro batch if the dataset cannot fill the requested one."""
        return self.space.within_data(self.requested)

    @cached_property
    def results(self) -> SearchResults:
        """The results of all trials whose micro batch the dataset can fill (its size is learned from the first one)."""
        trials = (
            completed
            for completed in self.trials
            if completed.trial.settings.per_device_train_batch_size <= self.space.max_micro
        )
        return SearchResults.of(trials, self.space.limit_bytes, self.space.whole_job)

    @property
    def best(self) -> SettingsResult | None:
        """The fastest settings that fit; None if none ran."""
        return self.results.best

    @property
    def start_result(self) -> SettingsResult | None:
        """The result of the start; None before its first trial."""
        return self.results.get(self.start)
