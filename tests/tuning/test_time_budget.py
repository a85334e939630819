"""Little time well spent: what is left out first, what is kept for the comparison, and what is said at the end."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import pytest
from msgspec.structs import replace

from tests.benchmarks.tuning.simulated_training import SimulatedTraining, random_training
from tests.fakes.inventories import box
from tests.fakes.listed_search import RUNNER, measured
from tests.runs.store.test_record import record
from tests.tuning.builders import SCRIPT, resolved
from tuner_tui.cli.commands.tune import follow_tuning
from tuner_tui.core.signals import Signals
from tuner_tui.hardware.inventory import Inventory
from tuner_tui.runs.events.types import Event, Finished, Launched, Steps
from tuner_tui.runs.launch.prepare import LaunchRequest
from tuner_tui.runs.store.codec import encode_event
from tuner_tui.runs.store.folder import create_folder
from tuner_tui.runs.store.record import write_record
from tuner_tui.settings.errors import SettingsError
from tuner_tui.settings.job import CommandJob
from tuner_tui.settings.model import Settings
from tuner_tui.tuning.create import time_needed
from tuner_tui.tuning.search.search import Search
from tuner_tui.tuning.store import TuningFolder
from tuner_tui.tuning.time_budget import TimeBudget, expected_trial_s, give_up_s
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
    completed = [
        CompletedTrial(trial("confirm", completed.trial.settings), completed.measurement) for completed in tried
    ]
    later = TimeBudget([*tried, *completed], FASTER, 0.0).needed_s(trial("confirm", FASTER))
    assert later == pytest.approx(1.3 * 40 + 30)


@dataclass
class Clock:
    """Runs the trials of `training` without delay and advances a clock by their duration."""

    training: SimulatedTraining
    now_s: float = 0.0
    gpus: tuple[str | None, ...] = (None,)
    inventory: Inventory = field(default_factory=box)

    def run(self, gpu: str | None, runner: TrialRunner, trial: Trial, callbacks: TrialCallbacks) -> TrialReport:
        """Run the trial; it is aborted if the tuning's time ends during it."""
        measured = self.training.run(trial.settings, trial.number)
        assert callbacks.deadline_t is not None
        over_s = self.now_s + measured.seconds - callbacks.deadline_t
        if over_s > 0:
            measured = Measurement(outcome="aborted", seconds=measured.seconds - over_s)
        self.now_s += measured.seconds
        return TrialReport(measured, trial.settings)


def tuned_in(training: SimulatedTraining, minutes: float, path: Path) -> tuple[TuningEnded, Clock]:
    clock, folder = Clock(training), TuningFolder(path)
    tuner = Tuner(
        folder, TrialLog(folder), clock, RUNNER,
        lambda history, compare_only: Search(history.start, training.space, history.trials, compare_only),
        minutes * 60, lambda: clock.now_s,
    )  # fmt: skip
    return tuner.tune(TrialHistory(training.start)), clock


def test_the_limit_that_left_only_the_start_is_named(tmp_path: Path) -> None:
    ended, _ = tuned_in(random_training(0), 1.0, tmp_path)
    assert ended.early
    assert ended.verdict is not None
    assert ended.verdict.sentence.startswith("Only the current settings were tried: the time limit left too little")


@pytest.mark.parametrize("minutes", [5.0, 9.0])
def test_the_time_is_kept_and_a_winner_is_compared_with_the_start(tmp_path: Path, minutes: float) -> None:
    ended = [tuned_in(random_training(seed), minutes, tmp_path) for seed in range(4)]
    assert all(clock.now_s <= minutes * 60 for _, clock in ended)
    verdicts = [(random_training(seed).start, ended_search.verdict) for seed, (ended_search, _) in enumerate(ended)]
    changed = [
        verdict for start, verdict in verdicts if verdict is not None and verdict.start and verdict.winner != start
    ]
    assert changed
    assert sum(verdict.ratio is not None for verdict in changed) >= 0.8 * len(changed)


@pytest.mark.parametrize(("early", "preset", "code"), [(True, None, 1), (True, "x.yaml", 0), (False, None, 0)])
def test_time_that_held_nothing_but_the_start_is_no_success(
    tmp_path: Path, early: bool, preset: str | None, code: int
) -> None:
    folder = TuningFolder(tmp_path)
    log = TrialLog(folder)
    log.add(TuningStarted(t=1.0))
    verdict = TuningConclusion(winner=START, sentence="Only the current settings were tried.", best=measured())
    log.add(TuningEnded(t=2.0, status="finished", verdict=verdict, early=early, preset=preset))
    with Signals() as interrupts:
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


def write_run(root: Path, *events: Event, job: CommandJob = SCRIPT, tuning: str | None = None) -> None:
    folder = create_folder(root)
    write_record(folder, record(id=folder.id, job=job, tuning=tuning))
    folder.events.write_bytes(b"".join(map(encode_event, events)))


def write_trial(root: Path, seconds: float, job: CommandJob = SCRIPT) -> None:
    steps = Steps(t=seconds, step=9, own_steps=9)
    ended = Finished(t=seconds, outcome="completed", step=9)
    write_run(root, Launched(t=0.0, pid=1), steps, ended, job=job, tuning="t001")


def test_a_trial_takes_what_trials_took(tmp_path: Path) -> None:
    for seconds in (12.0, 40.0, 14.0):
        write_trial(tmp_path, seconds)
    write_trial(tmp_path, 300.0, CommandJob(command=("python", "other.py"), apply="inject"))
    assert expected_trial_s(SCRIPT, tmp_path) == 14.0


def test_whole_runs_do_not_hide_the_trials(tmp_path: Path) -> None:
    write_trial(tmp_path, 20.0)
    for _ in range(10):
        write_run(tmp_path, Launched(t=0.0, pid=1), Finished(t=80.0, outcome="completed", step=400))
    assert expected_trial_s(SCRIPT, tmp_path) == 20.0


def test_nothing_is_known_of_a_job_that_never_ran(tmp_path: Path) -> None:
    write_run(tmp_path, Launched(t=0.0, pid=1), Finished(t=2.0, outcome="failed"))
    assert expected_trial_s(SCRIPT, tmp_path) is None


def test_a_job_that_only_ran_whole_says_what_a_trial_takes_by_its_start_and_its_speed(tmp_path: Path) -> None:
    """A start of 20 s and steps of 3 s: a trial of four steps takes 32 s."""
    counted = (Steps(t=20.0 + 3 * n, rank=0, step=n, own_steps=n, train_s=3.0 * n) for n in range(1, 60))
    write_run(tmp_path, Launched(t=3.0, pid=1), *counted, Finished(t=260.0, outcome="stopped", step=59))
    assert expected_trial_s(SCRIPT, tmp_path) == 32.0
    assert time_needed(request(tmp_path)).minutes == 5


def test_a_trial_of_short_steps_is_measured_as_long_as_a_busy_machine_needs(tmp_path: Path) -> None:
    """A start of 20 s and steps of 50 ms: four of them are no trial, which measures for up to 8 s."""
    counted = (Steps(t=20.0 + n, rank=0, step=20 * n, own_steps=20 * n, train_s=1.0 * n) for n in range(1, 30))
    write_run(tmp_path, Launched(t=1.0, pid=1), *counted, Finished(t=60.0, outcome="completed", step=580))
    assert expected_trial_s(SCRIPT, tmp_path) == 28.0
    assert time_needed(request(tmp_path)).minutes == 4


def request(root: Path) -> LaunchRequest:
    return LaunchRequest(job=SCRIPT, resolved=resolved(), cwd=root, root=root)


def test_minutes_that_hold_no_comparison_are_refused_with_the_least_that_do(tmp_path: Path) -> None:
    """Trials of 40 s: the start, a change with its slack, two pairs and the check of the preset, and 10 %."""
    write_trial(tmp_path, 40.0)
    needed = time_needed(request(tmp_path))
    assert needed.minutes == 6
    needed.ensure(6.0)
    with pytest.raises(SettingsError, match=r"2 min are too short.*It needs at least 6 min.*about 40 s"):
        needed.ensure(2.0)


def test_before_any_run_only_what_no_trial_can_do_is_refused(tmp_path: Path) -> None:
    needed = time_needed(request(tmp_path))
    assert needed.minutes == 1
    needed.ensure(1.0)
    with pytest.raises(SettingsError, match=r"at least 5 s plus the time of 4 optimizer steps"):
        needed.ensure(0.5)
