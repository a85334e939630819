"""The search with several trials at once, on simulated trainings and cards."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from tests.benchmarks.tuning.parallel_speed import Machine, serial, tuned_on
from tests.benchmarks.tuning.simulated_training import random_training
from tests.tuning.search.builders import measured, space
from tuner_tui.settings.model import Settings
from tuner_tui.tuning.parallel.parallel_search import MAX_LOSSES, ParallelSearch, comparable
from tuner_tui.tuning.search.results import SearchContext
from tuner_tui.tuning.search.search import Search
from tuner_tui.tuning.trial import CompletedTrial, Measurement, Trial

START = Settings(per_device_train_batch_size=8)
CARDS = ("GPU-a", "GPU-b", "GPU-c")


def start_run(card: str, rate: float, number: int = 1) -> CompletedTrial:
    trial = Trial(number=number, purpose="noise", settings=START, reason="", card=card)
    return CompletedTrial(trial, measured(rate))


def fresh(cards: tuple[str, ...] = CARDS) -> ParallelSearch:
    return ParallelSearch(START, space(START), cards)


@pytest.mark.parametrize("seed", [3, 5_000_001])
def test_one_card_gets_what_the_search_proposes_one_after_another(seed: int) -> None:
    training = random_training(seed)
    alone = Search(training.start, training.space)
    search = ParallelSearch(training.start, training.space, CARDS[:1])
    while (expected := alone.propose()) is not None:
        (trial,) = search.propose(CARDS[:1])
        assert (trial.settings, trial.number) == (expected.settings, expected.number)
        found = training.run(trial.settings, trial.number)
        # The machine has one card, so its figures are those of the average card.
        alone = alone.record(expected, found)
        search = search.started(trial).record(trial, found)
    assert search.finished
    assert search.conclusion.winner == alone.conclusion.winner
    assert search.conclusion.ratio == pytest.approx(alone.conclusion.ratio)


@pytest.mark.parametrize("seed", [5_000_007])
def test_several_cards_find_what_one_finds_in_less_time(seed: int) -> None:
    training = random_training(seed)
    one = serial(training)
    found = tuned_on(Machine(training, tuple(f"GPU-{number}" for number in range(4))))
    assert found.search.finished
    rates = [search.conclusion.best.throughput for search in (found.search, one) if search.conclusion.best is not None]
    assert rates[0] is not None
    assert rates[1] is not None
    assert rates[0] >= 0.9 * rates[1]
    assert found.seconds < 0.8 * sum(each.measurement.seconds for each in one.trials)


@pytest.mark.parametrize("seed", [12])
def test_answers_in_any_order_and_lost_workers(seed: int) -> None:
    training, rng = random_training(seed), random.Random(seed)
    search = ParallelSearch(training.start, training.space, CARDS)
    for _ in range(400):
        busy = [one.card for one in search.under_way]
        for trial in search.propose([card for card in CARDS if card not in busy]):
            assert trial.card not in busy, "at most one trial on a card"
            busy.append(trial.card)
            search = search.started(trial)
        if search.finished:
            break
        trial = rng.choice(search.under_way)
        found = training.run(trial.settings, trial.number)
        search = search.lose(trial) if rng.random() < 0.1 else search.record(trial, found)
    assert search.finished
    numbers = [one.trial.number for one in search.trials]
    assert len(set(numbers)) == len(numbers)
    cards = {one.trial.number: one.trial.card for one in search.trials}
    compared = [one.trial for one in search.path.trials if one.trial.purpose == "confirm"]
    places = {(one.trial.base, one.trial.pair): cards[one.trial.number] for one in search.trials}
    for (base, pair), card in places.items():
        if compared and pair is not None and pair % 2:
            assert card == places[base, pair - 1], "both runs of a pair are made on the same card"


def test_a_lost_trial_is_proposed_again_twice_and_then_has_failed() -> None:
    search = fresh(CARDS[:1])
    (trial,) = search.propose(CARDS[:1])
    for _ in range(MAX_LOSSES):
        search = search.started(trial).lose(trial)
        assert search.propose(CARDS[:1]) == (trial,)
    search = search.started(trial).lose(trial)
    assert [one.measurement.outcome for one in search.trials] == ["failed"]
    assert search.trials[0].measurement.passing


def test_the_trial_of_a_card_that_vanished_runs_on_another() -> None:
    search = fresh()
    trials = search.propose(CARDS)
    assert [one.card for one in trials] == list(CARDS)
    for trial in trials:
        search = search.started(trial)
    for trial in trials:
        search = search.record(trial, measured(100.0))
    change = search.propose(CARDS)[0]
    left = replace(search.started(change).lose(change), cards=tuple(one for one in CARDS if one != change.card))
    again = left.propose(left.cards)[0]
    assert (again.settings, again.number) == (change.settings, change.number)
    assert again.card in left.cards


def test_a_result_is_taken_relative_to_its_own_cards_start() -> None:
    changed = Trial(number=3, purpose="knob", settings=START.changed(torch_compile=True), reason="", card="GPU-b")
    trials = (start_run("GPU-a", 100.0), start_run("GPU-b", 121.0, 2), CompletedTrial(changed, measured(121.0)))
    found = comparable(trials, START)
    # The average card makes 110: the geometric mean of 100 and 121.
    assert found[2].measurement.samples_s == pytest.approx(110.0)
    assert [one.measurement.samples_s for one in found[:2]] == [100.0, 121.0], "the difference counts as noise"


def test_the_difference_between_cards_counts_as_noise() -> None:
    trials = tuple(start_run(card, rate) for card, rate in zip(CARDS, (100.0, 104.0, 108.0), strict=True))
    results = SearchContext(START, space(START), comparable(trials, START)).results
    # The logarithms of 100, 104 and 108 deviate by a sum of squares of 0.00296; the prior's is 2 × (0.005 / 1.96)².
    sigma = ((2 * (0.005 / 1.96) ** 2 + 0.00296) / (2 + 2)) ** 0.5
    assert results.sigma == pytest.approx(sigma, rel=0.01)


def test_a_start_that_does_not_fit_is_followed_by_smaller_ones() -> None:
    search = fresh()
    for trial in search.propose(CARDS):
        search = search.started(trial)
    for trial in search.under_way:
        search = search.record(trial, Measurement(outcome="out-of-memory", seconds=5.0))
    proposed = search.propose(CARDS)
    assert proposed
    assert all(one.settings.per_device_train_batch_size < 8 for one in proposed)
