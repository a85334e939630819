"""What holds for every search, whatever the training: on made-up trainings with failures strewn in."""

from __future__ import annotations

import random
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.benchmarks.tuning.batch_search import quantile
from tests.benchmarks.tuning.simulated_training import SimulatedTraining, random_training, recorded
from tests.benchmarks.tuning.tune_quality import AS_FAST, WANTED, searched, tuned
from tuner_tui.settings.model import Settings
from tuner_tui.settings.rules import Problem, find_problems
from tuner_tui.tuning.search.results import same_memory_line
from tuner_tui.tuning.search.search import MAX_TRIALS, Search
from tuner_tui.tuning.search.space import MAX_MICRO
from tuner_tui.tuning.trial import Measurement, Trial, TrialOutcome

TROUBLES: tuple[TrialOutcome, ...] = ("out-of-memory", "failed", "no-step", "aborted", "not-applied")


def run(training: SimulatedTraining, trial: Trial, trouble: float) -> Measurement:
    """The trial, spoilt with the chance `trouble`."""
    rng = random.Random(f"{training.seed} {trial.number}")
    if rng.random() < trouble:
        return Measurement(outcome=rng.choice(TROUBLES), seconds=1.0)
    return training.run(trial.settings, trial.number)


@given(st.integers(0, 10_000_000), st.sampled_from([0.0, 0.0, 0.1, 0.5]))
def test_every_search_ends_proposes_only_what_may_run_and_goes_on_from_its_trials(seed: int, trouble: float) -> None:
    training = random_training(seed)
    space = training.space
    search = Search(training.start, space)
    before = {problem.sentence for problem in _errors(training, search.start)}
    while (trial := search.propose()) is not None:
        assert Search(training.start, space, search.trials).propose() == trial, "built anew from its trials"
        assert trial.number == len(search.trials) + 1
        assert trial.settings.per_device_train_batch_size <= space.max_micro
        assert {problem.sentence for problem in _errors(training, trial.settings)} <= before
        if space.hold_effective_batch:
            assert trial.settings.effective_batch() == training.start.effective_batch()
        search = recorded(search, trial, run(training, trial, trouble))
    assert len(search.trials) <= MAX_TRIALS
    verdict = search.conclusion
    assert verdict.sentence
    assert verdict.winner == training.start or verdict.winner in {
        completed.trial.settings for completed in search.trials
    }
    again = Search(training.start, space, search.trials)
    assert again.propose() is None
    assert again.conclusion == verdict
    assert again.skipped == search.skipped


def test_where_a_size_ran_out_of_memory_no_larger_one_follows_on_its_line() -> None:
    for seed in (8500811, 7811138, *range(9_000_000, 9_000_030)):
        failed: list[Settings] = []
        for completed in searched(random_training(seed))[0].trials:
            now = completed.trial.settings
            sizes = [before.per_device_train_batch_size for before in failed if same_memory_line(before, now)]
            assert now.per_device_train_batch_size < min(sizes, default=MAX_MICRO + 1)
            if completed.measurement.outcome == "out-of-memory":
                failed.append(now)


@pytest.mark.parametrize("count", [8, pytest.param(60, marks=pytest.mark.full)])
def test_targets_over_many_trainings(count: int) -> None:
    outcomes = [tuned(random_training(seed)) for seed in range(5_000_000, 5_000_000 + count)]
    assert statistics.median(outcome.share for outcome in outcomes) >= WANTED
    assert quantile([outcome.share for outcome in outcomes], 0.25) >= WANTED
    assert max(outcome.time_share for outcome in outcomes) <= 0.15
    assert sum(outcome.ooms for outcome in outcomes) <= max(1, 0.1 * count)
    assert all(outcome.chosen >= outcome.start * AS_FAST for outcome in outcomes)


def _errors(training: SimulatedTraining, settings: Settings) -> list[Problem]:
    box = training.space.machine
    problems = find_problems(settings, gpus=box.gpus, interpreter=box.interpreter, job=box.job, cores=training.cores)
    return [outcome for outcome in problems if outcome.severity == "error"]
