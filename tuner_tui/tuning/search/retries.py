"""Rejected changes tried again with other settings, by the effect they had on the parts of a step."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from tuner_tui.settings.fields import Value
from tuner_tui.settings.model import Settings
from tuner_tui.tuning.search import speedup_bounds
from tuner_tui.tuning.search.joint_moves import changed_values
from tuner_tui.tuning.search.knobs import CHECKPOINTING, KnobChange
from tuner_tui.tuning.search.micro_batch import (
    MicroBatchSizes,
    fastest_fitting,
    group_by_knobs,
    knobs_of,
    micro_batch_of,
)
from tuner_tui.tuning.search.results import SearchResults, SettingsResult, same_memory_line
from tuner_tui.tuning.search.space import MICRO, SearchSpace

MIN_SAMPLE_SHARE = 0.1
"""At least this share of a sample's computing is its own, whatever two noisy runs say."""


@dataclass(frozen=True, slots=True)
class SampleTime:
    """Seconds of one sample: `computing` without padding, of which `padding` more is a share; optimizer; waiting."""

    computing: float
    padding: float
    optimizer: float
    waiting: float

    @staticmethod
    def of(result: SettingsResult) -> SampleTime:
        """Those of a measured result; a part that was not seen is nothing."""
        seconds, parts = 1 / (result.throughput or 1.0), result.breakdown
        padding = parts.padding or 0.0
        computing = speedup_bounds.compute_share(parts) * (1 - padding)
        return SampleTime(
            seconds * computing, padding, seconds * (parts.optimizer or 0.0), seconds * (parts.data_wait or 0.0)
        )

    @property
    def seconds(self) -> float:
        """All of it."""
        return self.computing / (1 - min(self.padding, 0.99)) + self.optimizer + self.waiting


@dataclass(frozen=True, slots=True)
class ChangeEffects:
    """What the trials say of changes. `once_s` is what a micro batch costs once, None where nothing tells."""

    results: SearchResults
    once_s: float | None

    def on_computing(self, before: Settings, change: Mapping[str, Value]) -> float | None:
        """How many times as long a sample computes after `change`; None where it was never tried beside like settings.

        `before` has the values that `change` takes away.
        """
        ratios = list(self._ratios(before, change))
        return statistics.geometric_mean(ratios) if ratios else None

    def more_bytes(self, before: SettingsResult, change: Mapping[str, Value]) -> float | None:
        """What `change` adds to the memory of `before`, at most; below 0 where it takes less, None where nothing tells.

        More is taken to be all of it the batch's, less to be none of it.
        """
        found = list(self._more_bytes(before, change))
        return max(found, default=None)

    def _more_bytes(self, before: SettingsResult, change: Mapping[str, Value]) -> Iterator[float]:
        known = [one for one in self.results.results if one.line_bytes]
        for one in known:
            if any(getattr(one.settings, name) != getattr(before.settings, name) for name in change):
                continue
            after = one.settings.changed(**change)
            for other in known:
                if micro_batch_of(one) == micro_batch_of(other) and same_memory_line(after, other.settings):
                    more = float((other.line_bytes or 0) - (one.line_bytes or 0))
                    yield more * max(1.0, micro_batch_of(before) / micro_batch_of(one)) if more > 0 else more

    def resized(self, computing: float, micro: int, other: int) -> float:
        """The computing seconds of a sample in micro batches of `other`, where they are so many in those of `micro`."""
        once = min(self.once_s or 0.0, computing * micro * (1 - MIN_SAMPLE_SHARE))
        return computing - once / micro + once / other

    def _ratios(self, before: Settings, change: Mapping[str, Value]) -> Iterator[float]:
        groups = {knobs_of(group[0].settings): group for group in group_by_knobs(self.results.results)}
        for group in groups.values():
            settings = group[0].settings
            if any(getattr(settings, name) != getattr(before, name) for name in change):
                continue
            after = groups.get(knobs_of(settings.changed(**change)))
            if after is not None and after is not group:
                yield self._ratio(group, after)

    def _ratio(self, group: list[SettingsResult], after: list[SettingsResult]) -> float:
        """From the two whose sizes are nearest to each other."""
        pairs = [(one, other) for one in group for other in after]
        one, other = min(pairs, key=lambda pair: abs(micro_batch_of(pair[0]) - micro_batch_of(pair[1])))
        here, there = SampleTime.of(one).computing, SampleTime.of(other).computing
        return self.resized(there, micro_batch_of(other), micro_batch_of(one)) / here if here else 1.0


COMPUTE_FIELDS = (("precision", "tf32"), ("attn_implementation",), ("torch_compile",), (CHECKPOINTING,))
"""Fields that change together; what they do shows in the time of computing."""
MEMORY_MARGIN = 1.02
"""A change that takes more memory may take so many times what it is believed to."""
TF32_AFTER_16_BIT = 1 / 1.15
"""TF32 may compute as fast as that beside 16 bit, which casts at every operation."""
TF32_VALUES = ("fp32", True)
MIN_OPTIMISTIC_GAIN = 0.15
"""What a run that may not fit must promise."""
SAMPLING, OPTIMIZER = "train_sampling_strategy", "optim"


@dataclass(frozen=True, slots=True)
class Retries:
    """What may be gained beside `best` by changes that were tried beside other settings."""

    start: Settings
    best: SettingsResult
    results: SearchResults
    space: SearchSpace

    def options(self) -> Iterator[KnobChange]:
        """A change of one knob, at each size that is believed to fit; the bound is what its trials promise."""
        for change in self._changes():
            after = self.best.settings.changed(**change)
            for micro in sorted(self._fitting(after, change)):
                gain = self._gain(after, change, self._room(change, micro))
                if gain is not None:
                    sized = self.space.with_micro(after, self.start, micro)
                    knob = next(iter(change))
                    yield KnobChange(
                        knob,
                        changed_values(sized, self.best.settings, knob),
                        gain,
                        "what it did beside other settings",
                        True,
                    )
        yield from self._daring()

    def _daring(self) -> Iterator[KnobChange]:
        """A larger micro batch that may not fit, beside any settings with which it promises much."""
        for group in group_by_knobs(self.results.results):
            fastest = fastest_fitting(group, self.results)
            size = None if fastest is None else self._sizes(fastest).daring()
            if fastest is None or size is None or not fastest.throughput or not self.best.throughput:
                continue
            most = size.micro / micro_batch_of(fastest) - 1 if size.bound is None else size.bound
            gain = fastest.throughput / self.best.throughput * (1 + most) - 1
            if gain >= MIN_OPTIMISTIC_GAIN:
                after = self._sizes(fastest).after(size.micro)
                yield KnobChange(MICRO, changed_values(after, self.best.settings, MICRO), gain, size.reason, True)

    def _room(self, change: Mapping[str, Value], micro: int) -> int:
        """The size that counts for the gain: a larger one where memory ended the growth and the change takes less."""
        own = self._sizes(self.best)
        larger = own.next_above(micro)
        more = self._effects.more_bytes(self.best, change)
        if micro != own.micro or larger is None or more is None or more >= 0:
            return micro
        return larger

    def _changes(self) -> Iterator[dict[str, Value]]:
        """The values that the best settings do not have and some trial had."""
        for fields in (*COMPUTE_FIELDS, (SAMPLING,), (OPTIMIZER,)):
            present = self._values(self.best.settings, fields)
            seen = {self._values(one.settings, fields): None for one in self.results.results if one.measured}
            if "tf32" in fields and self._may_tensor_float(present):
                seen[TF32_VALUES] = None
            yield from (dict(zip(fields, values, strict=True)) for values in seen if values != present)

    def _may_tensor_float(self, present: tuple[Value, ...]) -> bool:
        """Whether 16 bit may give way to TF32, which nobody tried."""
        return present[0] != "fp32" and self.start.precision == "fp32" and True in self.space.candidates.get("tf32", ())

    def _values(self, settings: Settings, fields: tuple[str, ...]) -> tuple[Value, ...]:
        return tuple(getattr(settings, name) for name in fields)

    def _gain(self, after: Settings, change: Mapping[str, Value], micro: int) -> float | None:
        """The share that is won at best, runs being so far apart by chance; None where nothing tells."""
        now, effects = SampleTime.of(self.best), self._effects
        computing, padding, optimizer = now.computing, now.padding, now.optimizer
        if SAMPLING in change:
            padding = self._padding(change, micro)
        elif OPTIMIZER in change:
            steps = [SampleTime.of(one).optimizer * one.settings.effective_batch() for one in self._with(change)]
            optimizer = min(steps) / self.best.settings.effective_batch()
        else:
            effect = effects.on_computing(self.best.settings, change)
            if effect is None and self._values(after, COMPUTE_FIELDS[0]) == TF32_VALUES and "tf32" in change:
                effect = TF32_AFTER_16_BIT
            if effect is None:
                return None
            computing *= effect * (1 - self.results.noise)
        computing = effects.resized(computing, micro_batch_of(self.best), micro)
        return now.seconds / SampleTime(computing, padding, optimizer, now.waiting).seconds - 1

    def _padding(self, change: Mapping[str, Value], micro: int) -> float:
        """The share that was seen at the size nearest to this one."""
        nearest = min(self._with(change), key=lambda one: abs(math.log(micro_batch_of(one) / micro)))
        return SampleTime.of(nearest).padding

    def _with(self, change: Mapping[str, Value]) -> Iterator[SettingsResult]:
        for one in self.results.results:
            if one.throughput and all(getattr(one.settings, name) == value for name, value in change.items()):
                yield one

    @property
    def _effects(self) -> ChangeEffects:
        return ChangeEffects(self.results, self._sizes(self.best).once_s())

    def _fitting(self, after: Settings, change: Mapping[str, Value]) -> set[int]:
        """Micro batches believed to fit: the present one, what the line of memory bears out, what is next on it."""
        line = [
            one for one in self.results.results if same_memory_line(one.settings, after) and one.peak_bytes is not None
        ]
        if not line:
            return self._by_effect(change)
        search = self._sizes(max(line, key=micro_batch_of)).search()
        if search is None:
            return {micro_batch_of(self.best)}
        found, proposal = search.best, search.propose()
        sizes = {found.batch} if found is not None else set()
        if found is not None and micro_batch_of(self.best) <= found.batch:
            sizes.add(micro_batch_of(self.best))
        if proposal is not None and proposal.batch > 0:
            sizes.add(proposal.batch)
        return sizes

    def _by_effect(self, change: Mapping[str, Value]) -> set[int]:
        """The present size, where it fits by what the change did to memory elsewhere."""
        limit, line = self.space.limit_bytes, self.best.line_bytes
        if limit is None or line is None:
            return {micro_batch_of(self.best)}
        more = self._more_bytes(line, change)
        return (
            set()
            if more is None or (more > 0 and (line + more) * MEMORY_MARGIN > limit)
            else {micro_batch_of(self.best)}
        )

    def _more_bytes(self, line: float, change: Mapping[str, Value]) -> float | None:
        """What the change adds to `line`, the bytes that the present micro batch takes; None where that is open."""
        if change.get(CHECKPOINTING) is True:
            return 0.0
        if change.get("precision") == "fp32":  # activations of twice the size
            model = self._sizes(self.best).model()
            return line if model is None else model.slope_bytes * micro_batch_of(self.best)
        return self._effects.more_bytes(self.best, change)

    def _sizes(self, result: SettingsResult) -> MicroBatchSizes:
        return MicroBatchSizes(self.start, result, self.results, self.space)
