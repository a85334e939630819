"""Changes of the micro batch, alone or with other knobs where one frees memory or time that another uses."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tuner_tui.settings.model import Settings, Value
from tuner_tui.tuning.search import speedup_bounds
from tuner_tui.tuning.search.context import SearchContext
from tuner_tui.tuning.search.knobs import KnobChange, loader_changes, sampling_changes
from tuner_tui.tuning.search.micro_batch import MicroBatchSizes, fastest_fitting, group_by_knobs, knobs_of
from tuner_tui.tuning.search.results import SettingsResult, same_memory_line
from tuner_tui.tuning.search.space import CHECKPOINTING, MICRO
from tuner_tui.tuning.trial import SkippedChange

SAMPLING = "train_sampling_strategy"


@dataclass(frozen=True, slots=True)
class JointMoves:
    """Changes away from `best`, the best result of `context`."""

    context: SearchContext
    best: SettingsResult

    def changes(self) -> Iterator[KnobChange]:
        """Yield other micro batches for the best knobs and for knobs that could overtake them, and joint changes."""
        sizes = self._sizes(self.best)
        for size in (sizes.larger(), sizes.doubled(), sizes.smaller()):
            if size is not None:
                yield self._change(MICRO, sizes.with_micro(size.micro), size.bound, size.reason)
        yield from self._larger_with_grouping(sizes)
        yield from self._overtaking()
        yield from self._smaller_for_too_large()
        yield from self._checkpointing_on(sizes)
        yield from self._checkpointing_off(sizes)

    def skipped(self) -> tuple[SkippedChange, ...]:
        """Return the micro batches that cannot be tried, and why."""
        sizes, space = self._sizes(self.best), self.context.space
        if space.capacity_bytes is None and sizes.micro < sizes.largest:
            why = "the memory limit is unknown; set --memory-limit"
            return (SkippedChange(knob=MICRO, value=f"above {sizes.micro}", reason=why),)
        effective, allowed = self.context.start.effective_batch(), sizes.allowed
        if allowed is not None and effective > 3 and len(allowed) == 2:
            why = f"the effective batch of {effective} is prime: only 1 and {effective} divide it"
            return (SkippedChange(knob=MICRO, value=f"2 … {effective - 1}", reason=why),)
        if allowed is not None and sizes.micro == sizes.largest and sizes.largest < space.max_micro:
            why = f"no larger micro batch divides the effective batch of {effective} (--free-batch lets it change)"
            return (SkippedChange(knob=MICRO, value=f"above {sizes.micro}", reason=why),)
        return ()

    def _sizes(self, result: SettingsResult) -> MicroBatchSizes:
        return MicroBatchSizes(self.context, result)

    def _larger_with_grouping(self, sizes: MicroBatchSizes) -> Iterator[KnobChange]:
        """A larger size with samples grouped by length, if padding cancelled the gain of the larger size."""
        search, growth = sizes.search(), sizes.growth_bound()
        padded = search.best if search is not None and search.propose() is None else None
        if padded is None or padded.batch <= sizes.micro or growth is None:
            return
        for change in sampling_changes(self.best.settings, self.best.breakdown, self.context.space):
            after = sizes.with_micro(padded.batch).changed(**change.values)
            bound = (1 + growth) * (1 + (change.bound or 0.0)) - 1
            yield self._change(
                SAMPLING, after, bound, "a larger micro batch pads more, unless samples have similar length"
            )

    def _overtaking(self) -> Iterator[KnobChange]:
        """Larger sizes, and a faster loader, for knobs that were slower than the best at the sizes tried so far."""
        results = self.context.results
        for group in group_by_knobs(results.results):
            fastest = fastest_fitting(group, results)
            if fastest is None or knobs_of(fastest.settings) == knobs_of(self.best.settings):
                continue
            yield from self._faster_loader(fastest)
            sizes = self._sizes(fastest)
            size = sizes.larger()
            if size is not None:
                bound = None if size.bound is None else self._ratio_to_best(fastest) * (1 + size.bound) - 1
                reason = f"slower at {fastest.micro}, but leaves room: {size.reason}"
                yield self._change(MICRO, sizes.with_micro(size.micro), bound, reason)

    def _faster_loader(self, result: SettingsResult) -> Iterator[KnobChange]:
        """A faster loader for knobs that compute faster than the best, but waited for data."""
        without_wait = self._ratio_to_best(result) * (1 + (speedup_bounds.data_wait_bound(result.breakdown) or 0.0))
        best_without_wait = 1 + (speedup_bounds.data_wait_bound(self.best.breakdown) or 0.0)
        if without_wait <= best_without_wait * (1 + self.context.results.noise):
            return
        for change in loader_changes(result.settings, result.breakdown, self.context.space):
            if change.bound is not None:
                bound = self._ratio_to_best(result) * (1 + change.bound) - 1
                reason = "computation was faster, but waited for data"
                yield self._change(change.knob, result.settings.changed(**change.values), bound, reason)

    def _smaller_for_too_large(self) -> Iterator[KnobChange]:
        """A smaller size for knobs that were worth a trial and did not fit."""
        results = self.context.results
        fitting = {knobs_of(one.settings) for one in results.results if results.fits(one)}
        for one in self.context.trials:
            result = results.get(one.trial.settings)
            if result is None or not results.exceeds_memory(result) or knobs_of(result.settings) in fitting:
                continue
            sizes = self._sizes(result)
            if sum(other.out_of_memory for other in sizes.same_knobs) > 1:
                continue
            search = sizes.search()
            proposal = None if search is None else search.propose()
            if proposal is not None and 1 <= proposal.batch < result.micro:
                bound = self._ratio_to_best(result) - 1 if result.throughput else one.trial.bound
                reason = f"{result.micro} did not fit with these settings"
                yield self._change(MICRO, sizes.with_micro(proposal.batch), bound, reason)

    def _checkpointing_on(self, sizes: MicroBatchSizes) -> Iterator[KnobChange]:
        """Gradient checkpointing for a larger micro batch, if memory limits the size and a larger one would pay."""
        search, growth = sizes.search(), sizes.growth_bound()
        memory_limits = search is not None and search.propose() is None and search.best is not None
        if not memory_limits or sizes.micro >= sizes.largest:
            return
        if self.best.settings.gradient_checkpointing or not self._is_candidate(CHECKPOINTING, True):
            return
        micro = max(sizes.micro, self._size_with_checkpointing(sizes))
        after = sizes.with_micro(micro).changed(**{CHECKPOINTING: True})
        bound = None if growth is None else (1 + growth) / speedup_bounds.CHECKPOINTING_COST.value - 1
        yield self._change(CHECKPOINTING, after, bound, "gradient checkpointing makes room for a larger micro batch")

    def _size_with_checkpointing(self, sizes: MicroBatchSizes) -> int:
        """The size that fits with the usual saving; without a memory model, at most twice the present size."""
        saving, model = speedup_bounds.CHECKPOINTING_ACTIVATIONS.value, sizes.memory_model()
        if model is not None:
            return sizes.largest_allowed(model.steeper(saving).largest_batch(self._limit_bytes))
        twice = (self.best.peak_bytes or 0) * 2 * saving  # as if all memory were activations
        return sizes.largest_allowed(2 * sizes.micro if twice <= self._limit_bytes else sizes.micro)

    def _checkpointing_off(self, sizes: MicroBatchSizes) -> Iterator[KnobChange]:
        """No recomputing, with the micro batch that fits when activations are kept."""
        if not self.best.settings.gradient_checkpointing or not self._is_candidate(CHECKPOINTING, False):
            return
        model, micro = sizes.memory_model(), sizes.micro
        if model is not None and self.context.space.limit_bytes is not None:
            steeper = model.steeper(speedup_bounds.KEPT_ACTIVATIONS.value)
            micro = max(1, min(micro, sizes.largest_allowed(steeper.largest_batch(self._limit_bytes))))
        micro = self._below_failed(sizes, sizes.with_micro(micro).changed(**{CHECKPOINTING: False}))
        bound = speedup_bounds.compute_bound(self.best.breakdown, speedup_bounds.RECOMPUTING)
        reason = f"saves the recomputation ({speedup_bounds.RECOMPUTING.source})"
        yield self._change(CHECKPOINTING, sizes.with_micro(micro).changed(**{CHECKPOINTING: False}), bound, reason)

    def _below_failed(self, sizes: MicroBatchSizes, settings: Settings) -> int:
        """The micro batch of `settings`; if that or a smaller one failed, the largest that fitted, else half."""
        results = self.context.results
        line = [one for one in results.results if same_memory_line(one.settings, settings)]
        micro = settings.per_device_train_batch_size
        failed = min((one.micro for one in line if results.exceeds_memory(one)), default=micro + 1)
        if micro < failed:
            return micro
        fitting = (one.micro for one in line if results.fits(one))
        return max(fitting, default=max(1, sizes.largest_allowed(failed // 2)))

    @property
    def _limit_bytes(self) -> float:
        return self.context.space.limit_bytes or 0.0

    def _is_candidate(self, name: str, value: Value) -> bool:
        return value in self.context.space.candidates.get(name, ())

    def _ratio_to_best(self, result: SettingsResult) -> float:
        return (result.speed or 0.0) / (self.best.speed or 1.0)

    def _change(self, knob: str, after: Settings, bound: float | None, reason: str) -> KnobChange:
        from_other = knobs_of(after) != knobs_of(self.best.settings) and knob != CHECKPOINTING
        return KnobChange(knob, changed_values(after, self.best.settings, knob), bound, reason, from_other)


def changed_values(after: Settings, before: Settings, knob: str) -> dict[str, Value]:
    """Return the values of `after` that differ from `before`; that of `knob` comes first and is always included."""
    names = [knob, *(name for name in Settings.model_fields if name != knob)]
    changed = (name for name in names if name == knob or getattr(after, name) != getattr(before, name))
    return {name: getattr(after, name) for name in changed}
