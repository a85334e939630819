"""Which micro batch to try next with given knobs, and the most it can gain."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from operator import attrgetter

from tuner_tui.memory.fit import PeakModel, PeakPoint, fit
from tuner_tui.settings.fields import Value
from tuner_tui.settings.model import Settings
from tuner_tui.tuning.search import speedup_bounds
from tuner_tui.tuning.search.batch_search import BatchProbe, BatchSearch
from tuner_tui.tuning.search.results import SearchResults, SettingsResult, same_memory_line
from tuner_tui.tuning.search.space import ACCUMULATION, MICRO, SearchSpace

_KNOBS: Callable[[Settings], tuple[Value, ...]] = attrgetter(
    *(name for name in Settings.model_fields if name not in (MICRO, ACCUMULATION))
)
TYPICAL_BASE_SHARE, TYPICAL_STEP_BASE_SHARE = 0.6, 0.5
"""What is no sample's is mostly such a share of the peak of a batch that is alone known, and of an optimizer step's,
which lays some bytes a weight on top of those that stay."""
MAX_FIXED_SHARE = 0.9
"""No more than this share of a sample's time is believed to be the micro batch's, whatever two noisy runs say."""


@dataclass(frozen=True, slots=True)
class SizeOption:
    """A micro batch worth a trial; `bound` is what it can gain over the settings it is beside, None where unknown."""

    micro: int
    bound: float | None
    reason: str


@dataclass(frozen=True, slots=True)
class MicroBatchSizes:
    """The sizes tried with the knobs of `beside`, and what follows from them."""

    start: Settings
    beside: SettingsResult
    results: SearchResults
    space: SearchSpace

    @property
    def micro(self) -> int:
        """The present size."""
        return micro_batch_of(self.beside)

    @property
    def alike(self) -> list[SettingsResult]:
        """Results that differ in the micro batch alone, smallest first."""
        group = (one for one in self.results.results if knobs_of(one.settings) == knobs_of(self.beside.settings))
        return sorted(group, key=micro_batch_of)

    @property
    def allowed(self) -> tuple[int, ...] | None:
        """The sizes that hold the effective batch; None where any may be tried."""
        return self.space.micro_batches(self.start)

    @property
    def most(self) -> int:
        """The largest size that data and effective batch allow."""
        return self.space.most_micro if self.allowed is None else max(self.allowed)

    def growth_bound(self) -> float | None:
        """What endless micro batches could gain; None while no two sizes were measured that can tell.

        What a micro batch costs once is taken from other knobs where these were measured at one size only. Where the
        effective batch is free, the optimizer's step is spread over more samples as well.
        """
        once_s = self.once_s()
        if once_s is None or not self.beside.throughput:
            return None
        optimizer = 0.0 if self.space.hold_effective_batch else self.beside.breakdown.optimizer or 0.0
        share = once_s / self.micro * self.beside.throughput + optimizer
        return speedup_bounds.gain_without(min(MAX_FIXED_SHARE, share))

    def larger(self) -> SizeOption | None:
        """The next size up: what the search for the largest one proposes, else one that fitted beside other knobs."""
        search = self.search()
        if search is None or self.micro >= self.most:
            return None
        proposal = search.propose()
        known = {micro_batch_of(one) for one in self.alike}
        if proposal is not None and proposal.batch > 0 and proposal.batch not in known:
            return SizeOption(proposal.batch, self.growth_bound(), proposal.reason)
        best = search.best
        if best is None or best.batch <= self.micro or best.batch in known:
            return None
        return SizeOption(best.batch, self._bound_at(best.batch), "it fitted beside other knobs")

    def smaller(self) -> SizeOption | None:
        """Half the size, where there is no GPU and no smaller one was tried."""
        if self.space.on_gpu or self.micro == 1 or self.micro != min(micro_batch_of(one) for one in self.alike):
            return None
        sizes = self.allowed or range(1, self.micro)
        half = max((size for size in sizes if size <= self.micro // 2), default=1)
        return SizeOption(half, speedup_bounds.SMALLER_ON_CPU.value, "a smaller batch may be faster without a GPU")

    def search(self) -> BatchSearch | None:
        """The search for the largest size; None where memory has no known bound."""
        if self.space.capacity_bytes is None:
            return None
        prior, reserve, probes = self._prior(), self.space.reserve, self._probes()
        careful = any(one.out_of_memory for one in self.results.results)
        return BatchSearch(self.space.capacity_bytes, self.most, prior, reserve, probes, self.allowed, careful)

    def _probes(self) -> tuple[BatchProbe, ...]:
        """One a size, of all settings on the line of memory: the worse where they differ."""
        probes: dict[int, BatchProbe] = {}
        for one in self._line(self.beside):
            if not one.out_of_memory and one.peak_bytes is None:
                continue
            micro, peak = micro_batch_of(one), None if one.out_of_memory else one.peak_bytes
            known = probes.setdefault(micro, BatchProbe(micro, peak, one.batch_peak_bytes))
            if known.peak_bytes is not None and (peak is None or peak > known.peak_bytes):
                probes[micro] = BatchProbe(micro, peak, one.batch_peak_bytes)
        return tuple(probes.values())

    def model(self) -> PeakModel | None:
        """Memory against micro batch: measured where two sizes tell it, else another line's, scaled to this one."""
        return fit(self._points(self.beside)) or self._prior()

    def daring(self) -> SizeOption | None:
        """The next size up, where it fits if memory goes on as it mostly does, which is not proved.

        Only as long as no trial has run out of memory, so that it costs one such trial at most.
        """
        points, limit = self._points(self.beside), self.space.limit_bytes
        if not points or limit is None or any(one.out_of_memory for one in self.results.results):
            return None
        model = fit(points)
        line = _typical_model(max(points, key=lambda point: point.batch)) if model is None else model.straight()
        above = self.next_above(max(point.batch for point in points))
        if above is None or line.largest_batch(limit) < above:
            return None
        return SizeOption(above, self._bound_at(above), "it fits if memory goes on as it mostly does")

    def after(self, micro: int) -> Settings:
        """The settings with another micro batch."""
        return self.space.with_micro(self.beside.settings, self.start, micro)

    def _bound_at(self, micro: int) -> float | None:
        once_s = self.once_s()
        if once_s is None or not self.beside.throughput:
            return None
        return speedup_bounds.gain_without(max(0.0, once_s * (1 / self.micro - 1 / micro) * self.beside.throughput))

    def permitted(self, micro: int) -> int:
        """The largest size up to `micro` that may be tried; 0 where none may."""
        if self.allowed is None:
            return min(micro, self.most)
        return max((size for size in self.allowed if size <= micro), default=0)

    def next_above(self, micro: int) -> int | None:
        """The next size that may be tried, a quarter more where any may; None where there is none."""
        if self.allowed is None:
            return min(self.most, micro + max(1, micro // 4)) if micro < self.most else None
        return next((size for size in self.allowed if size > micro), None)

    def once_s(self) -> float | None:
        """Seconds that a micro batch costs once, at most; None while no two sizes were measured that can tell."""
        found = _fixed_cost_s(self.alike, self.beside, self.results.sigma)
        if found is not None:
            return found
        groups = group_by_knobs(self.results.results)
        costs = (_fixed_cost_s(group, group[-1], self.results.sigma) for group in groups)
        return max((cost for cost in costs if cost is not None), default=None)

    def _line(self, result: SettingsResult) -> Iterator[SettingsResult]:
        return (one for one in self.results.results if same_memory_line(one.settings, result.settings))

    def _points(self, result: SettingsResult) -> list[PeakPoint]:
        return [_memory_point(one) for one in self._line(result) if one.peak_bytes is not None]

    def _prior(self) -> PeakModel | None:
        """The model measured last with other knobs where there is one, as it must be to explain what these took."""
        for one in reversed(self.results.results):
            if not same_memory_line(one.settings, self.beside.settings):
                model = fit(self._points(one))
                if model is not None:
                    return self._explaining(model)
        return self.space.prior

    def _explaining(self, model: PeakModel) -> PeakModel:
        """Another line's model put through the largest size of this one.

        Either all of it grew or the part of a sample alone did: the worse is believed.
        """
        point = max(self._points(self.beside), key=lambda point: point.batch, default=None)
        if point is None:
            return model
        own = (point.line_bytes - model.base_bytes) / point.batch
        grown = model.scaled(point.line_bytes / model.peak_bytes(point.batch))
        steeper = model.steeper(own / model.slope_bytes) if own > 0 else grown
        limit = self.space.limit_bytes or 0.0
        return min(grown, steeper, key=lambda one: one.largest_batch(limit))


def _typical_model(point: PeakPoint) -> PeakModel:
    """The line that one run makes likely: weights, gradients and states take the most of it."""
    base = max(TYPICAL_BASE_SHARE * point.line_bytes, TYPICAL_STEP_BASE_SHARE * point.peak_bytes)
    own = max(0.0, point.line_bytes - base) / point.batch
    return PeakModel(point.line_bytes - own * point.batch, own, float(point.peak_bytes))


def group_by_knobs(results: Iterable[SettingsResult]) -> list[list[SettingsResult]]:
    """Measured results that differ in the micro batch alone, together, smallest first."""
    groups: dict[tuple[Value, ...], list[SettingsResult]] = {}
    for one in results:
        if one.throughput:
            groups.setdefault(knobs_of(one.settings), []).append(one)
    return [sorted(group, key=micro_batch_of) for group in groups.values()]


def fastest_fitting(group: Iterable[SettingsResult], results: SearchResults) -> SettingsResult | None:
    """The fastest of `group` that fits; None where none does."""
    fit = (one for one in group if results.trusted(one))
    return max(fit, key=lambda one: one.throughput or 0.0, default=None)


def micro_batch_of(result: SettingsResult) -> int:
    """Its micro batch."""
    return result.settings.per_device_train_batch_size


def knobs_of(settings: Settings) -> tuple[Value, ...]:
    """All values but the micro batch and its accumulation."""
    return _KNOBS(settings)


def _fixed_cost_s(alike: list[SettingsResult], beside: SettingsResult, sigma: float) -> float | None:
    """Seconds that a micro batch costs beside its samples: at most, runs being `sigma` apart by chance.

    From the present size and the one nearest to it; None where only one was measured.
    """
    micro = micro_batch_of(beside)
    others = [one for one in alike if one.throughput and micro_batch_of(one) != micro]
    if not others or not beside.throughput:
        return None
    other = min(others, key=lambda one: abs(micro_batch_of(one) - micro))
    (small, slow), (large, fast) = sorted((_time_point(other), _time_point(beside)))
    return max(0.0, (slow * (1 + sigma) - fast * (1 - sigma)) / (1 / small - 1 / large))


def _time_point(result: SettingsResult) -> tuple[int, float]:
    """The micro batch, and the seconds that a sample computes, without padding, which grows with the batch."""
    parts = result.breakdown
    share = speedup_bounds.compute_share(parts) * (1 - (parts.padding or 0.0))
    return micro_batch_of(result), share / (result.throughput or 1.0)


def _memory_point(result: SettingsResult) -> PeakPoint:
    return PeakPoint(micro_batch_of(result), result.peak_bytes or 0, result.batch_peak_bytes)
