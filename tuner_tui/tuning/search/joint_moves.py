"""Changes of several knobs at once, where one frees memory that another uses."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tuner_tui.settings.fields import Value
from tuner_tui.settings.model import Settings
from tuner_tui.tuning.search import speedup_bounds
from tuner_tui.tuning.search.knobs import CHECKPOINTING, KnobChange, loader_changes, sampling_changes
from tuner_tui.tuning.search.micro_batch import (
    MicroBatchSizes,
    fastest_fitting,
    group_by_knobs,
    knobs_of,
    micro_batch_of,
)
from tuner_tui.tuning.search.results import SearchResults, SettingsResult, same_memory_line
from tuner_tui.tuning.search.space import MICRO, SearchSpace
from tuner_tui.tuning.trial import CompletedTrial, SkippedChange


@dataclass(frozen=True, slots=True)
class JointMoves:
    """What can be traded for more throughput than `best` has."""

    start: Settings
    best: SettingsResult
    results: SearchResults
    space: SearchSpace
    tried: tuple[CompletedTrial, ...]

    def options(self) -> Iterator[KnobChange]:
        """Another micro batch beside the best, beside others that could overtake it, and with other uses of memory."""
        own = self.sizes(self.best)
        for size in (own.larger(), own.smaller()):
            if size is not None:
                yield self._option(MICRO, own.after(size.micro), size.bound, size.reason)
        yield from self._evened(own)
        yield from self._overtaking()
        yield from self._too_large()
        yield from self._checkpointing_on(own)
        yield from self._checkpointing_off(own)

    def skipped(self) -> tuple[SkippedChange, ...]:
        """Sizes that cannot be tried, and why."""
        own = self.sizes(self.best)
        if self.space.capacity_bytes is None and own.micro < own.most:
            why = "how much memory the training may take is not known; --memory-limit would bound it"
            return (SkippedChange(knob=MICRO, value=f"above {own.micro}", reason=why),)
        effective, sizes = self.start.effective_batch(), own.allowed
        if sizes is not None and effective > 3 and len(sizes) == 2:
            why = f"the effective batch of {effective} is prime: only 1 and {effective} hold it"
            return (SkippedChange(knob=MICRO, value=f"2 … {effective - 1}", reason=why),)
        if sizes is not None and own.micro == own.most and own.most < self.space.most_micro:
            why = f"the effective batch of {effective} is held (--free-batch frees it), and no larger one divides it"
            return (SkippedChange(knob=MICRO, value=f"above {own.micro}", reason=why),)
        return ()

    def sizes(self, result: SettingsResult) -> MicroBatchSizes:
        """The sizes beside a result."""
        return MicroBatchSizes(self.start, result, self.results, self.space)

    def _evened(self, own: MicroBatchSizes) -> Iterator[KnobChange]:
        """A larger size and samples of like length together, where padding took what the larger size would gain."""
        search, growth, knob = own.search(), own.growth_bound(), "train_sampling_strategy"
        padded = search.best if search is not None and search.propose() is None else None
        if padded is None or padded.batch <= own.micro or growth is None:
            return
        for option in sampling_changes(self.best.settings, self.best.breakdown, self.space):
            after = own.after(padded.batch).changed(**option.change)
            bound = (1 + growth) * (1 + (option.bound or 0.0)) - 1
            yield self._option(knob, after, bound, "a larger micro batch pads more, unless samples are alike")

    def _overtaking(self) -> Iterator[KnobChange]:
        """Larger sizes beside other knobs, which were slower at a size that they need not stop at."""
        for group in group_by_knobs(self.results.results):
            fastest = fastest_fitting(group, self.results)
            if fastest is None or knobs_of(fastest.settings) == knobs_of(self.best.settings):
                continue
            yield from self._fed(fastest)
            size = self.sizes(fastest).larger()
            if size is not None:
                bound = None if size.bound is None else self._over_best(fastest) * (1 + size.bound) - 1
                reason = f"slower at {micro_batch_of(fastest)}, but with room for more: {size.reason}"
                yield self._option(MICRO, self.sizes(fastest).after(size.micro), bound, reason)

    def _fed(self, result: SettingsResult) -> Iterator[KnobChange]:
        """The loader made faster beside knobs that compute faster than the best, which only the wait for data hid."""
        ahead = self._over_best(result) * (1 + (speedup_bounds.data_wait_bound(result.breakdown) or 0.0))
        if ahead <= (1 + (speedup_bounds.data_wait_bound(self.best.breakdown) or 0.0)) * (1 + self.results.noise):
            return
        for option in loader_changes(result.settings, result.breakdown, self.space):
            if option.bound is not None:
                bound = self._over_best(result) * (1 + option.bound) - 1
                reason = "computing was faster so, but waited for data"
                yield self._option(option.knob, result.settings.changed(**option.change), bound, reason)

    def _too_large(self) -> Iterator[KnobChange]:
        """A smaller size for knobs that were worth a trial and did not fit."""
        fitting = {knobs_of(one.settings) for one in self.results.results if self.results.trusted(one)}
        for one in self.tried:
            result = self.results.get(one.trial.settings)
            if result is None or not self.results.over(result) or knobs_of(result.settings) in fitting:
                continue
            if sum(other.out_of_memory for other in self.sizes(result).alike) > 1:
                continue
            search = self.sizes(result).search()
            proposal = None if search is None else search.propose()
            if proposal is not None and 1 <= proposal.batch < micro_batch_of(result):
                bound = self._over_best(result) - 1 if result.throughput else one.trial.bound
                reason = f"{micro_batch_of(result)} did not fit with these knobs"
                yield self._option(MICRO, self.sizes(result).after(proposal.batch), bound, reason)

    def _checkpointing_on(self, own: MicroBatchSizes) -> Iterator[KnobChange]:
        """Recomputing activations for a larger micro batch, where memory ends the growth and growth would pay."""
        search, growth = own.search(), own.growth_bound()
        ended = search is not None and search.propose() is None and search.best is not None
        if not ended or own.micro >= own.most:
            return
        if self.best.settings.gradient_checkpointing or True not in self.space.candidates.get(CHECKPOINTING, ()):
            return
        after = own.after(max(own.micro, self._with_checkpointing(own))).changed(**{CHECKPOINTING: True})
        bound = None if growth is None else (1 + growth) / speedup_bounds.CHECKPOINTING_COST.value - 1
        yield self._option(CHECKPOINTING, after, bound, "recomputing makes room for a larger micro batch")

    def _with_checkpointing(self, own: MicroBatchSizes) -> int:
        """The size that fits by the usual saving; without a model twice the present one, were all of it activations."""
        saving, model = speedup_bounds.CHECKPOINTING_ACTIVATIONS.value, own.model()
        if model is not None:
            return own.permitted(model.steeper(saving).largest_batch(self._limit))
        twice = (self.best.peak_bytes or 0) * 2 * saving
        return own.permitted(2 * own.micro if twice <= self._limit else own.micro)

    def _checkpointing_off(self, own: MicroBatchSizes) -> Iterator[KnobChange]:
        """Recomputing saved, with as many samples as fit when activations are kept."""
        if not self.best.settings.gradient_checkpointing or False not in self.space.candidates.get(CHECKPOINTING, ()):
            return
        model, micro = own.model(), own.micro
        if model is not None and self.space.limit_bytes is not None:
            steeper = model.steeper(speedup_bounds.KEPT_ACTIVATIONS.value)
            micro = max(1, min(micro, own.permitted(steeper.largest_batch(self._limit))))
        micro = self._not_refuted(own, own.after(micro).changed(**{CHECKPOINTING: False}))
        bound = speedup_bounds.compute_bound(self.best.breakdown, speedup_bounds.RECOMPUTING)
        reason = f"recomputing saved ({speedup_bounds.RECOMPUTING.source})"
        yield self._option(CHECKPOINTING, own.after(micro).changed(**{CHECKPOINTING: False}), bound, reason)

    def _not_refuted(self, own: MicroBatchSizes, settings: Settings) -> int:
        """The size of `settings`; where that or a smaller one did not fit on its line of memory, what did, or half."""
        line = [one for one in self.results.results if same_memory_line(one.settings, settings)]
        micro = settings.per_device_train_batch_size
        failed = min((micro_batch_of(one) for one in line if self.results.over(one)), default=micro + 1)
        if micro < failed:
            return micro
        return max(
            (micro_batch_of(one) for one in line if self.results.trusted(one)),
            default=max(1, own.permitted(failed // 2)),
        )

    @property
    def _limit(self) -> float:
        return self.space.limit_bytes or 0.0

    def _over_best(self, result: SettingsResult) -> float:
        return (result.throughput or 0.0) / (self.best.throughput or 1.0)

    def _option(self, knob: str, after: Settings, bound: float | None, reason: str) -> KnobChange:
        aside = knobs_of(after) != knobs_of(self.best.settings) and knob != CHECKPOINTING
        return KnobChange(knob, changed_values(after, self.best.settings, knob), bound, reason, aside)


def changed_values(after: Settings, before: Settings, knob: str) -> dict[str, Value]:
    """The values of `after` that differ from `before`, that of `knob` first and in any case."""
    names = [knob, *(name for name in Settings.model_fields if name != knob)]
    changed = (name for name in names if name == knob or getattr(after, name) != getattr(before, name))
    return {name: getattr(after, name) for name in changed}
