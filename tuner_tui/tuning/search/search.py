"""The search for the fastest settings that fit: proposes trials and records their measurements.

A search is a pure, immutable value. All it knows is the list of trials, so a search rebuilt from that list continues
where it was. The README of `tuner_tui.tuning` describes its states.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from functools import cached_property

from msgspec.structs import replace

from tuner_tui.settings.model import Settings
from tuner_tui.tuning.search.baseline import next_baseline_trial, refused_trial
from tuner_tui.tuning.search.candidates import Candidates
from tuner_tui.tuning.search.conclusion import Confirmation
from tuner_tui.tuning.search.paired_test import MAX_PAIRS, MIN_PAIRS
from tuner_tui.tuning.search.results import SearchContext
from tuner_tui.tuning.trial import CompletedTrial, Measurement, SkippedChange, Trial, TuningConclusion

MAX_CHANGES = 52
"""Trials after which nothing more is changed, so that what was found is confirmed."""
MAX_TRIALS = MAX_CHANGES + 4 * MAX_PAIRS
"""With those that were under way on other GPUs, and pairs that are run anew."""


class Search(SearchContext, frozen=True, dict=True):
    """What to do next in a search, and what it concludes.

    With `compare_only`, nothing more is changed: start and the best settings so far are compared, for lack of time.
    """

    compare_only: bool = False

    def propose(self) -> Trial | None:
        """Return the next trial, or None at the end of the search."""
        return next(iter(self.proposals), None)

    @cached_property
    def proposals(self) -> tuple[Trial, ...]:
        """The trials that may come next, the best first; a later one may be run if there is no time for the first."""
        return tuple(replace(trial, number=len(self.trials) + 1) for trial in self._proposals())

    def confirming_trial(self, gpu: str | None = None, under_way: Sequence[Trial] = ()) -> Trial | None:
        """Return the next run of start or winner, on `gpu` while `under_way` run on others; None if there is none."""
        return self._confirmation.next(gpu, under_way)

    @cached_property
    def skipped(self) -> tuple[SkippedChange, ...]:
        return (*self.space.rejected, *self._candidates.skipped())

    @cached_property
    def conclusion(self) -> TuningConclusion:
        """The conclusion from the trials so far, as if the search ended here."""
        why = ""
        if self.compare_only:
            why = ": the time limit left too little for another trial and its comparison"
        elif not self.proposals:
            why = ": nothing else can be tried here"
        return self._confirmation.conclusion(why)

    def remaining_s(self) -> tuple[float, float] | None:
        """Return the minimum and maximum seconds still needed; None before the first measurement."""
        seconds = [
            completed.measurement.seconds for completed in self.trials if completed.measurement.outcome != "aborted"
        ]
        if not seconds:
            return None
        mean = sum(seconds) / len(seconds)
        low, high = self._trials_left()
        return low * mean, high * mean

    @cached_property
    def _candidates(self) -> Candidates:
        return Candidates(self)

    @cached_property
    def _confirmation(self) -> Confirmation:
        return Confirmation(self)

    def _proposals(self) -> Sequence[Trial]:
        if len(self.trials) >= MAX_TRIALS or refused_trial(self.trials) is not None:
            return ()
        baseline = next_baseline_trial(self)
        if baseline is not None and baseline.purpose != "noise":
            return (baseline,)
        if self.best is None:
            return ()
        # The state is not stored: each call derives it from the trials. The first confirming trial ends the changes for
        # good, because a new best after it would start the comparison again, perhaps without end on a noisy machine.
        confirming = any(completed.trial.purpose == "confirm" for completed in self.trials)
        if not confirming and not self.compare_only and len(self.trials) < MAX_CHANGES:
            # The repeat for the noise comes first, but gives way to a change if time is short.
            first = () if baseline is None else (baseline,)
            changes = (*first, *self._candidates.repeats(), *self._candidates.trials())
            if changes:
                return changes
        last = self.confirming_trial()
        return () if last is None else (last,)

    def _trials_left(self) -> tuple[int, int]:
        following, winner = self.propose(), self._confirmation.candidate
        if following is None:
            return 0, 0
        confirmed = sum(completed.trial.purpose == "confirm" for completed in self.trials)
        is_change = winner is not None and winner.settings != self.start
        low, high = max(0, 2 * MIN_PAIRS - confirmed) if is_change else 0, max(0, 2 * MAX_PAIRS - confirmed)
        if following.purpose == "confirm":
            return low, high
        baseline = 1 if following.purpose in ("start", "noise") else 0
        changes = len(self._candidates.changes()) if self.best else 4
        return baseline + low + min(changes, 1), baseline + high + changes + 2


def proposals_on(search: Search, gpu: str, under_way: Sequence[Trial]) -> tuple[Trial, ...]:
    """Return the trials that may come next on an idle `gpu` while `under_way` run on others, the best first.

    The trials of `search` are those returned by `comparable`.
    """
    number = 1 + max((trial.number for trial in (*under_way, *(run.trial for run in search.trials))), default=0)
    return tuple(replace(trial, gpu=gpu, number=number) for trial in _proposals(search, gpu, under_way))


def _proposals(search: Search, gpu: str, under_way: Sequence[Trial]) -> Iterable[Trial]:
    reference = _reference(search.trials)
    if reference is None:  # nothing is known to run yet, and the first trial shows the settings that a script sets
        return () if under_way else search.proposals
    if not any(run.trial.gpu == gpu and run.trial.settings == reference for run in search.trials):
        reason = "the current settings on this GPU, to compare its other runs with"
        return (Trial(number=0, purpose="noise", settings=reference, reason=reason),)
    if any(trial.purpose == "confirm" for trial in search.proposals):
        if any(trial.purpose != "confirm" for trial in under_way):
            return ()
        trial = search.confirming_trial(gpu, under_way)
        return () if trial is None else (trial,)
    # Of two values of one knob at most one is part of the best settings.
    knobs = {trial.changed[:1] for trial in under_way}
    return (trial for trial in search.proposals if trial.changed[:1] not in knobs)


def _reference(trials: Iterable[CompletedTrial]) -> Settings | None:
    """The settings that each GPU runs first: the first that were measured."""
    return next((run.trial.settings for run in trials if run.measurement.throughput), None)


def comparable(trials: Sequence[CompletedTrial]) -> tuple[CompletedTrial, ...]:
    """Return the trials with the throughput that they would have on the average GPU, by its first run.

    These first runs stay as they are, so that the difference between the GPUs counts as noise.
    """
    reference = _reference(trials)
    first: dict[str | None, CompletedTrial] = {}
    for run in trials:
        if run.trial.gpu is not None and run.trial.settings == reference and run.measurement.throughput:
            first.setdefault(run.trial.gpu, run)
    rates = {gpu: run.measurement.throughput or 1.0 for gpu, run in first.items()}
    mean = statistics.geometric_mean(rates.values()) if rates else 1.0
    return tuple(
        replace(run, measurement=scaled(run.measurement, mean / rates[run.trial.gpu]))
        if run.trial.gpu in rates and run is not first[run.trial.gpu]
        else run
        for run in trials
    )


def scaled(run: Measurement, factor: float) -> Measurement:
    """Return the measurement with `factor` times the throughput."""
    return replace(
        run,
        samples_s=None if run.samples_s is None else run.samples_s * factor,
        tokens_s=None if run.tokens_s is None else run.tokens_s * factor,
        step_time_s=None if run.step_time_s is None else run.step_time_s / factor,
    )
