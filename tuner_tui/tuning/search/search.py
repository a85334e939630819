"""The search for the fastest settings that fit: proposes trials and records their measurements. Pure and immutable."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from tuner_tui.settings.model import Settings
from tuner_tui.tuning.search.baseline import is_refused, next_baseline_trial
from tuner_tui.tuning.search.candidates import Candidates
from tuner_tui.tuning.search.conclusion import Confirmation
from tuner_tui.tuning.search.results import SearchResults
from tuner_tui.tuning.search.space import SearchSpace
from tuner_tui.tuning.trial import CompletedTrial, Measurement, SkippedChange, Trial, TuningConclusion

MAX_TRIALS = 60


@dataclass(frozen=True)
class Search:
    """A search from `start` within `space`, after the trials `tried`.

    `closing`: nothing more is changed, start and the best so far are compared; for when time is short.
    """

    start: Settings
    space: SearchSpace
    tried: tuple[CompletedTrial, ...] = ()
    closing: bool = False

    def propose(self) -> Trial | None:
        """The next trial; None at the end."""
        return next(iter(self.proposals), None)

    @cached_property
    def proposals(self) -> tuple[Trial, ...]:
        """The trials of which one comes next, the best first; where time lacks for it a later one will do."""
        return tuple(replace(trial, number=len(self.tried) + 1) for trial in self._proposals())

    def record(self, trial: Trial, measurement: Measurement) -> Search:
        """The search that knows what `trial` came to."""
        return replace(self, tried=(*self.tried, CompletedTrial(trial, measurement)))

    @property
    def best(self) -> CompletedTrial | None:
        """The latest run of the fastest settings that fit; None while none did."""
        best = self._results.best
        if best is None:
            return None
        return next(one for one in reversed(self.tried) if one.trial.settings == best.settings)

    @cached_property
    def skipped(self) -> tuple[SkippedChange, ...]:
        """What was not tried so far, and why."""
        return (*self.space.rejected, *self._improving.skipped())

    @cached_property
    def verdict(self) -> TuningConclusion | None:
        """How the search ended; None while it has not."""
        return None if self.proposals else self.conclusion

    @cached_property
    def conclusion(self) -> TuningConclusion:
        """What the trials so far amount to: the verdict of a search that is broken off here."""
        return self._closing.verdict(() if self._improving.offers() else self.skipped)

    def left(self) -> tuple[float, float] | None:
        """Seconds still needed, from and to, the trial under way included; None before the first measurement."""
        seconds = [one.measurement.seconds for one in self.tried if one.measurement.outcome != "aborted"]
        if not seconds:
            return None
        mean = sum(seconds) / len(seconds)
        least, most = self._trials_left()
        return least * mean, most * mean

    @cached_property
    def _results(self) -> SearchResults:
        return SearchResults.of(self._within_data, self.space.limit_bytes)

    @property
    def _within_data(self) -> tuple[CompletedTrial, ...]:
        """The trials whose micro batch the data can fill: how many samples there are is learned from the first one."""
        most = self.space.most_micro
        return tuple(one for one in self.tried if one.trial.settings.per_device_train_batch_size <= most)

    @cached_property
    def _first(self) -> Settings:
        return self.space.within_data(self.start)

    @cached_property
    def _improving(self) -> Candidates:
        return Candidates(self._first, self.space, self.tried, self._results)

    @cached_property
    def _closing(self) -> Confirmation:
        return Confirmation(self.start, self._first, self.space, self.tried, self._results)

    def _proposals(self) -> Sequence[Trial]:
        if len(self.tried) >= MAX_TRIALS or is_refused(self.tried):
            return ()
        first = next_baseline_trial(self.start, self._first, self.space, self.tried, self._results)
        if first is not None and first.purpose != "noise":
            return (first,)
        if self._results.best is None:
            return ()
        again = () if first is None else (first,)
        confirming = any(one.trial.purpose == "confirm" for one in self.tried)
        changes = () if confirming else (*again, *self._improving.trials())
        if changes and not self.closing:
            return changes
        last = self._closing.next()
        return () if last is None else (last,)

    def _trials_left(self) -> tuple[int, int]:
        following = self.propose()
        if following is None:
            return 0, 0
        confirming = self._closing.left()
        if following.purpose == "confirm":
            return confirming
        beginning_left = 1 if following.purpose in ("start", "noise") else 0
        offers = len(self._improving.offers()) if self._results.best else 4
        return beginning_left + confirming[0] + min(offers, 1), beginning_left + confirming[1] + offers + 2
