"""Trials side by side, one on each of several cards of one kind.

Each card runs the same settings first: what it measures later is taken relative to that. Both runs of a pair of the
final comparison are made on the same card.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import replace

from tuner_tui.settings.model import Settings
from tuner_tui.tuning.search.search import Search
from tuner_tui.tuning.trial import CompletedTrial, Measurement, Trial


def proposals_on(search: Search, card: str, under_way: Sequence[Trial]) -> tuple[Trial, ...]:
    """Return the trials that may come next on an idle `card` while `under_way` run on others, the best first.

    The trials of `search` are those returned by `comparable`.
    """
    number = 1 + max((trial.number for trial in (*under_way, *(run.trial for run in search.trials))), default=0)
    return tuple(replace(trial, card=card, number=number) for trial in _proposals(search, card, under_way))


def _proposals(search: Search, card: str, under_way: Sequence[Trial]) -> Iterable[Trial]:
    reference = _reference(search.trials)
    if reference is None:  # nothing is known to run yet, and the first trial shows the settings that a script sets
        return () if under_way else search.proposals
    if not any(run.trial.card == card and run.trial.settings == reference for run in search.trials):
        reason = "the same on this GPU, to compare its other runs with"
        return (Trial(number=0, purpose="noise", settings=reference, reason=reason),)
    if any(trial.purpose == "confirm" for trial in search.proposals):
        if any(trial.purpose != "confirm" for trial in under_way):
            return ()
        trial = search.confirming_trial(card, under_way)
        return () if trial is None else (trial,)
    # Of two values of one knob at most one is part of the best settings.
    knobs = {trial.changed[:1] for trial in under_way}
    return (trial for trial in search.proposals if trial.changed[:1] not in knobs)


def _reference(trials: Iterable[CompletedTrial]) -> Settings | None:
    """The settings that each card runs first: the first that were measured."""
    return next((run.trial.settings for run in trials if run.measurement.throughput), None)


def comparable(trials: Sequence[CompletedTrial]) -> tuple[CompletedTrial, ...]:
    """Return the trials with the throughput that they would have on the average card, by its first run.

    These first runs stay as they are, so that the difference between the cards counts as noise.
    """
    reference = _reference(trials)
    first: dict[str | None, CompletedTrial] = {}
    for run in trials:
        if run.trial.card is not None and run.trial.settings == reference and run.measurement.throughput:
            first.setdefault(run.trial.card, run)
    rates = {card: run.measurement.throughput or 1.0 for card, run in first.items()}
    mean = statistics.geometric_mean(rates.values()) if rates else 1.0
    return tuple(
        replace(run, measurement=scaled(run.measurement, mean / rates[run.trial.card]))
        if run.trial.card in rates and run is not first[run.trial.card]
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
