"""What a change did to the parts of a sample's time, wherever it was tried: what it would do beside other settings."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from tuner_tui.settings.fields import Value
from tuner_tui.settings.model import Settings
from tuner_tui.tuning import bounds
from tuner_tui.tuning.objective import Result, Results, same_memory
from tuner_tui.tuning.sizes import but_micro, groups_of, micro_of

LEAST_OWN = 0.1
"""At least this share of a sample's computing is its own, whatever two noisy runs say."""


@dataclass(frozen=True, slots=True)
class Parts:
    """Seconds of one sample: `computing` without padding, of which `padding` more is a share; optimizer; waiting."""

    computing: float
    padding: float
    optimizer: float
    waiting: float

    @staticmethod
    def of(result: Result) -> Parts:
        """Those of a measured result; a part that was not seen is nothing."""
        seconds, parts = 1 / (result.throughput or 1.0), result.breakdown
        padding = parts.padding or 0.0
        computing = bounds.computing(parts) * (1 - padding)
        return Parts(
            seconds * computing, padding, seconds * (parts.optimizer or 0.0), seconds * (parts.data_wait or 0.0)
        )

    @property
    def seconds(self) -> float:
        """All of it."""
        return self.computing / (1 - min(self.padding, 0.99)) + self.optimizer + self.waiting


@dataclass(frozen=True, slots=True)
class Effects:
    """What the trials say of changes. `once_s` is what a micro batch costs once, None where nothing tells."""

    results: Results
    once_s: float | None

    def on_computing(self, before: Settings, change: Mapping[str, Value]) -> float | None:
        """How many times as long a sample computes after `change`; None where it was never tried beside like settings.

        `before` has the values that `change` takes away.
        """
        ratios = list(self._ratios(before, change))
        return statistics.geometric_mean(ratios) if ratios else None

    def more_bytes(self, before: Result, change: Mapping[str, Value]) -> float | None:
        """What `change` adds to the memory of `before`, at most; below 0 where it takes less, None where nothing tells.

        More is taken to be all of it the batch's, less to be none of it.
        """
        found = list(self._more_bytes(before, change))
        return max(found, default=None)

    def _more_bytes(self, before: Result, change: Mapping[str, Value]) -> Iterator[float]:
        known = [one for one in self.results.results if one.line_bytes]
        for one in known:
            if any(getattr(one.settings, name) != getattr(before.settings, name) for name in change):
                continue
            after = one.settings.changed(**change)
            for other in known:
                if micro_of(one) == micro_of(other) and same_memory(after, other.settings):
                    more = float((other.line_bytes or 0) - (one.line_bytes or 0))
                    yield more * max(1.0, micro_of(before) / micro_of(one)) if more > 0 else more

    def resized(self, computing: float, micro: int, other: int) -> float:
        """The computing seconds of a sample in micro batches of `other`, where they are so many in those of `micro`."""
        once = min(self.once_s or 0.0, computing * micro * (1 - LEAST_OWN))
        return computing - once / micro + once / other

    def _ratios(self, before: Settings, change: Mapping[str, Value]) -> Iterator[float]:
        groups = {but_micro(group[0].settings): group for group in groups_of(self.results.results)}
        for group in groups.values():
            settings = group[0].settings
            if any(getattr(settings, name) != getattr(before, name) for name in change):
                continue
            after = groups.get(but_micro(settings.changed(**change)))
            if after is not None and after is not group:
                yield self._ratio(group, after)

    def _ratio(self, group: list[Result], after: list[Result]) -> float:
        """From the two whose sizes are nearest to each other."""
        pairs = [(one, other) for one in group for other in after]
        one, other = min(pairs, key=lambda pair: abs(micro_of(pair[0]) - micro_of(pair[1])))
        here, there = Parts.of(one).computing, Parts.of(other).computing
        return self.resized(there, micro_of(other), micro_of(one)) / here if here else 1.0
