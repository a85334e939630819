"""The micro batch as a knob: which size to try next beside the best settings, and what it can gain at most.

The time of a sample is `c + a / b`: what it costs itself, and its part of what every micro batch costs once. Larger
micro batches can save no more than `a / b`.
"""

from __future__ import annotations

from dataclasses import dataclass

from tuner_tui.memory.fit import PeakModel, Point, fit
from tuner_tui.settings.model import Settings
from tuner_tui.tuning import bounds
from tuner_tui.tuning.batch_search import BatchSearch, Probe
from tuner_tui.tuning.knobs import Option
from tuner_tui.tuning.objective import Result, Results, same_memory
from tuner_tui.tuning.space import ACCUMULATION, MICRO, SearchSpace
from tuner_tui.tuning.trial import Skipped


@dataclass(frozen=True, slots=True)
class Sizes:
    """The sizes tried with the knobs of `best`, and what follows from them."""

    start: Settings
    best: Result
    results: Results
    space: SearchSpace

    @property
    def alike(self) -> list[Result]:
        """Results that differ from the best in the micro batch alone, smallest first."""
        found = [one for one in self.results.results if _but_micro(one.settings) == _but_micro(self.best.settings)]
        return sorted(found, key=lambda one: one.settings.per_device_train_batch_size)

    def options(self) -> tuple[Option, ...]:
        """A larger size by the model of memory, a smaller one where larger ones did not pay."""
        found = (self._larger(), self._smaller())
        return tuple(option for option in found if option is not None)

    def skipped(self) -> tuple[Skipped, ...]:
        """Sizes that cannot be tried, and why."""
        micro = self.best.settings.per_device_train_batch_size
        sizes, effective = self.space.micro_batches(self.start), self.start.effective_batch()
        if self.space.capacity_bytes is None:
            why = "how much memory the training may take is not known; --memory-limit would bound it"
            return (Skipped(knob=MICRO, value=f"above {micro}", reason=why),)
        if sizes is not None and micro == max(sizes) and micro < self.space.most_micro:
            why = f"the effective batch of {effective} is held, and no larger micro batch divides it"
            return (Skipped(knob=MICRO, value=f"above {micro}", reason=why),)
        if sizes is not None and len(sizes) == 2 and effective > 3:
            why = f"the effective batch of {effective} is prime: only 1 and {effective} hold it"
            return (Skipped(knob=MICRO, value=f"2 … {effective - 1}", reason=why),)
        return ()

    def growth_bound(self) -> float | None:
        """What endless micro batches could gain over the best; None while no two sizes were measured.

        What a micro batch costs once is taken from other knobs where these were measured at one size only.
        """
        once = _once_s(self.alike, self.best, self.results.sigma)
        if once is None:
            others = [result for result in reversed(self.results.results) if result.throughput]
            groups = (Sizes(self.start, other, self.results, self.space).alike for other in others)
            found = (_once_s(group, group[-1], self.results.sigma) for group in groups)
            once = next((one for one in found if one is not None), None)
        return None if once is None else _without(once, self.best)

    def _larger(self) -> Option | None:
        search = self.search()
        proposal = None if search is None else search.propose()
        if proposal is None or proposal.batch < 1:
            return None
        known = {one.settings.per_device_train_batch_size for one in self.alike}
        if proposal.batch in known:
            return None
        return self._option(proposal.batch, self.growth_bound(), proposal.reason)

    def search(self) -> BatchSearch | None:
        """The search for the largest size with the best's knobs; None where memory has no known bound."""
        if self.space.capacity_bytes is None:
            return None
        sizes = self.space.micro_batches(self.start)
        probes = tuple(
            Probe(one.settings.per_device_train_batch_size, _peak(one), one.batch_peak_bytes)
            for one in self.results.results
            if same_memory(one.settings, self.best.settings) and (one.out_of_memory or one.peak_bytes is not None)
        )
        most = self.space.most_micro if sizes is None else max(sizes)
        return BatchSearch(self.space.capacity_bytes, most, self._prior(), self.space.reserve, probes, sizes)

    def _prior(self) -> PeakModel | None:
        """The model measured with other knobs where there is one: it lies nearer than the estimate."""
        lines: dict[int, list[Result]] = {}
        for one in self.results.results:
            if one.peak_bytes is not None and not same_memory(one.settings, self.best.settings):
                first = next(r for r in self.results.results if same_memory(r.settings, one.settings))
                lines.setdefault(id(first), []).append(one)
        models = [fit([_memory_point(one) for one in line]) for line in lines.values()]
        return next((model for model in reversed(models) if model is not None), self.space.prior)

    def _smaller(self) -> Option | None:
        """A smaller size than the fastest, where larger ones were no faster and this one is the smallest tried."""
        micro = self.best.settings.per_device_train_batch_size
        tried = [one.settings.per_device_train_batch_size for one in self.alike]
        if self.space.on_gpu or micro == 1 or micro != min(tried):
            return None
        sizes = self.space.micro_batches(self.start)
        half = micro // 2 if sizes is None else max((size for size in sizes if size <= micro // 2), default=1)
        return self._option(half, bounds.SMALLER_ON_CPU.value, "a smaller batch may be faster without a GPU")

    def _option(self, micro: int, bound: float | None, reason: str) -> Option:
        after = self.space.with_micro(self.best.settings, self.start, micro)
        change = {MICRO: micro, ACCUMULATION: after.gradient_accumulation_steps}
        return Option(MICRO, change, bound, reason)


def _once_s(alike: list[Result], best: Result, sigma: float) -> float | None:
    """Seconds that a micro batch costs beside its samples: at most, runs being `sigma` apart by chance.

    From the best and the size nearest to it; None where only one was measured.
    """
    micro = best.settings.per_device_train_batch_size
    others = [one for one in alike if one.throughput and one.settings.per_device_train_batch_size != micro]
    if not others or not best.throughput:
        return None
    other = min(others, key=lambda one: abs(one.settings.per_device_train_batch_size - micro))
    (small, slow), (large, fast) = sorted((_point(other), _point(best)))
    return max(0.0, (slow * (1 + sigma) - fast * (1 - sigma)) / (1 / small - 1 / large))


def _without(once_s: float, best: Result) -> float:
    """The gain where the time of a sample loses its part of what a micro batch costs once."""
    micro, sample_s = _point(best)
    share = min(0.9, once_s / micro / sample_s)
    return share / (1 - share)


def _point(result: Result) -> tuple[int, float]:
    return result.settings.per_device_train_batch_size, 1 / (result.throughput or 1.0)


def _peak(result: Result) -> int | None:
    return None if result.out_of_memory else result.peak_bytes


def _memory_point(result: Result) -> Point:
    return Point(result.settings.per_device_train_batch_size, result.peak_bytes or 0, result.batch_peak_bytes)


def _but_micro(settings: Settings) -> Settings:
    return settings.changed(**{MICRO: 1, ACCUMULATION: 1})
