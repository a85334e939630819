"""Which micro batch to try next with given knobs, and the most it can gain.

Time model: without the optimizer step and padding, a sample takes `own + fixed / b` seconds in a micro batch of `b`
samples, where `fixed` is the cost of each micro batch. A larger micro batch can save no more than `fixed / b`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from operator import attrgetter

from msgspec import Struct

from tuner_tui.memory.fit import PeakModel, PeakPoint, fit
from tuner_tui.settings.model import FIELDS, Settings, Value
from tuner_tui.tuning.search import knobs
from tuner_tui.tuning.search.batch_search import BatchProbe, BatchSearch
from tuner_tui.tuning.search.results import SearchContext, SettingsResult, same_memory_line
from tuner_tui.tuning.search.space import ACCUMULATION, MICRO

knobs_of: Callable[[Settings], tuple[Value, ...]] = attrgetter(
    *(name for name in FIELDS if name not in (MICRO, ACCUMULATION))
)
"""All values of the settings other than micro batch and accumulation."""
MIN_LEAP = 4
"""Growth of the size in one trial from which twice the size may be tried instead."""
MAX_HOST_GROWTH = 4
"""Maximum growth of a free effective batch in one trial without a GPU, where memory leaves room for far more than pays.
"""
POSSIBLE_SHARE = 0.05
"""Share of a sample in the peak of one from which a trial of two is worth the risk: it may take half the time."""
TILE = 8
"""Sizes of which a GPU wastes nothing (NVIDIA, matrix multiplication background: multiples of 8 for 16-bit values)."""
MAX_FIXED_SHARE = 0.9
"""Maximum share of a sample's time that is attributed to the fixed cost, as its estimate from two runs is noisy."""


class SizeOption(Struct, frozen=True):
    """A micro batch worth a trial. `bound` is its maximum gain over the present size; None if unknown."""

    micro: int
    bound: float | None
    reason: str


class MicroBatchSizes(Struct, frozen=True):
    """The micro batches for the knobs of `current`, one of the results of `context`."""

    context: SearchContext
    current: SettingsResult

    @property
    def micro(self) -> int:
        return self.current.micro

    @property
    def same_knobs(self) -> list[SettingsResult]:
        """Results that differ in the micro batch alone, in ascending order."""
        knobs = knobs_of(self.current.settings)
        group = (result for result in self.context.results.results if knobs_of(result.settings) == knobs)
        return sorted(group, key=lambda result: result.micro)

    @property
    def allowed(self) -> tuple[int, ...] | None:
        """The sizes that hold the effective batch; None if any may be tried."""
        return self.context.space.micro_batches(self.context.start)

    @property
    def largest(self) -> int:
        """The largest size that dataset and effective batch allow."""
        return self.context.space.max_micro if self.allowed is None else max(self.allowed)

    def growth_bound(self) -> float | None:
        """Return the gain of an infinitely large micro batch; None if the fixed cost is unknown.

        If the effective batch is free, the optimizer step is spread over more samples as well.
        """
        held = self.context.space.hold_effective_batch
        return self._bound_at(math.inf, 0.0 if held else self.current.breakdown.optimizer or 0.0)

    def larger(self) -> SizeOption | None:
        """Return the size that the search for the largest one proposes, else one that fitted with other knobs."""
        # The search for the largest size knows memory, not speed: it also proposes sizes below the present one, to
        # learn the slope. Those count only if their knobs were not measured at that size.
        search = self.search()
        if search is None or self.micro >= self.largest:
            return None
        tried = {result.micro for result in self.same_knobs}
        slower = self._smallest_slower()
        if slower is not None:  # what is larger still is no faster
            between = self.largest_allowed(math.isqrt(self.micro * slower))
            if between <= self.micro or slower < MIN_LEAP * self.micro or between in tried:
                return None
            return SizeOption(between, self._bound_at(between), f"{slower} is slower, but a size between may be faster")
        proposal = search.propose()
        if proposal is not None and proposal.batch > 0:
            micro, space = proposal.batch, self.context.space
            if not (space.on_gpu or space.hold_effective_batch):
                micro = min(micro, MAX_HOST_GROWTH * self.micro)
            if micro not in tried:
                return SizeOption(micro, self.growth_bound(), proposal.reason)
        if proposal is None and self._may_hold_two(search):
            return SizeOption(2, None, "nothing says how much a sample takes: a second one may fit")
        best = search.best
        if best is None or best.batch <= self.micro or best.batch in tried:
            return None
        return SizeOption(best.batch, self._bound_at(best.batch), "it fitted with other settings")

    def _smallest_slower(self) -> int | None:
        """The smallest of the larger sizes that were measured to be slower than this one."""
        least = (self.current.throughput or 0.0) * (1 - self.context.results.noise)
        larger = (result for result in self.same_knobs if result.micro > self.micro)
        return min((result.micro for result in larger if result.throughput and result.throughput < least), default=None)

    def _may_hold_two(self, search: BatchSearch) -> bool:
        """Whether only one sample was ever run, with room for a second one that takes `POSSIBLE_SHARE` of its peak."""
        point = self.current.peak_point
        is_unknown = search.prior is None and {probe.batch for probe in search.probes} == {1}
        if point is None or not is_unknown or self.largest_allowed(2) != 2:
            return False
        return not search.careful and point.peak_bytes * (1 + POSSIBLE_SHARE) <= search.limit_bytes

    def doubled(self) -> SizeOption | None:
        """Return twice the size if a far larger one is to be tried, whose trial there may be no time for."""
        larger, micro = self.larger(), self.largest_allowed(2 * self.micro)
        if larger is None or larger.micro < MIN_LEAP * self.micro or not self.micro < micro < larger.micro:
            return None
        if micro in {result.micro for result in self.same_knobs}:
            return None
        return SizeOption(micro, self._bound_at(micro), f"a trial of {larger.micro} may take too long")

    def smaller(self) -> SizeOption | None:
        """Return half the size on a machine without a GPU, if no smaller size was tried."""
        if self.context.space.on_gpu or self.micro == 1 or self.micro != self.same_knobs[0].micro:
            return None
        sizes = self.allowed or range(1, self.micro)
        half = max((size for size in sizes if size <= self.micro // 2), default=1)
        return SizeOption(half, knobs.factor("smaller-on-cpu").value, "a smaller batch may be faster without a GPU")

    def whole_tiles(self) -> SizeOption | None:
        """Return the next smaller multiple of `TILE` if it may be faster than the size, whose last tile is not full."""
        over = self.micro % TILE
        if not self.context.space.on_gpu or self.allowed is not None or not over or self.micro < TILE:
            return None
        bound = (self.micro - over + TILE) / self.micro - 1
        return SizeOption(self.micro - over, bound, f"GPUs compute in tiles: a multiple of {TILE} may be faster")

    def search(self) -> BatchSearch | None:
        """Return the search for the largest size; None if the memory limit is unknown."""
        space = self.context.space
        if space.capacity_bytes is None:
            return None
        return BatchSearch(
            capacity_bytes=space.capacity_bytes,
            max_batch=self.largest,
            prior=self._prior(),
            reserve=space.reserve,
            probes=self._probes(),
            allowed=self.allowed,
            careful=any(result.out_of_memory for result in self.context.results.results),
        )

    def memory_model(self) -> PeakModel | None:
        """Return peak memory as a function of the micro batch: fitted to two sizes, else scaled from other knobs."""
        return fit(self._memory_points(self.current)) or self._prior()

    def with_micro(self, micro: int) -> Settings:
        return self.context.space.with_micro(self.current.settings, self.context.start, micro)

    def largest_allowed(self, micro: int) -> int:
        """Return the largest allowed size up to `micro`, or 0."""
        if self.allowed is None:
            return min(micro, self.largest)
        return max((size for size in self.allowed if size <= micro), default=0)

    def fixed_cost_s(self) -> float | None:
        """Return an upper bound on the fixed cost of a micro batch in seconds; None before two sizes were measured.

        If the present knobs were measured at one size only, the largest fixed cost with other knobs is returned.
        """
        results = self.context.results
        measured = _fixed_cost_s(self.same_knobs, self.current, results.sigma)
        if measured is not None:
            return measured
        groups = group_by_knobs(results.results)
        costs = (_fixed_cost_s(group, result, results.sigma) for group in groups for result in group)
        return max((cost for cost in costs if cost is not None), default=None)

    def _bound_at(self, micro: float, optimizer: float = 0.0) -> float | None:
        """Return the gain of this micro batch at most, if that share of a step in the optimizer vanished as well."""
        fixed_s = self.fixed_cost_s()
        if fixed_s is None or not self.current.throughput:
            return None
        saved_s = fixed_s * (1 / self.micro - 1 / micro)
        return knobs.gain_without(min(MAX_FIXED_SHARE, saved_s * self.current.throughput + optimizer))

    def _probes(self) -> tuple[BatchProbe, ...]:
        """One probe per size, from all settings whose memory depends on the micro batch in the same way."""
        probes: dict[int, BatchProbe] = {}
        for result in self.context.results.on_line(self.current.settings):
            point, earlier = result.peak_point, probes.get(result.micro)
            if result.out_of_memory:
                probes[result.micro] = BatchProbe(result.micro, None)
            elif point is not None and (
                earlier is None or (earlier.point is not None and point.peak_bytes > earlier.point.peak_bytes)
            ):  # the worse counts
                probes[result.micro] = BatchProbe(result.micro, point)
        return tuple(probes.values())

    def _memory_points(self, result: SettingsResult) -> list[PeakPoint]:
        points = (measured.peak_point for measured in self.context.results.on_line(result.settings))
        return [point for point in points if point is not None]

    def _prior(self) -> PeakModel | None:
        """The memory model measured last with other knobs, adapted to the present ones; else the estimate."""
        # Precision or checkpointing change how memory grows, but a fitted model of the same training, scaled to one
        # point of the present knobs, is still better than the estimate made before any run.
        for result in reversed(self.context.results.results):
            if not same_memory_line(result.settings, self.current.settings):
                model = fit(self._memory_points(result))
                if model is not None:
                    return self._adapted(model)
        return self.context.space.prior

    def _adapted(self, model: PeakModel) -> PeakModel:
        """Fit the model of other knobs to the largest size measured with these.

        Either both its parts grew or the part proportional to the batch alone: the more pessimistic one is returned.
        """
        point = max(self._memory_points(self.current), key=lambda point: point.batch, default=None)
        if point is None:
            return model
        expected = model.peak_bytes(point.batch)
        if expected <= 0:  # memory that grows faster than the batch extrapolates to less than nothing
            return model
        slope = (point.line_bytes - model.base_bytes) / point.batch
        grown = model.scaled(point.line_bytes / expected)
        steeper = model.steeper(slope / model.slope_bytes) if slope > 0 else grown
        limit = self.context.space.limit_bytes or 0.0
        return min(grown, steeper, key=lambda fitted: fitted.largest_batch(limit))


def group_by_knobs(results: Iterable[SettingsResult]) -> list[list[SettingsResult]]:
    """Group measured results that differ in the micro batch alone, each group in ascending order."""
    groups: dict[tuple[Value, ...], list[SettingsResult]] = {}
    for result in results:
        if result.throughput:
            groups.setdefault(knobs_of(result.settings), []).append(result)
    return [sorted(group, key=lambda result: result.micro) for group in groups.values()]


def _fixed_cost_s(same_knobs: list[SettingsResult], current: SettingsResult, sigma: float) -> float | None:
    """Solve the time model for the fixed cost, from the present size and the nearest other one.

    The times are shifted by `sigma`, the noise between runs, in the direction that makes the cost larger.
    """
    # time(b) = own + fixed / b at two sizes gives fixed = (time(small) - time(large)) / (1 / small - 1 / large).
    others = [result for result in same_knobs if result.throughput and result.micro != current.micro]
    if not others or not current.throughput:
        return None
    nearest = min(others, key=lambda result: abs(result.micro - current.micro))
    points = []  # the micro batch and the seconds that a sample computes, padding (which grows with the batch) excluded
    for result in (nearest, current):
        share = knobs.compute_share(result.breakdown) * (1 - (result.breakdown.padding or 0.0))
        points.append((result.micro, share / (result.throughput or 1.0)))
    (small, slow), (large, fast) = sorted(points)
    return max(0.0, (slow * (1 + sigma) - fast * (1 - sigma)) / (1 / small - 1 / large))
