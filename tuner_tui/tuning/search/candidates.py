"""The changes worth a trial, ranked by the maximum gain of each."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from tuner_tui.core.units import format_share
from tuner_tui.settings.model import FIELDS, Settings
from tuner_tui.tuning.search.baseline import fields_not_applied
from tuner_tui.tuning.search.context import SearchContext
from tuner_tui.tuning.search.joint_moves import JointMoves
from tuner_tui.tuning.search.knobs import KnobChange, knob_changes
from tuner_tui.tuning.search.retries import Retries
from tuner_tui.tuning.search.skip_reasons import NOT_REACHED
from tuner_tui.tuning.search.space import MICRO
from tuner_tui.tuning.trial import SkippedChange, Trial

MIN_RETRY_GAIN = 0.02
"""Minimum predicted gain (2 %) for retrying a rejected change."""
RETRY_NOISE_FACTOR = math.sqrt(3)
"""Factor by which the gain of a retry may be below the noise: confirming runs measure smaller differences."""
RETRY_BOUND_GROWTH = 2.0
"""Growth of the bound after which a rejected change is tried again: other changes have shifted the time of a step."""


@dataclass(frozen=True, slots=True)
class Candidates:
    """The changes away from the best settings of `context`, or from the start if nothing ran."""

    context: SearchContext

    def trials(self) -> list[Trial]:
        """Return a trial of each change worth trying, the most promising first."""
        return [
            Trial(
                number=0,
                purpose="batch" if change.knob == MICRO else "knob",
                settings=self._after(change),
                reason=format_reason(change),
                changed=tuple(change.values),
                bound=change.bound,
            )
            for change in self.changes()
        ]

    def changes(self) -> list[KnobChange]:
        """Return the changes worth a trial, or retries if there are none, in descending order of their bounds.

        Changes without a bound come last, except for the micro batch, which comes first.
        """
        new = [change for change in self._all_changes() if self.objection(change) is None]
        return sorted(new or self._retries(), key=_rank)

    def skipped(self) -> tuple[SkippedChange, ...]:
        """Return the changes that are not worth a trial, and why."""
        best = self.context.best
        if best is None:
            return ()
        found = [
            SkippedChange(knob=change.knob, value=change.value, reason=objection)
            for change in self._all_changes()
            if not change.from_other and (objection := self.objection(change))
        ]
        return (*JointMoves(self.context, best).skipped(), *found)

    def objection(self, change: KnobChange, retry: bool = False) -> str | None:
        """Return why a change is not tried (empty if it was tried already), or None if it is worth a trial.

        For a retry, an earlier trial of the change with other settings is no objection.
        """
        space, results = self.context.space, self.context.results
        fields = {name for name, value in change.values.items() if value != getattr(self._base, name)}
        if fields & space.unreachable:
            return NOT_REACHED
        not_applied = self._not_applied_reason(fields)
        if not_applied is not None:
            return not_applied
        if results.get(self._after(change)) is not None or (self._was_rejected(change) and not retry):
            return ""
        refused = space.refusal(self._base, change.values)
        if refused is not None:
            return refused
        if change.bound is not None and change.bound <= 0:
            return f"no gain possible: {change.reason}"
        min_gain = max(MIN_RETRY_GAIN, results.noise / RETRY_NOISE_FACTOR) if retry else results.noise
        gain = self._gain(change)
        if gain is not None and gain <= min_gain:
            noise, whole = _format_bound(results.noise).lstrip("+"), " of the whole job" if results.job else ""
            return f"at most {_format_bound(gain)}{whole} ({change.reason}), within the noise of {noise}"
        return None

    def _gain(self, change: KnobChange) -> float | None:
        """The most that the change can gain; of the whole job, if its time counts."""
        best = self.context.best
        return change.bound if change.bound is None or best is None or change.from_other else best.gain(change.bound)

    def _retries(self) -> list[KnobChange]:
        best = self.context.best
        if best is None:
            return []
        changes = [*self._all_changes(), *Retries(self.context, best).changes()]
        worth = (change for change in changes if change.from_other or not self._was_rejected(change))
        return [change for change in worth if self.objection(change, retry=True) is None]

    def _all_changes(self) -> Iterator[KnobChange]:
        best = self.context.best
        if best is not None:
            yield from JointMoves(self.context, best).changes()
            yield from knob_changes(best, self.context.space)

    @property
    def _base(self) -> Settings:
        best = self.context.best
        return self.context.start if best is None else best.settings

    def _after(self, change: KnobChange) -> Settings:
        return self._base.changed(**change.values)

    def _not_applied_reason(self, fields: set[str]) -> str | None:
        """The sentence of a trial that showed that the training ignores one of `fields`."""
        for one in self.context.trials:
            if one.measurement.outcome == "not-applied" and fields & set(fields_not_applied(one)):
                return one.measurement.sentence or "it has no effect on this training"
        return None

    def _was_rejected(self, change: KnobChange) -> bool:
        """Whether the change was tried with other settings, and its bound has not grown much since."""
        for one in self.context.trials:
            if change.knob not in one.trial.changed or change.knob == MICRO:
                continue
            if any(getattr(one.trial.settings, name) != value for name, value in change.values.items()):
                continue
            if one.measurement.outcome != "measured" or one.trial.bound is None or change.bound is None:
                return True
            if change.bound < RETRY_BOUND_GROWTH * one.trial.bound:
                return True
        return False


def format_reason(change: KnobChange) -> str:
    """Return why a change is tried."""
    if change.bound is None or math.isinf(change.bound):
        return change.reason
    return f"at most {_format_bound(change.bound)} gain: {change.reason}"


def _rank(change: KnobChange) -> tuple[float, int]:
    bound = change.bound
    if bound is None:
        bound = math.inf if change.knob == MICRO else 0.0
    return -bound, list(FIELDS).index(change.knob)


def _format_bound(bound: float) -> str:
    return format_share(bound, 1 if bound < 0.1 else 0, signed=True)
