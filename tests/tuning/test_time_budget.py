"""Little time well spent: what is left out first, what is kept for the comparison, and what is said at the end."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from tests.benchmarks.tuning.simulated_training import SimulatedTraining, random_training
from tests.fakes.inventories import box
from tests.fakes.listed_search import RUNNER, measured
from tuner_tui.cli.commands.tune import follow_tuning
from tuner_tui.cli.console import Interrupts
from tuner_tui.hardware.inventory import Inventory
from tuner_tui.settings.model import Settings
from tuner_tui.tuning.search.search import Search
from tuner_tui.tuning.store import TuningFolder
from tuner_tui.tuning.time_budget import TimeBudget, give_up_s
from tuner_tui.tuning.trial import CompletedTrial, Measurement, Trial, TuningConclusion
from tuner_tui.tuning.trial_log import TrialLog, TuningEnded, TuningStarted
from tuner_tui.tuning.trial_runner import TrialCallbacks, TrialReport, TrialRunner
from tuner_tui.tuning.tuner import TrialHistory, Tuner

START, FASTER, OTHER = Settings(), Settings(dataloader_num_workers=2), Settings(dataloader_num_workers=4)


def run(settings: Settings, speed: float, seconds: float = 30.0) -> CompletedTrial:
    return CompletedTrial(Trial(number=1, purpose="knob", settings=settings, reason=""), measured(speed, seconds))


def trial(purpose: str, settings: Settings) -> Trial:
    return Trial(number=2, purpose=purpose, settings=settings, reason="")  # type: ignore[arg-type]


def test_with_little_time_a_change_is_tried_before_the_start_is_run_again() -> None:
    short = TimeBudget([run(START, 100)], START, left_s=240.0)
    assert not short.fits(trial("noise", START))
    assert short.fits(trial("knob", FASTER))
    assert TimeBudget([run(START, 100)], START, left_s=480.0).fits(trial("noise", START))


def test_the_pair_that_a_trial_is_kept_for_may_begin_after_it() -> None:
    """What is left after the trial holds a pair even if its first run takes as long as it may."""
    tried = [run(START, 100), run(FASTER, 150)]
    needed = TimeBudget(tried, FASTER, 0.0).needed_s(trial("knob", OTHER))
    after = TimeBudget([*tried, run(OTHER, 140)], FASTER, left_s=needed - 1.3 * 30.0)
    assert after.fits(trial("confirm", START))


@pytest.mark.parametrize("speed", [105.0, 300.0])
def test_time_is_kept_for_two_pairs_and_the_check_of_the_preset(speed: float) -> None:
    budget = TimeBudget([run(START, 100), run(FASTER, speed)], FASTER, left_s=0.0)
    assert budget.needed_s(trial("knob", OTHER)) == pytest.approx(1.3 * 30 + 2 * 60 + 30 + 0.3 * 30)


def test_a_comparison_begins_only_if_its_second_pair_can_end() -> None:
    tried = [run(START, 100, seconds=20.0), run(FASTER, 300, seconds=40.0)]
    begun = trial("confirm", START)
    first = TimeBudget(tried, FASTER, 0.0).needed_s(begun)
    assert first == pytest.approx(1.3 * 20 + 3 * 30), "winner, winner, start take 30 s in the mean"
    one = [CompletedTrial(trial("confirm", one.trial.settings), one.measurement) for one in tried]
    later = TimeBudget([*tried, *one], FASTER, 0.0).needed_s(trial("confirm", FASTER))
    assert later == pytest.approx(1.3 * 40 + 30)


@dataclass
class Clock:
    """Runs the trials of `training` without delay and advances a clock by their duration."""

    training: SimulatedTraining
    now_s: float = 0.0
    cards: tuple[str | None, ...] = (None,)
    inventory: Inventory = field(default_factory=box)

    def run(self, card: str | None, runner: TrialRunner, trial: Trial, callbacks: TrialCallbacks) -> TrialReport:
        """Run the trial; it is aborted if the tuning's time ends during it."""
        found = self.training.run(trial.settings, trial.number)
        assert callbacks.deadline_t is not None
        over_s = self.now_s + found.seconds - callbacks.deadline_t
        if over_s > 0:
            found = Measurement(outcome="aborted", seconds=found.seconds - over_s)
        self.now_s += found.seconds
        return TrialReport(found, trial.settings)


def tuned_in(training: SimulatedTraining, minutes: float, path: Path) -> tuple[TuningEnded, Clock]:
    clock, folder = Clock(training), TuningFolder(path)
    tuner = Tuner(
        folder, TrialLog(folder), clock, RUNNER,
        lambda known, compare_only: Search(known.start, training.space, known.trials, compare_only),
        minutes * 60, lambda: clock.now_s,
    )  # fmt: skip
    return tuner.tune(TrialHistory(training.start)), clock


@pytest.mark.parametrize("minutes", [5.0, 9.0])
def test_the_time_is_kept_and_a_winner_is_compared_with_the_start(tmp_path: Path, minutes: float) -> None:
    ended = [tuned_in(random_training(seed), minutes, tmp_path) for seed in range(4)]
    assert all(clock.now_s <= minutes * 60 for _, clock in ended)
    verdicts = [(random_training(seed).start, one.verdict) for seed, (one, _) in enumerate(ended)]
    changed = [found for start, found in verdicts if found is not None and found.start and found.winner != start]
    assert changed
    assert sum(found.ratio is not None for found in changed) >= 0.8 * len(changed)


@pytest.mark.parametrize(("early", "preset", "code"), [(True, None, 1), (True, "x.yaml", 0), (False, None, 0)])
def test_time_that_held_nothing_but_the_start_is_no_success(
    tmp_path: Path, early: bool, preset: str | None, code: int
) -> None:
    folder = TuningFolder(tmp_path)
    log = TrialLog(folder)
    log.add(TuningStarted(t=1.0))
    verdict = TuningConclusion(winner=START, sentence="Only the start was tried.", best=measured())
    log.add(TuningEnded(t=2.0, status="finished", verdict=verdict, early=early, preset=preset))
    with Interrupts() as interrupts:
        assert follow_tuning(folder, True, interrupts) == code


def test_trials_that_failed_early_do_not_shorten_the_prediction_of_others() -> None:
    """Nine trials that ran out of memory in 5 s would have a normal one given up."""
    failed = replace(measured(), outcome="out-of-memory", seconds=5.0)
    change = Trial(number=2, purpose="batch", settings=OTHER, reason="")
    tried = [run(START, 100, seconds=60.0), *[CompletedTrial(change, failed)] * 9]
    assert TimeBudget(tried, START, 0.0).expected_s(FASTER) == 60.0
    assert TimeBudget(tried[1:], None, 0.0).expected_s(FASTER) == 5.0


def test_a_trial_is_given_up_at_four_times_its_prediction_and_half_a_minute_at_least() -> None:
    assert give_up_s(20.0) == 80.0
    assert give_up_s(5.0) == 35.0
