"""Whether the time left is enough for a trial and for the comparison that has to follow it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from tuner_tui.settings.model import Settings
from tuner_tui.tuning.search.paired_test import MIN_PAIRS
from tuner_tui.tuning.trial import CompletedTrial, Trial

SLACK = 1.3
"""The next trial may take that many times what is expected of it."""
COMPILE_FACTOR = 2.0
"""Trials that compile are taken to last this much longer until one was run."""
MIN_STEPS = 4
"""A trial takes at least so many optimizer steps, warm-up included, however long they are."""
TRIALS_AFTER_NOISE = 7
"""Trials as long as the start's that must be left after it is run again: before that, a change is the better use."""
CLEAR_LEAD = 1.2
"""One pair settles a lead of so many times."""


@dataclass(frozen=True, slots=True)
class TimeBudget:
    """`left_s` seconds after the trials `tried`, of which `best` has the fastest settings; None while none ran."""

    tried: Sequence[CompletedTrial]
    best: Settings | None
    left_s: float

    def fits(self, trial: Trial) -> bool:
        """Whether there is time for it. The first trial of all is always run."""
        return not self.tried or self.needed_s(trial) <= self.left_s

    def needed_s(self, trial: Trial) -> float:
        """Seconds for the trial, and for what has to follow it to be of use."""
        return SLACK * self.cost_s(trial.settings) + self._after_s(trial)

    def cost_s(self, settings: Settings) -> float:
        """Seconds that a trial of these settings is expected to take, by the ones most like it."""
        same = [one for one in self.tried if one.trial.settings == settings]
        if same:
            return _mean_s(same)
        alike = [one for one in self.tried if one.trial.settings.torch_compile == settings.torch_compile]
        known_s = _mean_s(alike) if alike else _mean_s(self.tried) * (COMPILE_FACTOR if settings.torch_compile else 1.0)
        return known_s + self._longer_steps_s(settings)

    def _longer_steps_s(self, settings: Settings) -> float:
        """What steps of more samples than the start's add to the fewest that a trial takes."""
        start = self.tried[0]
        growth = settings.effective_batch() / start.trial.settings.effective_batch() - 1
        return MIN_STEPS * max(0.0, growth) * (start.measurement.step_time_s or 0.0)

    def _after_s(self, trial: Trial) -> float:
        """The pairs of start and winner, this trial being the winner where that takes longer.

        One pair where this trial may bring the first winner, or the winner is clear; else all of them.
        """
        start = self.tried[0].trial.settings
        winner = self.best or start
        if trial.purpose == "confirm":
            return self._other_s(trial)
        if self.best is None:
            return 0.0
        if trial.purpose == "noise":  # of use only where several changes can be tried after it
            return TRIALS_AFTER_NOISE * self.cost_s(start)
        pairs = 1 if winner == start or self._clear() else MIN_PAIRS
        start_s, winner_s = self.cost_s(start), max(self.cost_s(winner), self.cost_s(trial.settings))
        slack_s = (SLACK - 1) * max(start_s, winner_s)  # without it the first of a pair could not begin
        return pairs * (start_s + winner_s) + slack_s

    def _clear(self) -> bool:
        """Whether the best is so far ahead of the start that one pair will tell."""
        start = self.tried[0].measurement.throughput
        best = next((one for one in reversed(self.tried) if one.trial.settings == self.best), None)
        if start is None or best is None or best.measurement.throughput is None:
            return False
        return best.measurement.throughput > CLEAR_LEAD * start

    def _other_s(self, trial: Trial) -> float:
        """The second of a pair goes with the first, whichever of start and winner that is."""
        start = self.tried[0].trial.settings
        confirmed = [one.trial.settings for one in self.tried if one.trial.purpose == "confirm"]
        if len(confirmed) % 2 == 1 or self.tried[0].measurement.outcome != "measured":
            return 0.0
        compared = [settings for settings in (*reversed(confirmed), self.best, start) if settings is not None]
        return self.cost_s(next((one for one in compared if one != trial.settings), start))


def minutes_for(seconds: float) -> int:
    """Whole minutes that surely hold so many seconds, the tuner's own start included."""
    return math.ceil(seconds * 1.1 / 60)


def _mean_s(tried: Sequence[CompletedTrial]) -> float:
    return fmean(one.measurement.seconds for one in tried)
