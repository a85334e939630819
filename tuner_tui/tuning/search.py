"""The search for the fastest settings that fit: a pure object that proposes a trial and records what it came to.

Start, and the same again to learn the noise; then always the change with the highest bound on its gain (the micro
batch first, while nothing is known of it), until no bound stands above the noise; then a second look at what was tried
beside other settings, and rivals of the best once more; then start and winner in turn. All that it knows is the list of
trials, so a search that is built anew from that list goes on where it was.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from tuner_tui.settings.model import Settings
from tuner_tui.tuning.beginning import beginning, ends_at_once
from tuner_tui.tuning.closing import Closing
from tuner_tui.tuning.improving import Improving
from tuner_tui.tuning.measurement import Measurement
from tuner_tui.tuning.objective import Results
from tuner_tui.tuning.space import SearchSpace
from tuner_tui.tuning.trial import Skipped, Trial, Tried, Verdict

MOST_TRIALS = 60


@dataclass(frozen=True)
class Search:
    """A search from `start` within `space`, after the trials `tried`.

    `closing`: nothing more is changed, start and the best so far are compared; for when time is short.
    """

    start: Settings
    space: SearchSpace
    tried: tuple[Tried, ...] = ()
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
        return replace(self, tried=(*self.tried, Tried(trial, measurement)))

    @property
    def best(self) -> Tried | None:
        """The latest run of the fastest settings that fit; None while none did."""
        best = self._results.best
        if best is None:
            return None
        return next(one for one in reversed(self.tried) if one.trial.settings == best.settings)

    @cached_property
    def skipped(self) -> tuple[Skipped, ...]:
        """What was not tried so far, and why."""
        return (*self.space.rejected, *self._improving.skipped())

    @cached_property
    def verdict(self) -> Verdict | None:
        """How the search ended; None while it has not."""
        return None if self.proposals else self.conclusion

    @cached_property
    def conclusion(self) -> Verdict:
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
    def _results(self) -> Results:
        return Results.of(self._within_data, self.space.limit_bytes)

    @property
    def _within_data(self) -> tuple[Tried, ...]:
        """The trials whose micro batch the data can fill: how many samples there are is learned from the first one."""
        most = self.space.most_micro
        return tuple(one for one in self.tried if one.trial.settings.per_device_train_batch_size <= most)

    @cached_property
    def _first(self) -> Settings:
        return self.space.within_data(self.start)

    @cached_property
    def _improving(self) -> Improving:
        return Improving(self._first, self.space, self.tried, self._results)

    @cached_property
    def _closing(self) -> Closing:
        return Closing(self.start, self._first, self.space, self.tried, self._results)

    def _proposals(self) -> Sequence[Trial]:
        if len(self.tried) >= MOST_TRIALS or ends_at_once(self.tried):
            return ()
        first = beginning(self.start, self._first, self.space, self.tried, self._results)
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
