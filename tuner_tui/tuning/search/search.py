"""The search for the fastest settings that fit: proposes trials and records their measurements.

A search is a pure, immutable value. All it knows is the list of trials, so a search rebuilt from that list continues
where it was. The README of `tuner_tui.tuning` describes its states.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from tuner_tui.settings.model import Settings
from tuner_tui.tuning.search.baseline import next_baseline_trial, refused_trial
from tuner_tui.tuning.search.candidates import Candidates
from tuner_tui.tuning.search.conclusion import Confirmation
from tuner_tui.tuning.search.paired_test import MAX_PAIRS
from tuner_tui.tuning.search.results import SearchContext
from tuner_tui.tuning.search.space import SearchSpace
from tuner_tui.tuning.trial import CompletedTrial, Measurement, SkippedChange, Trial, TuningConclusion

MAX_TRIALS = 60
MAX_CHANGES = MAX_TRIALS - 2 * MAX_PAIRS
"""Trials after which nothing more is changed, so that what was found is confirmed."""


@dataclass(frozen=True)
class Search:
    """A search from `start` within `space`, after `trials`.

    With `compare_only`, nothing more is changed: start and the best settings so far are compared, for lack of time.
    """

    start: Settings
    space: SearchSpace
    trials: tuple[CompletedTrial, ...] = ()
    compare_only: bool = False

    def propose(self) -> Trial | None:
        """Return the next trial, or None at the end of the search."""
        return next(iter(self.proposals), None)

    @cached_property
    def proposals(self) -> tuple[Trial, ...]:
        """The trials that may come next, the best first; a later one may be run if there is no time for the first."""
        return tuple(replace(trial, number=len(self.trials) + 1) for trial in self._proposals())

    def confirming_trial(self, card: str | None = None, under_way: Sequence[Trial] = ()) -> Trial | None:
        """Return the next run of start or winner, on `card` while `under_way` run on others; None if there is none."""
        return self._confirmation.next(card, under_way)

    def record(self, trial: Trial, measurement: Measurement) -> Search:
        """Return the search with the measurement of `trial` added."""
        return replace(self, trials=(*self.trials, CompletedTrial(trial, measurement)))

    @property
    def best(self) -> CompletedTrial | None:
        """The latest trial of the fastest settings that fit, or None."""
        best = self._context.best
        if best is None:
            return None
        return next(one for one in reversed(self.trials) if one.trial.settings == best.settings)

    @cached_property
    def skipped(self) -> tuple[SkippedChange, ...]:
        """The changes that are not tried, and why."""
        return (*self.space.rejected, *self._candidates.skipped())

    @cached_property
    def verdict(self) -> TuningConclusion | None:
        """The conclusion of the finished search; None before its end."""
        return None if self.proposals else self.conclusion

    @cached_property
    def conclusion(self) -> TuningConclusion:
        """The conclusion from the trials so far, as if the search ended here."""
        return self._confirmation.conclusion()

    def remaining_s(self) -> tuple[float, float] | None:
        """Return the minimum and maximum seconds still needed; None before the first measurement."""
        seconds = [one.measurement.seconds for one in self.trials if one.measurement.outcome != "aborted"]
        if not seconds:
            return None
        mean = sum(seconds) / len(seconds)
        low, high = self._trials_left()
        return low * mean, high * mean

    @cached_property
    def _context(self) -> SearchContext:
        return SearchContext(self.start, self.space, self.trials)

    @cached_property
    def _candidates(self) -> Candidates:
        return Candidates(self._context)

    @cached_property
    def _confirmation(self) -> Confirmation:
        return Confirmation(self._context)

    def _proposals(self) -> Sequence[Trial]:
        if len(self.trials) >= MAX_TRIALS or refused_trial(self.trials) is not None:
            return ()
        baseline = next_baseline_trial(self._context)
        if baseline is not None and baseline.purpose != "noise":
            return (baseline,)
        if self._context.best is None:
            return ()
        # The state is not stored: each call derives it from the trials. The first confirming trial ends the changes for
        # good, because a new best after it would start the comparison again, perhaps without end on a noisy machine.
        confirming = any(one.trial.purpose == "confirm" for one in self.trials)
        if not confirming and not self.compare_only and len(self.trials) < MAX_CHANGES:
            # The repeat for the noise comes first, but gives way to a change if time is short.
            changes = (*(() if baseline is None else (baseline,)), *self._candidates.trials())
            if changes:
                return changes
        last = self.confirming_trial()
        return () if last is None else (last,)

    def _trials_left(self) -> tuple[int, int]:
        following = self.propose()
        if following is None:
            return 0, 0
        low, high = self._confirmation.trials_left()
        if following.purpose == "confirm":
            return low, high
        baseline = 1 if following.purpose in ("start", "noise") else 0
        changes = len(self._candidates.changes()) if self._context.best else 4
        return baseline + low + min(changes, 1), baseline + high + changes + 2
