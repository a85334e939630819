"""Start and winner in turn: the order of the runs, the interval of their ratio, and when enough is known."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.benchmarks.tuning.paired_test import BOXES, Box, confirmed
from tests.benchmarks.tuning.simulated_training import GIB
from tests.tuning.search.builders import measured, out_of_memory
from tuner_tui.settings.model import Settings
from tuner_tui.tuning.search.paired_test import MAX_PAIRS, PairedTest, confidence_half_width
from tuner_tui.tuning.search.results import SearchContext, SearchResults, without_transient_failures
from tuner_tui.tuning.search.space import Quiet, SearchSpace
from tuner_tui.tuning.trial import CompletedTrial, Measurement, Purpose, Trial

START, WINNER = Settings(), Settings(torch_compile=True)


def run(purpose: Purpose, settings: Settings, rate: float, spread: float = 0.02) -> CompletedTrial:
    measured = Measurement(outcome="measured", seconds=10.0, tokens_s=rate, spread=spread)
    return CompletedTrial(Trial(number=1, purpose=purpose, settings=settings, reason=""), measured)


def pairs(*confirming: CompletedTrial, earlier: tuple[CompletedTrial, ...] = ()) -> PairedTest:
    return PairedTest(SearchContext(START, SearchSpace(), (*earlier, *confirming)), WINNER)


def in_turn(*ratios: float, drift: float = 1.0) -> list[CompletedTrial]:
    """Pairs in their order, each `drift` times as fast as the one before."""
    made: list[CompletedTrial] = []
    for number, ratio in enumerate(ratios):
        pace = 100.0 * drift**number
        pair = [run("confirm", START, pace), run("confirm", WINNER, pace * ratio)]
        made += pair if number % 2 == 0 else reversed(pair)
    return made


UNEASY = (run("start", START, 88.0), run("noise", START, 99.0), run("knob", WINNER, 99.0))


def test_the_order_within_a_pair_turns() -> None:
    turns: list[Settings] = []
    tried: list[CompletedTrial] = []
    for _ in range(2 * MAX_PAIRS):
        settings = pairs(*tried).next()
        assert settings is not None
        turns.append(settings)
        tried.append(run("confirm", turns[-1], 100.0))
    assert turns[:4] == [START, WINNER, WINNER, START]
    assert turns[4:] == turns[:4]


def test_pairs_that_agree_say_more_than_runs_far_apart_in_time() -> None:
    comparison = pairs(*in_turn(1.070, 1.087, 1.079), earlier=UNEASY)
    assert comparison.context.results.sigma > 0.03
    assert comparison.interval is not None
    ratio, low, high = comparison.interval
    assert ratio == pytest.approx(1.0786, abs=1e-3)
    assert low > 1.02
    assert high < 1.14
    assert comparison.decided


def test_what_drifts_over_both_of_a_pair_does_not_widen_the_interval() -> None:
    still, moving = pairs(*in_turn(1.05, 1.06, 1.05)), pairs(*in_turn(1.05, 1.06, 1.05, drift=1.01))
    assert still.interval is not None
    assert moving.interval is not None
    assert moving.interval[0] == pytest.approx(still.interval[0])
    assert moving.interval[1] == pytest.approx(still.interval[1], abs=0.02)
    assert moving.interval[1] > 1


def test_a_winner_that_is_no_faster_takes_no_further_pair() -> None:
    assert pairs(*in_turn(0.99, 0.995), earlier=UNEASY).decided
    assert not pairs(*in_turn(1.06, 1.01), earlier=UNEASY).decided
    assert pairs(*in_turn(1.06, 1.01, 1.05, 1.0), earlier=UNEASY).decided


def test_a_disturbed_pair_is_run_again_and_does_not_count() -> None:
    steady = in_turn(1.08, 1.08)
    disturbed = [*steady[:2], run("confirm", WINNER, 60.0, spread=0.5), run("confirm", START, 100.0)]
    comparison = pairs(*disturbed)
    assert comparison.ratios == pytest.approx([1.08])
    assert not comparison.decided
    assert not pairs(*disturbed, *in_turn(1.08)).decided, "both steady pairs began with the start"
    assert pairs(*disturbed, *in_turn(1.08, 1.08)).confirmed


def test_pairs_disturbed_by_other_programs_are_replaced_in_the_order_that_is_missing() -> None:
    """Three pairs in a row were disturbed: only one order is left to be measured."""
    quiet = SearchSpace(quiet=Quiet(max_cpu_share=0.15))
    tried: list[CompletedTrial] = []
    for others in (0.0, 0.5, 0.5, 0.5, 0.0):
        test = PairedTest(SearchContext(START, quiet, tuple(tried)), WINNER)
        assert not test.decided
        for _ in range(2):
            settings = PairedTest(SearchContext(START, quiet, tuple(tried)), WINNER).next()
            assert settings is not None
            completed = run("confirm", settings, 640.0 if settings == WINNER else 40.0)
            measurement = replace(completed.measurement, others_cpu_share=others)
            tried.append(replace(completed, measurement=measurement))
    assert [trial.trial.settings == START for trial in tried[::2]] == [True, False, False, False, False]
    test = PairedTest(SearchContext(START, quiet, tuple(tried)), WINNER)
    assert len(test.ratios) == 2
    assert test.confirmed


def test_one_pair_confirms_nothing_however_clear() -> None:
    """A busy machine gave 2.03 times in one pair; six later pairs found no gain."""
    assert not pairs(*in_turn(2.03)).confirmed
    assert pairs(*in_turn(2.03, 2.03)).confirmed


def test_a_gain_within_the_noise_of_the_start_is_not_confirmed() -> None:
    """Pairs agree on 1.06 times, but the start itself came to 100 and 60 in turn."""
    steady, restless = pairs(*in_turn(1.06, 1.06)), pairs(*in_turn(1.06, 1.06, 1.06, 1.06, drift=0.6))
    assert steady.confirmed
    assert restless.start_noise > 0.5
    assert restless.decided
    assert not restless.confirmed


def test_pairs_that_are_all_disturbed_come_to_an_end() -> None:
    tried = [run("confirm", settings, 100.0) for settings in (START, WINNER)]
    tried += [run("confirm", settings, 60.0, 0.5) for settings in (START, WINNER) * (MAX_PAIRS - 1)]
    assert pairs(*tried).decided


differences = st.lists(st.floats(-0.2, 0.2), min_size=1, max_size=4)
bounds = st.tuples(st.floats(0.003, 0.1), st.floats(1.0, 20.0))


@given(differences, bounds)
def test_the_interval_lies_between_those_of_the_least_and_the_most_noise(
    ratios: list[float], bound: tuple[float, float]
) -> None:
    least, most = bound[0], bound[0] * bound[1]
    half = confidence_half_width(ratios, least, most)
    assert 1.9599 * least / math.sqrt(len(ratios)) <= half * (1 + 1e-6)
    assert half <= 1.9601 * most / math.sqrt(len(ratios))


@given(differences.filter(lambda ratios: len(ratios) > 1), bounds, st.floats(0.0, 1.0))
def test_differences_that_agree_more_never_widen_it(
    ratios: list[float], bound: tuple[float, float], closer: float
) -> None:
    mean = sum(ratios) / len(ratios)
    nearer = [mean + closer * (outcome - mean) for outcome in ratios]
    least, most = bound[0], bound[0] * bound[1]
    assert confidence_half_width(nearer, least, most) <= confidence_half_width(ratios, least, most) * (1 + 1e-6)


def test_noise_that_is_known_gives_the_interval_of_the_normal_distribution() -> None:
    assert confidence_half_width([0.1, 0.5, 0.3, 0.2], 0.02, 0.02) == pytest.approx(1.96 * 0.01, rel=1e-4)


@pytest.mark.full
@pytest.mark.parametrize("box", BOXES, ids=lambda box: box.name)
def test_a_winner_that_is_no_faster_is_seldom_confirmed(box: Box) -> None:
    assert sum(confirmed(box, 1.0, seed)[0] for seed in range(300)) <= 0.075 * 300, "5 % and its chance"


def test_on_a_drifting_machine_a_winner_is_confirmed_if_it_is_faster() -> None:
    drifting = next(box for box in BOXES if box.name == "drifting")
    assert sum(confirmed(drifting, 1.05, seed)[0] for seed in range(40)) >= 36
    assert sum(confirmed(drifting, 1.0, seed)[0] for seed in range(40)) <= 4


def test_unsteady_runs_count_at_the_end_if_all_others_are_of_one_order() -> None:
    """The winner ran at 145.9, 159.6, 139.7 and 158.5 against 38: every second one was unsteady."""
    spreads = (0.149, 0.018, 0.136, 0.009)
    tried = in_turn(145.9 / 38, 159.6 / 38, 139.7 / 38, 158.5 / 38)
    for number, spread in enumerate(spreads):
        position = 2 * number + (number + 1) % 2
        rate = tried[position].measurement.tokens_s or 0.0
        tried[position] = run("confirm", WINNER, rate, spread)
    assert len(pairs(*tried[:4]).ratios) == 1, "two more pairs are run"
    assert not pairs(*tried[:4]).decided
    assert len(pairs(*tried).ratios) == 4
    assert pairs(*tried).confirmed


def results(*figures: tuple[float, float]) -> SearchResults:
    """The results of runs with the same settings, from tokens per second and the spread within each run."""
    trial = Trial(number=1, purpose="noise", settings=Settings(), reason="")
    runs = [Measurement(outcome="measured", seconds=9.0, tokens_s=rate, spread=spread) for rate, spread in figures]
    return SearchResults.of([CompletedTrial(trial, run) for run in runs], None)


def test_a_disturbed_run_counts_neither_for_the_speed_nor_for_the_noise() -> None:
    disturbed = results((18_120, 0.454), (40_755, 0.020), (43_750, 0.019))
    assert disturbed.results[0].rates == (40_755, 43_750)
    assert disturbed.noise == pytest.approx(results((40_755, 0.020), (43_750, 0.019)).noise, rel=0.05)


def test_runs_that_are_all_uneasy_are_all_that_is_known() -> None:
    assert len(results((100, 0.4), (150, 0.3)).results[0].rates) == 2


def test_steady_runs_that_differ_are_noise() -> None:
    assert results((100, 0.02), (150, 0.02)).noise > 0.2


SHORT, FAILED = out_of_memory(), Measurement(outcome="failed", seconds=5.0, sentence="Connection reset")


@pytest.mark.parametrize(
    ("runs", "limit_gib", "left"),
    [
        ((measured(10, GIB), SHORT), 24, 1),
        ((measured(10, 23 * GIB), SHORT), 24, 2),  # no accident so close to the limit
        ((measured(10, GIB), SHORT, SHORT), 24, 3),
        ((measured(10, GIB), SHORT), None, 2),
        ((measured(10, GIB, peak_bytes=None), SHORT), 24, 2),
        ((measured(10, GIB), FAILED), 24, 1),
        ((measured(10, GIB), FAILED, FAILED), 24, 3),
        ((SHORT,), 24, 1),
    ],
)
def test_one_failure_among_measured_runs_is_an_accident(
    runs: tuple[Measurement, ...], limit_gib: int | None, left: int
) -> None:
    limit = None if limit_gib is None else limit_gib * GIB
    assert len(without_transient_failures(runs, limit)) == left
