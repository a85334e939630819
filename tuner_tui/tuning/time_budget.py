"""Whether the time left is enough for a trial and for the comparison that has to follow it."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from statistics import fmean

from msgspec import Struct

from tuner_tui.runs.events.progress import mean_rates
from tuner_tui.runs.events.run_state import RunState
from tuner_tui.runs.read.reader import RunReader
from tuner_tui.runs.store.record import recorded_runs, redact_job
from tuner_tui.settings.job import Job, same_training
from tuner_tui.settings.model import Settings
from tuner_tui.tuning.search.paired_test import MIN_PAIRS
from tuner_tui.tuning.trial import CompletedTrial, Trial, TrialProtocol

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


class TimeBudget(Struct, frozen=True):
    """`left_s` seconds left after `trials`. `best` are the fastest settings so far, None if none ran."""

    trials: Sequence[CompletedTrial]
    best: Settings | None
    left_s: float

    def fits(self, trial: Trial) -> bool:
        """Return whether there is time for the trial. The very first trial is always run."""
        return not self.trials or self.needed_s(trial) <= self.left_s

    def needed_s(self, trial: Trial) -> float:
        """Return the seconds for the trial and for what has to follow it to make it useful."""
        return SLACK * self.expected_s(trial.settings) + self._following_s(trial)

    def expected_s(self, settings: Settings) -> float:
        """Return the expected seconds of a trial, from the most similar ones so far.

        Trials that were not measured ended early; they count only if there are no others.
        """
        trials = [completed for completed in self.trials if completed.measurement.outcome == "measured"] or self.trials
        same = [completed for completed in trials if completed.trial.settings == settings]
        if same:
            return _mean_s(same)
        similar = [
            completed for completed in trials if completed.trial.settings.torch_compile == settings.torch_compile
        ]
        factor = COMPILE_FACTOR if settings.torch_compile and not similar else 1.0
        start = self.trials[0]
        growth = settings.effective_batch() / start.trial.settings.effective_batch() - 1  # steps of more samples
        longer_s = MIN_STEPS * max(0.0, growth) * (start.measurement.step_time_s or 0.0)
        return _mean_s(similar or trials) * factor + longer_s

    def _following_s(self, trial: Trial) -> float:
        """The seconds for the comparison after the trial, which may itself be the winner, and the check of its preset.

        Fewer than `MIN_PAIRS` pairs confirm nothing.
        """
        start_s, start_ran = self.expected_s(self.trials[0].trial.settings), self.trials[0].measurement.throughput
        if trial.purpose == "confirm":
            done = 1 + sum(completed.trial.purpose == "confirm" for completed in self.trials)
            following = max(2 * MIN_PAIRS - done, done % 2) if start_ran else 0
            return following * (start_s + self.expected_s(self.best or trial.settings)) / 2
        if self.best is None:
            return 0.0
        if trial.purpose == "noise":  # useful only if several changes can be tried after it
            return TRIALS_AFTER_NOISE * start_s
        winner_s = max(self.expected_s(self.best), self.expected_s(trial.settings))
        slack_s = (SLACK - 1) * max(start_s, winner_s)  # without it, the first run of a pair could not begin
        return MIN_PAIRS * (start_s + winner_s) + winner_s + slack_s


def least_minutes(trial_s: float | None) -> int:
    """Return the whole minutes of the shortest tuning that makes sense; `trial_s` is None before any run of the job.

    That is the start, a change, the comparison and the check of the preset, with the slack that these need.
    """
    trials = 3 + 2 * MIN_PAIRS + 2 * (SLACK - 1)
    return minutes_for(trials * (SHORTEST_TRIAL_S if trial_s is None else trial_s))


def give_up_s(expected_s: float) -> float:
    """Return the seconds after which a trial is given up that was expected to take `expected_s`."""
    return max(GIVE_UP_FACTOR * expected_s, expected_s + MIN_EXCESS_S)


def minutes_for(seconds: float) -> int:
    """Return the whole minutes that hold so many seconds, with 10 % for starting the tuner."""
    return math.ceil(seconds * 1.1 / 60)


def _mean_s(trials: Sequence[CompletedTrial]) -> float:
    return fmean(completed.measurement.seconds for completed in trials)


MAX_READ = 8
"""Newest trials of the same job that are read."""


def expected_trial_s(job: Job, root: Path) -> float | None:
    """Return the usual seconds of the newest trials of `job` in `root`, else what its newest runs say a trial takes.

    None if there are none. Reads files.
    """
    redacted = redact_job(job)
    same = [
        (folder, record.tuning is not None)
        for folder, record in recorded_runs(root)
        if same_training(record.job, redacted)
    ]
    for measures, is_trial in ((_length_s, True), (_shortest_trial_s, False)):
        folders = islice((folder for folder, of_tuning in same if of_tuning == is_trial), MAX_READ)
        lengths = [s for folder in folders if (s := measures(RunReader(folder).poll().state)) is not None]
        if lengths:
            return statistics.median(lengths)
    return None


def _length_s(state: RunState) -> float | None:
    if state.launched_t is None or state.finished is None or not state.step:
        return None
    return max(0.0, state.finished.t - state.launched_t)


def _shortest_trial_s(state: RunState) -> float | None:
    """Return the start of a run, and the steps that a trial takes at its mean speed, measured as long as it may be."""
    speed, first_s = mean_rates(state.ranks.values()), state.first_step_t
    if state.launched_t is None or first_s is None or speed.step_time_s is None:
        return None
    return first_s - state.launched_t + max(TrialProtocol().most_s, MIN_STEPS * speed.step_time_s)
