"""The changes worth a trial, ranked by the bound on their gain, and repeats that break near ties."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from tuner_tui.core.units import format_share
from tuner_tui.settings.fields import FIELDS
from tuner_tui.settings.model import Settings
from tuner_tui.tuning.search import knobs
from tuner_tui.tuning.search.baseline import fields_not_applied
from tuner_tui.tuning.search.joint_moves import JointMoves
from tuner_tui.tuning.search.knobs import KnobChange
from tuner_tui.tuning.search.results import MIN_NOISE, SearchResults, SettingsResult, min_difference
from tuner_tui.tuning.search.retries import Retries
from tuner_tui.tuning.search.skip_reasons import NOT_REACHED
from tuner_tui.tuning.search.space import MICRO, SearchSpace
from tuner_tui.tuning.trial import CompletedTrial, SkippedChange, Trial

MAX_RUNS = 3
"""Runs of one settings; more would seldom change what is chosen."""
MIN_LEAD = MIN_NOISE
"""A lead below this share is not worth a run."""


@dataclass(frozen=True, slots=True)
class TieBreak:
    """The rivals of `best`."""

    best: SettingsResult
    results: SearchResults

    def next(self) -> tuple[SettingsResult, str] | None:
        """Whom to run again and why: the nearest rival, or the best where it was run less often; None where nobody."""
        rival = max(self._rivals(), key=self._lead, default=None)
        if rival is None:
            return None
        reason = f"{format_share(self._lead(rival), 1, signed=True)}, within the noise: once more"
        fewer = len(self.best.runs) < len(rival.runs)
        return self.best if fewer else rival, reason

    def _rivals(self) -> list[SettingsResult]:
        return [one for one in self.results.results if self._is_rival(one)]

    def _is_rival(self, one: SettingsResult) -> bool:
        if one is self.best or not self.results.trusted(one) or min(len(one.runs), len(self.best.runs)) >= MAX_RUNS:
            return False
        return MIN_LEAD < self._lead(one) <= min_difference(one, self.best, self.results.noise)

    def _lead(self, one: SettingsResult) -> float:
        return (one.throughput or 0.0) / (self.best.throughput or 1.0) - 1


REPEAT_RESOLUTION = math.sqrt(MAX_RUNS)
"""Runs of two rivals can tell differences so many times smaller than single runs."""
MIN_RETRY_GAIN = 0.02
"""What a second look must promise."""
RETRY_BOUND_GROWTH = 2.0
"""A change that did not win is tried again where its bound has grown this many times: other winners shift the time."""


@dataclass(frozen=True, slots=True)
class Candidates:
    """What can still be improved on the best of `results`. `start` fits the data."""

    start: Settings
    space: SearchSpace
    tried: tuple[CompletedTrial, ...]
    results: SearchResults

    def trials(self) -> list[Trial]:
        """A trial of each change whose bound is above the noise, the highest first; then rivals of the best again."""
        return [self._trial(option) for option in self.offers()] or self._once_more()

    def _once_more(self) -> list[Trial]:
        found = None if self.results.best is None else TieBreak(self.results.best, self.results).next()
        if found is None:
            return []
        return [Trial(number=0, purpose="knob", settings=found[0].settings, reason=found[1])]

    def _trial(self, option: KnobChange) -> Trial:
        return Trial(
            number=0,
            purpose="batch" if option.knob == MICRO else "knob",
            settings=self._after(option),
            reason=format_reason(option),
            changed=tuple(option.change),
            bound=option.bound,
        )

    def offers(self) -> list[KnobChange]:
        """The changes worth a trial, the highest bound first; what has no bound last, but the micro batch first.

        Where none is left, those of a second look.
        """
        worth = [option for option in self._options() if self.objection(option) is None]
        return sorted(worth or self._second_look(), key=_rank)

    def _second_look(self) -> list[KnobChange]:
        best = self.results.best
        if best is None:
            return []
        look = Retries(self.start, best, self.results, self.space)
        options = [*self._options(), *look.options()]
        return [option for option in options if self._again(option) and self.objection(option, again=True) is None]

    def _again(self, option: KnobChange) -> bool:
        """Whether a change is of a second look: not one that was tried in vain and of which nothing new is known."""
        return option.aside or not self._answered(option)

    def skipped(self) -> tuple[SkippedChange, ...]:
        """The changes that are not worth a trial, and why."""
        if self.results.best is None:
            return ()
        found = [
            SkippedChange(knob=option.knob, value=option.value, reason=objection)
            for option in self._options()
            if not option.aside and (objection := self.objection(option))
        ]
        return (*self._trading(self.results.best).skipped(), *found)

    def objection(self, option: KnobChange, again: bool = False) -> str | None:
        """Why a change is not tried; empty where it was tried already, None where it is worth it.

        `again`: that it was tried beside other settings is no reason.
        """
        changing = {name for name, value in option.change.items() if value != getattr(self._best, name)}
        if changing & self.space.unreachable:
            return NOT_REACHED
        ignored = self._ignored(changing)
        if ignored is not None:
            return ignored
        if self.results.get(self._after(option)) is not None or (self._answered(option) and not again):
            return ""
        refused = self.space.refusal(self._best, option.change)
        if refused is not None:
            return refused
        if option.bound is not None and option.bound <= 0:
            return f"it could not gain: {option.rests_on}"
        least = max(MIN_RETRY_GAIN, self.results.noise / REPEAT_RESOLUTION) if again else self.results.noise
        if option.bound is not None and option.bound <= least:
            noise = _format_bound(self.results.noise).lstrip("+")
            return f"at most {_format_bound(option.bound)} ({option.rests_on}), within the noise of {noise}"
        return None

    def _options(self) -> Iterator[KnobChange]:
        best = self.results.best
        if best is not None:
            yield from self._trading(best).options()
            yield from knobs.knob_changes(best, self.space)

    @property
    def _best(self) -> Settings:
        best = self.results.best
        return self.start if best is None else best.settings

    def _trading(self, best: SettingsResult) -> JointMoves:
        return JointMoves(self.start, best, self.results, self.space, self.tried)

    def _after(self, option: KnobChange) -> Settings:
        return self._best.changed(**option.change)

    def _ignored(self, changing: set[str]) -> str | None:
        """What was said where one of these fields, once tried, turned out not to be applied."""
        for one in self.tried:
            if one.measurement.outcome == "not-applied" and changing & set(fields_not_applied(one)):
                return one.measurement.sentence or "the training does not take it"
        return None

    def _answered(self, option: KnobChange) -> bool:
        """Whether this change was tried beside other settings, and its bound has not grown much since."""
        for one in self.tried:
            if option.knob not in one.trial.changed or option.knob == MICRO:
                continue
            if any(getattr(one.trial.settings, name) != value for name, value in option.change.items()):
                continue
            if one.measurement.outcome != "measured" or one.trial.bound is None or option.bound is None:
                return True
            if option.bound < RETRY_BOUND_GROWTH * one.trial.bound:
                return True
        return False


def format_reason(option: KnobChange) -> str:
    """Why an option is tried, for a person."""
    if option.bound is None or math.isinf(option.bound):
        return option.rests_on
    return f"at most {_format_bound(option.bound)} to gain: {option.rests_on}"


def _rank(option: KnobChange) -> tuple[float, str]:
    bound = option.bound
    if bound is None:
        bound = math.inf if option.knob == MICRO else 0.0
    return -bound, list(FIELDS).index(option.knob).__format__("03")


def _format_bound(bound: float) -> str:
    return format_share(bound, 1 if bound < 0.1 else 0, signed=True)
