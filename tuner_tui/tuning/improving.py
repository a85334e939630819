"""The middle of a search: of all changes away from the best settings, the one that can gain most comes next."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from tuner_tui.core.units import format_share
from tuner_tui.settings.fields import FIELDS
from tuner_tui.settings.model import Settings
from tuner_tui.tuning import knobs
from tuner_tui.tuning.beginning import not_taken
from tuner_tui.tuning.knobs import Option
from tuner_tui.tuning.objective import Result, Results
from tuner_tui.tuning.rivals import MOST_RUNS, Rivals
from tuner_tui.tuning.second_look import SecondLook
from tuner_tui.tuning.space import MICRO, SearchSpace
from tuner_tui.tuning.trading import Trading
from tuner_tui.tuning.trial import Skipped, Trial, Tried
from tuner_tui.tuning.untried import UNREACHED

TOLD_APART = math.sqrt(MOST_RUNS)
"""Runs of two rivals can tell differences so many times smaller than single runs."""
LEAST_GAIN = 0.02
"""What a second look must promise."""
AGAIN = 2.0
"""A change that did not win is tried again where its bound has grown this many times: other winners shift the time."""


@dataclass(frozen=True, slots=True)
class Improving:
    """What can still be improved on the best of `results`. `start` fits the data."""

    start: Settings
    space: SearchSpace
    tried: tuple[Tried, ...]
    results: Results

    def trials(self) -> list[Trial]:
        """A trial of each change whose bound is above the noise, the highest first; then rivals of the best again."""
        return [self._trial(option) for option in self.offers()] or self._once_more()

    def _once_more(self) -> list[Trial]:
        found = None if self.results.best is None else Rivals(self.results.best, self.results).next()
        if found is None:
            return []
        return [Trial(number=0, purpose="knob", settings=found[0].settings, reason=found[1])]

    def _trial(self, option: Option) -> Trial:
        return Trial(
            number=0,
            purpose="batch" if option.knob == MICRO else "knob",
            settings=self._after(option),
            reason=reason_of(option),
            changed=tuple(option.change),
            bound=option.bound,
        )

    def offers(self) -> list[Option]:
        """The changes worth a trial, the highest bound first; what has no bound last, but the micro batch first.

        Where none is left, those of a second look.
        """
        worth = [option for option in self._options() if self.objection(option) is None]
        return sorted(worth or self._second_look(), key=_rank)

    def _second_look(self) -> list[Option]:
        best = self.results.best
        if best is None:
            return []
        look = SecondLook(self.start, best, self.results, self.space)
        options = [*self._options(), *look.options()]
        return [option for option in options if self._again(option) and self.objection(option, again=True) is None]

    def _again(self, option: Option) -> bool:
        """Whether a change is of a second look: not one that was tried in vain and of which nothing new is known."""
        return option.aside or not self._answered(option)

    def skipped(self) -> tuple[Skipped, ...]:
        """The changes that are not worth a trial, and why."""
        if self.results.best is None:
            return ()
        found = [
            Skipped(knob=option.knob, value=option.value, reason=objection)
            for option in self._options()
            if not option.aside and (objection := self.objection(option))
        ]
        return (*self._trading(self.results.best).skipped(), *found)

    def objection(self, option: Option, again: bool = False) -> str | None:
        """Why a change is not tried; empty where it was tried already, None where it is worth it.

        `again`: that it was tried beside other settings is no reason.
        """
        changing = {name for name, value in option.change.items() if value != getattr(self._best, name)}
        if changing & self.space.unreachable:
            return UNREACHED
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
        least = max(LEAST_GAIN, self.results.noise / TOLD_APART) if again else self.results.noise
        if option.bound is not None and option.bound <= least:
            noise = _percent(self.results.noise).lstrip("+")
            return f"at most {_percent(option.bound)} ({option.rests_on}), within the noise of {noise}"
        return None

    def _options(self) -> Iterator[Option]:
        best = self.results.best
        if best is not None:
            yield from self._trading(best).options()
            yield from knobs.options(best, self.space)

    @property
    def _best(self) -> Settings:
        best = self.results.best
        return self.start if best is None else best.settings

    def _trading(self, best: Result) -> Trading:
        return Trading(self.start, best, self.results, self.space, self.tried)

    def _after(self, option: Option) -> Settings:
        return self._best.changed(**option.change)

    def _ignored(self, changing: set[str]) -> str | None:
        """What was said where one of these fields, once tried, turned out not to be applied."""
        for one in self.tried:
            if one.measurement.outcome == "not-applied" and changing & set(not_taken(one)):
                return one.measurement.sentence or "the training does not take it"
        return None

    def _answered(self, option: Option) -> bool:
        """Whether this change was tried beside other settings, and its bound has not grown much since."""
        for one in self.tried:
            if option.knob not in one.trial.changed or option.knob == MICRO:
                continue
            if any(getattr(one.trial.settings, name) != value for name, value in option.change.items()):
                continue
            if one.measurement.outcome != "measured" or one.trial.bound is None or option.bound is None:
                return True
            if option.bound < AGAIN * one.trial.bound:
                return True
        return False


def reason_of(option: Option) -> str:
    """Why an option is tried, for a person."""
    if option.bound is None or math.isinf(option.bound):
        return option.rests_on
    return f"at most {_percent(option.bound)} to gain: {option.rests_on}"


def _rank(option: Option) -> tuple[float, str]:
    bound = option.bound
    if bound is None:
        bound = math.inf if option.knob == MICRO else 0.0
    return -bound, list(FIELDS).index(option.knob).__format__("03")


def _percent(bound: float) -> str:
    return format_share(bound, 1 if bound < 0.1 else 0, signed=True)
