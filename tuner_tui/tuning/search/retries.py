"""Changes tried again with the best settings, which may now gain what they did not gain with earlier ones.

Sampling and optimizer are weighed by what they did to the parts of a step in their own trials. TF32 may replace 16 bit,
and a micro batch that is not proved to fit is tried where it promises much.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from tuner_tui.settings.model import Settings, Value
from tuner_tui.tuning.search import speedup_bounds
from tuner_tui.tuning.search.context import SearchContext
from tuner_tui.tuning.search.joint_moves import SAMPLING, changed_values
from tuner_tui.tuning.search.knobs import KnobChange
from tuner_tui.tuning.search.micro_batch import MicroBatchSizes, fastest_fitting, group_by_knobs
from tuner_tui.tuning.search.results import SettingsResult, same_memory_line
from tuner_tui.tuning.search.space import MICRO

OPTIMIZER = "optim"
TF32_VALUES: Mapping[str, Value] = {"precision": "fp32", "tf32": True}
TF32_SPEEDUP = 1.15
"""Assumed speed-up of TF32 over 16 bit by autocast, which casts the inputs of every operation."""
MIN_SAMPLE_SHARE = 0.1
"""Minimum share of a sample's compute time that does not depend on the micro batch."""
MEMORY_MARGIN = 1.02
"""Safety factor on the predicted memory of a change that takes more of it."""
MIN_OPTIMISTIC_GAIN = 0.15
"""Minimum predicted gain for a trial that may run out of memory."""


@dataclass(frozen=True, slots=True)
class SampleTime:
    """Seconds of one sample. `computing` excludes padding, which is the share `padding` of all tokens."""

    computing: float
    padding: float
    optimizer: float
    waiting: float

    @staticmethod
    def of(result: SettingsResult) -> SampleTime:
        """Split the time of a measured result; parts that were not observed count as zero."""
        seconds, parts = 1 / (result.throughput or 1.0), result.breakdown
        padding = parts.padding or 0.0
        return SampleTime(
            computing=seconds * speedup_bounds.compute_share(parts) * (1 - padding),
            padding=padding,
            optimizer=seconds * (parts.optimizer or 0.0),
            waiting=seconds * (parts.data_wait or 0.0),
        )

    @property
    def seconds(self) -> float:
        """The total."""
        return self.computing / (1 - min(self.padding, 0.99)) + self.optimizer + self.waiting


@dataclass(frozen=True, slots=True)
class Retries:
    """The changes to try again with `best`, the best result of `context`."""

    context: SearchContext
    best: SettingsResult

    def changes(self) -> Iterator[KnobChange]:
        """Yield each change at each micro batch that is expected to fit, bounded by its predicted gain."""
        for values in self._alternatives():
            after = self.best.settings.changed(**values)
            for micro in sorted(self._fitting(after)):
                sized = self.context.space.with_micro(after, self.context.start, micro)
                knob = next(iter(values))
                different = changed_values(sized, self.best.settings, knob)
                yield KnobChange(knob, different, self._gain(values, micro), "its effect with other settings", True)
        yield from self._optimistic_sizes()

    def _alternatives(self) -> Iterator[Mapping[str, Value]]:
        best, results = self.best.settings, self.context.results.results
        for name in (SAMPLING, OPTIMIZER):
            measured = dict.fromkeys(getattr(one.settings, name) for one in results if one.measured)
            yield from ({name: value} for value in measured if value != getattr(best, name))
        if any(getattr(best, name) != value for name, value in TF32_VALUES.items()) and self._may_use_tf32():
            yield TF32_VALUES

    def _may_use_tf32(self) -> bool:
        """Whether TF32 was measured, or may replace 16 bit in a training that started in fp32."""
        runs = True in self.context.space.candidates.get("tf32", ())
        replaces = self.best.settings.precision != "fp32" and self.context.start.precision == "fp32" and runs
        return replaces or any(one.measured for one in self._measured_with(TF32_VALUES))

    def _gain(self, values: Mapping[str, Value], micro: int) -> float:
        """The predicted gain of `values` at `micro`."""
        now = SampleTime.of(self.best)
        after = replace(now, computing=self._computing_at(now.computing, micro))
        if SAMPLING in values:  # padding depends on the size: take it from the nearest one
            nearest = min(self._measured_with(values), key=lambda one: abs(math.log(one.micro / micro)))
            after = replace(after, padding=SampleTime.of(nearest).padding)
        elif OPTIMIZER in values:
            steps_s = (
                SampleTime.of(one).optimizer * one.settings.effective_batch() for one in self._measured_with(values)
            )
            after = replace(after, optimizer=min(steps_s) / self.best.settings.effective_batch())
        else:
            noise = self.context.results.noise
            after = replace(after, computing=self._computing_at(now.computing / TF32_SPEEDUP * (1 - noise), micro))
        return now.seconds / after.seconds - 1

    def _computing_at(self, computing: float, micro: int) -> float:
        """The compute time of a sample in a micro batch of `micro`, by the time model of `micro_batch`."""
        fixed_s = self._sizes(self.best).fixed_cost_s() or 0.0
        fixed_s = min(fixed_s, computing * self.best.micro * (1 - MIN_SAMPLE_SHARE))
        return computing - fixed_s / self.best.micro + fixed_s / micro

    def _measured_with(self, values: Mapping[str, Value]) -> Iterator[SettingsResult]:
        for one in self.context.results.results:
            if one.throughput and all(getattr(one.settings, name) == value for name, value in values.items()):
                yield one

    def _fitting(self, after: Settings) -> set[int]:
        """The micro batches that are expected to fit: the present one, the largest that fitted, and the next."""
        results = self.context.results.results
        line = [one for one in results if same_memory_line(one.settings, after) and one.peak_bytes is not None]
        if not line:
            return {self.best.micro} if self._fits_in_fp32() else set()
        search = self._sizes(max(line, key=lambda one: one.micro)).search()
        if search is None:
            return {self.best.micro}
        found, proposal = search.best, search.propose()
        sizes = {found.batch} if found is not None else set()
        if found is not None and self.best.micro <= found.batch:
            sizes.add(self.best.micro)
        if proposal is not None and proposal.batch > 0:
            sizes.add(proposal.batch)
        return sizes

    def _fits_in_fp32(self) -> bool:
        """Whether the present micro batch fits with activations of twice the size."""
        limit_bytes, line_bytes = self.context.space.limit_bytes, self.best.line_bytes
        if limit_bytes is None or line_bytes is None:
            return True
        model = self._sizes(self.best).memory_model()
        activations = line_bytes if model is None else model.slope_bytes * self.best.micro
        return (line_bytes + activations) * MEMORY_MARGIN <= limit_bytes

    def _optimistic_sizes(self) -> Iterator[KnobChange]:
        """Larger micro batches that may not fit, with any knobs for which they promise much."""
        results = self.context.results
        for group in group_by_knobs(results.results):
            fastest = fastest_fitting(group, results)
            size = None if fastest is None else self._sizes(fastest).optimistic()
            if fastest is None or size is None or not fastest.speed or not self.best.speed:
                continue
            bound = size.micro / fastest.micro - 1 if size.bound is None else size.bound
            gain = fastest.speed / self.best.speed * (1 + bound) - 1
            if gain >= MIN_OPTIMISTIC_GAIN:
                after = self._sizes(fastest).with_micro(size.micro)
                yield KnobChange(MICRO, changed_values(after, self.best.settings, MICRO), gain, size.reason, True)

    def _sizes(self, result: SettingsResult) -> MicroBatchSizes:
        return MicroBatchSizes(self.context, result)
