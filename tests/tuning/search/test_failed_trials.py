"""Searches that meet trouble: out of memory at any moment, failures, commands that take no settings, aborted trials."""

from __future__ import annotations

import pytest

from tests.benchmarks.tuning.simulated_training import GIB, recorded
from tests.tuning.search.builders import (
    GPU,
    linear_measurement,
    measured,
    out_of_memory,
    purposes,
    run_search,
    sizes,
    space,
)
from tuner_tui.settings.model import Settings
from tuner_tui.tuning.search.search import MAX_TRIALS, Search
from tuner_tui.tuning.trial import Measurement, Trial

START = Settings(per_device_train_batch_size=64)


def ended(outcome: str, sentence: str = "", **changes: object) -> Measurement:
    return Measurement(outcome=outcome, seconds=3.0, sentence=sentence, **changes)  # type: ignore[arg-type]


def test_a_start_that_does_not_fit_falls_with_its_effective_batch_held() -> None:
    search = run_search(Search(START, space(START)), linear_measurement)
    assert search.trials[0].measurement.outcome == "out-of-memory"
    assert search.trials[1].trial.purpose == "batch"
    assert "effective batch kept" in search.trials[1].trial.reason
    assert {completed.trial.settings.effective_batch() for completed in search.trials} == {64}
    assert search.conclusion.winner.per_device_train_batch_size == 16
    assert search.conclusion.ratio is None
    assert search.conclusion.sentence.startswith("The current settings do not run here")


def test_where_one_sample_does_not_fit_checkpointing_is_tried() -> None:
    def run(trial: Trial) -> Measurement:
        sample = GIB if trial.settings.gradient_checkpointing else 40 * GIB
        return linear_measurement(trial, sample=sample)

    start = Settings(per_device_train_batch_size=4)
    search = run_search(Search(start, space(start)), run)
    assert search.conclusion.winner.gradient_checkpointing
    assert search.conclusion.winner.effective_batch() == 4


def test_where_nothing_fits_it_says_so() -> None:
    search = run_search(Search(START, space(START)), lambda trial: out_of_memory())
    assert search.best is None
    assert search.conclusion.winner == START
    assert "Not even the smallest" in search.conclusion.sentence
    assert len(search.trials) <= 8


def test_where_all_that_ran_left_too_little_memory_it_does_not_say_that_nothing_fits() -> None:
    start = Settings(per_device_train_batch_size=1, gradient_accumulation_steps=1)
    runs = iter((measured(100.0, int(0.99 * GPU)),))
    search = run_search(Search(start, space(start)), lambda trial: next(runs, out_of_memory()))
    assert "left too little memory free" in search.conclusion.sentence


def test_without_a_known_bound_of_memory_it_falls_by_halves() -> None:
    start = Settings(per_device_train_batch_size=64)
    bare = space(start)
    unknown = type(bare)(machine=bare.machine, candidates=bare.candidates)
    search = run_search(Search(start, unknown), linear_measurement)
    assert sizes(search)[:3] == [64, 32, 16]
    assert search.conclusion.winner.per_device_train_batch_size <= 16


def killed() -> Measurement:
    return ended("failed", "Killed by SIGKILL.", passing=True)


def test_a_start_that_was_killed_is_run_once_more_and_goes_on() -> None:
    outcomes = iter((killed(),))
    search = run_search(
        Search(Settings(), space(Settings())), lambda trial: next(outcomes, None) or linear_measurement(trial)
    )
    assert purposes(search)[:3] == ["start", "start", "noise"]
    assert "the current settings again" in search.trials[1].trial.reason
    assert search.conclusion.start is not None
    assert search.conclusion.start.outcome == "measured"


def test_a_start_that_is_killed_each_time_ends_it_with_what_to_do() -> None:
    start = Settings(per_device_train_batch_size=1)
    search = run_search(Search(start, space(start)), lambda trial: killed())
    assert purposes(search) == ["start", "start"]
    assert search.conclusion.sentence.startswith("Killed by SIGKILL. Make sure that no other program")


@pytest.mark.parametrize("at", [2, 3, 4, 5, 6])
def test_a_run_that_fails_once_does_not_end_what_was_measured_before(at: int) -> None:
    """The same settings are simply run again; the verdict is that of an undisturbed tuning."""
    start = Settings(gradient_accumulation_steps=8, per_device_train_batch_size=2)
    calm = run_search(Search(start, space(start)), linear_measurement).conclusion
    failures = iter((ended("failed", "Killed by SIGKILL.", passing=True),))

    def run(trial: Trial) -> Measurement:
        repeated = any(completed.trial.settings == trial.settings for completed in search.trials)
        hit = trial.number >= at and repeated
        return (next(failures, None) if hit else None) or linear_measurement(trial)

    search = Search(start, space(start))
    while (trial := search.propose()) is not None:
        search = recorded(search, trial, run(trial))
    assert sum(completed.measurement.outcome == "failed" for completed in search.trials) == 1
    assert calm is not None
    assert search.conclusion.winner == calm.winner
    assert search.conclusion.ratio is not None


def test_a_start_that_ran_out_of_memory_far_below_the_limit_is_run_once_more() -> None:
    """Another program held the GPU for a moment: what fewer samples took proves that it fits."""
    start = Settings(per_device_train_batch_size=4)
    outcomes = iter((out_of_memory(),))
    search = run_search(
        Search(start, space(start)), lambda trial: next(outcomes, None) or linear_measurement(trial, base=GIB)
    )
    assert [completed.trial.settings.per_device_train_batch_size for completed in search.trials[:3]][1] < 4
    assert search.trials[2].trial.settings == start
    assert search.conclusion.start is not None
    assert search.conclusion.start.outcome == "measured"
    assert not search.conclusion.sentence.startswith("The current settings do not run here")


def test_a_start_that_fails_may_run_with_a_smaller_micro_batch() -> None:
    def run(trial: Trial) -> Measurement:
        return (
            linear_measurement(trial, sample=GIB // 8)
            if trial.settings.per_device_train_batch_size < 64
            else ended("failed")
        )

    search = run_search(Search(START, space(START)), run)
    assert search.conclusion.winner.per_device_train_batch_size == 32


def test_a_command_that_takes_no_settings_ends_it_in_plain_words() -> None:
    search = run_search(
        Search(START, space(START)), lambda trial: ended("not-applied", "It trained with batches of 8.")
    )
    assert purposes(search) == ["start"]
    assert "ignores the settings" in search.conclusion.sentence
    assert "batches of 8" in search.conclusion.sentence


def test_a_micro_batch_that_is_not_taken_ends_it() -> None:
    start = Settings(gradient_accumulation_steps=8)

    def run(trial: Trial) -> Measurement:
        return (
            linear_measurement(trial)
            if trial.purpose in ("start", "noise")
            else ended("not-applied", "Still 8 at once.")
        )

    search = run_search(Search(start, space(start)), run)
    assert purposes(search) == ["start", "noise", "batch"]
    assert "Still 8 at once." in search.conclusion.sentence


def test_a_knob_that_is_not_taken_is_left_with_what_was_said() -> None:
    start = Settings(gradient_accumulation_steps=1)

    def run(trial: Trial) -> Measurement:
        if trial.settings.precision == "bf16":
            return ended("not-applied", "Autocast is off.", not_applied=("precision",))
        return measured(100.0)

    search = run_search(Search(start, space(start)), run)
    assert sum(completed.trial.settings.precision == "bf16" for completed in search.trials) == 1
    assert ("precision", "Autocast is off.") in {(entry.knob, entry.reason) for entry in search.skipped}
    assert search.conclusion.winner.precision == "fp32"


def test_out_of_memory_in_the_confirmation_falls_back_to_the_next_smaller_size() -> None:
    start = Settings(gradient_accumulation_steps=8, per_device_train_batch_size=2)

    def run(trial: Trial) -> Measurement:
        large = trial.settings.per_device_train_batch_size > 8
        return out_of_memory() if large and trial.purpose == "confirm" else linear_measurement(trial)

    search = run_search(Search(start, space(start)), run)
    assert 16 in sizes(search)
    assert search.conclusion.winner.per_device_train_batch_size < 16
    assert search.conclusion.best is not None
    assert search.conclusion.best.outcome == "measured"


def test_a_winner_that_is_no_faster_in_turn_gives_way_to_the_start() -> None:
    start = Settings(gradient_accumulation_steps=8)

    def run(trial: Trial) -> Measurement:
        later = trial.purpose == "confirm" and trial.settings != start
        return measured(70.0) if later else linear_measurement(trial)

    search = run_search(Search(start, space(start)), run)
    assert "confirm" in purposes(search)
    assert search.conclusion.winner == start
    assert "the current ones are kept" in search.conclusion.sentence


def test_a_box_that_became_faster_does_not_end_the_comparison_half_way() -> None:
    """The start's confirming run is faster than the winner was: the winner has its turn all the same."""
    start = Settings(gradient_accumulation_steps=8)

    def run(trial: Trial) -> Measurement:
        figures = linear_measurement(trial)
        pace = 3.0 if trial.purpose == "confirm" else 1.0
        return measured((figures.samples_s or 0.0) * pace, figures.peak_bytes or 0)

    search = run_search(Search(start, space(start)), run)
    assert purposes(search).count("confirm") >= 4
    assert search.conclusion.ratio == pytest.approx((16 / 0.18) / (8 / 0.1))
    assert search.conclusion.winner.per_device_train_batch_size == 16


def test_an_aborted_trial_is_proposed_again() -> None:
    search = Search(START, space(START))
    first = search.proposals[0]
    again = recorded(search, first, ended("aborted")).proposals[0]
    assert (again.purpose, again.settings, again.number) == ("start", START, 2)


def test_trials_that_are_always_aborted_come_to_an_end() -> None:
    search = run_search(Search(START, space(START)), lambda trial: ended("aborted"))
    assert len(search.trials) == MAX_TRIALS
    assert not search.proposals
