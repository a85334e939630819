"""Whether the time left is enough for a trial and for the comparison that has to follow it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from tuner_tui.settings.model import Settings
from tuner_tui.tuning.search.paired_test import MIN_PAIRS
from tuner_tui.tuning.trial import CompletedTrial, Measurement, Trial

SLACK = 1.3
"""Safety factor on the expected time of a trial."""
COMPILE_FACTOR = 3.0
"""Factor on the time of a trial that compiles, until one was run."""
MIN_STEPS = 4
"""Optimizer steps that every trial takes, warm-up included, however long they are."""
SHORTEST_TRIAL_S = 5.0
"""Seconds of the shortest trial: Python and torch are imported, and a second of training is measured."""
GIVE_UP_FACTOR = 4.0
"""Factor on the expected time of a trial after which it is given up,"""
MIN_EXCESS_S = 30.0
"""but not before it has taken so many seconds more than expected."""
TRIALS_AFTER_NOISE = 7
"""Trials, each as long as the start's, that must still be possible after the start is repeated for the noise."""


@dataclass(frozen=True, slots=True)
class TimeBudget:
    """`left_s` seconds left after `trials`. `best` are the fastest settings so far, None if none ran."""

    trials: Sequence[CompletedTrial]
    best: Settings | None
    left_s: float

    def fits(self, trial: Trial) -> bool:
        """Return whether there is time for the trial. The very first trial is always run."""
        return not self.trials or self.needed_s(trial) <= self.left_s

    def needed_s(self, trial: Trial) -> float:
        """Return the seconds for the trial and for what has to follow it to make it useful."""
        return SLACK * self.expected_s(trial.settings) + self._comparison_s(trial)

    def expected_s(self, settings: Settings) -> float:
        """Return the expected seconds of a trial, from the most similar ones so far.

        Trials that were not measured ended early; they count only if there are no others.
        """
        trials = [one for one in self.trials if one.measurement.outcome == "measured"] or self.trials
        same = [one for one in trials if one.trial.settings == settings]
        if same:
            return _mean_s(same)
        similar = [one for one in trials if one.trial.settings.torch_compile == settings.torch_compile]
        factor = COMPILE_FACTOR if settings.torch_compile and not similar else 1.0
        return _mean_s(similar or trials) * factor + self._longer_steps_s(settings)

    def _longer_steps_s(self, settings: Settings) -> float:
        """The extra seconds of a trial whose steps have more samples than the start's."""
        start = self.trials[0]
        growth = settings.effective_batch() / start.trial.settings.effective_batch() - 1
        return MIN_STEPS * max(0.0, growth) * (start.measurement.step_time_s or 0.0)

    def _comparison_s(self, trial: Trial) -> float:
        """The seconds for comparing start and winner after the trial, which may be the winner itself.

        Fewer than `MIN_PAIRS` confirm nothing. A preset is run once more after it is written.
        """
        start = self.trials[0].trial.settings
        winner = self.best or start
        if trial.purpose == "confirm":
            return self._rest_of_pairs_s(trial)
        if self.best is None:
            return 0.0
        if trial.purpose == "noise":  # useful only if several changes can be tried after it
            return TRIALS_AFTER_NOISE * self.expected_s(start)
        start_s = self.expected_s(start)
        winner_s = max(self.expected_s(winner), self.expected_s(trial.settings))
        slack_s = (SLACK - 1) * max(start_s, winner_s)  # without it, the first run of a pair could not begin
        return MIN_PAIRS * (start_s + winner_s) + winner_s + slack_s

    def _rest_of_pairs_s(self, trial: Trial) -> float:
        """The seconds from the end of a confirming trial to the next point at which the comparison may end."""
        start = self.trials[0].trial.settings
        if self.trials[0].measurement.outcome != "measured":
            return 0.0
        confirmed = [one.trial.settings for one in self.trials if one.trial.purpose == "confirm"]
        compared = [settings for settings in (*reversed(confirmed), trial.settings, self.best) if settings is not None]
        winner = next((one for one in compared if one != start), start)
        done = len(confirmed) + 1
        following = range(done, max(2 * MIN_PAIRS, done + done % 2))
        runs = (start if number % 4 in (0, 3) else winner for number in following)  # the order of a pair alternates
        return sum(map(self.expected_s, runs))


def least_s(trial_s: float) -> float:
    """Return the seconds of the shortest tuning that may confirm something, if each trial takes `trial_s`.

    That is the start, and a change with the comparison that has to follow it.
    """
    settings = Settings()
    start = CompletedTrial(
        Trial(number=1, purpose="start", settings=settings, reason=""), Measurement(outcome="measured", seconds=trial_s)
    )
    change = Trial(number=2, purpose="knob", settings=settings, reason="")
    return trial_s + TimeBudget([start], settings, 0.0).needed_s(change)


def least_minutes(trial_s: float | None) -> int:
    """Return the whole minutes of the shortest tuning that makes sense; `trial_s` is None before any run of the job."""
    return minutes_for(least_s(SHORTEST_TRIAL_S if trial_s is None else trial_s))


def give_up_s(expected_s: float) -> float:
    """Return the seconds after which a trial is given up that was expected to take `expected_s`."""
    return max(GIVE_UP_FACTOR * expected_s, expected_s + MIN_EXCESS_S)


def minutes_for(seconds: float) -> int:
    """Return the whole minutes that hold so many seconds, with 10 % for starting the tuner."""
    return math.ceil(seconds * 1.1 / 60)


def _mean_s(trials: Sequence[CompletedTrial]) -> float:
    return fmean(one.measurement.seconds for one in trials)
