"""The time of the whole job: a change that is faster in steady state but starts later pays after some steps."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from tests.tuning.search.builders import GPU, measured, run_search, space
from tuner_tui.hardware.other_load import BusyProcess, OtherLoad
from tuner_tui.settings.model import Settings
from tuner_tui.tuning.search.results import SearchResults
from tuner_tui.tuning.search.search import Search
from tuner_tui.tuning.search.space import Quiet, SearchSpace
from tuner_tui.tuning.trial import CompletedTrial, Measurement, StepBreakdown, Trial, TuningConclusion, WholeJob

START = Settings(per_device_train_batch_size=1, gradient_accumulation_steps=1, precision="bf16")
COMPILED = START.changed(torch_compile=True)
STARTS_S, COMPILES_S, STEP_S = 5.0, 22.0, 0.1
"""Uncompiled: 5 s of start-up and 10 steps per second; compiled: 17 s more and 1.25 times as fast."""


def trial(trial: Trial) -> Measurement:
    compiled = trial.settings.torch_compile
    return measured(
        1.25 / STEP_S if compiled else 1 / STEP_S,
        breakdown=StepBreakdown(data_wait=0.0, optimizer=0.0, padding=0.0),
        overhead_s=COMPILES_S if compiled else STARTS_S,
        step_time_s=STEP_S / 1.25 if compiled else STEP_S,
    )


def job(steps: int) -> WholeJob:
    return WholeJob(steps=steps, samples=steps)


def searched(whole_job: WholeJob | None) -> Search:
    only_compiling: SearchSpace = replace(
        space(START), candidates={"torch_compile": (False, True)}, whole_job=whole_job
    )
    return run_search(Search(START, only_compiling), trial)


def results(whole_job: WholeJob | None, *runs: tuple[Settings, Measurement]) -> SearchResults:
    trials = (
        CompletedTrial(Trial(number=1, purpose="knob", settings=settings, reason=""), run) for settings, run in runs
    )
    return SearchResults.of(trials, float(GPU), whole_job)


def test_steady_throughput_decides_where_the_length_of_the_job_is_unknown() -> None:
    verdict = searched(None).conclusion
    assert verdict.winner == COMPILED
    assert verdict.ratio == pytest.approx(1.25)
    assert (verdict.job_steps, verdict.start_job_s) == (None, None)


def test_what_makes_a_short_job_longer_is_not_chosen() -> None:
    """17 s are made up for at 0.02 s a step: 850 steps."""
    verdict = searched(job(400)).conclusion
    assert verdict.winner == START
    assert verdict.job_steps == 400


def test_in_a_long_job_it_is_chosen_with_the_time_of_both() -> None:
    verdict = searched(job(4000)).conclusion
    assert verdict.winner == COMPILED
    assert verdict.start_job_s == pytest.approx(405.0)
    assert verdict.best_job_s == pytest.approx(22.0 + 320.0)
    assert verdict.ratio == pytest.approx(405 / 342)
    assert "over the whole job of 4,000 steps" in verdict.sentence


def test_a_change_that_gains_less_than_the_noise_of_the_whole_job_is_not_tried() -> None:
    """Of a job of one step the start-up is nearly all."""
    search = searched(job(1))
    assert not any(completed.trial.settings.torch_compile for completed in search.trials)
    reason = next(entry.reason for entry in search.skipped if entry.knob == "torch_compile")
    assert "of the whole job" in reason


def test_a_first_run_with_cold_caches_does_not_count() -> None:
    runs = [(START, measured(10.0, overhead_s=seconds)) for seconds in (30.0, 5.0)]
    measurements = results(job(100), *runs).get(START)
    assert measurements is not None
    assert measurements.overhead_s == 5.0
    assert measurements.speed == pytest.approx(100 / 15)


def test_a_job_is_as_long_as_its_first_trial_says() -> None:
    start = measured(40.0, tokens_s=400.0, step_time_s=0.5, job_steps=300)
    assert WholeJob.of(start) == WholeJob(steps=300, samples=6000.0, tokens=60_000.0)
    assert WholeJob.of(measured(40.0, step_time_s=0.5)) is None


SPINNING = tuple(BusyProcess(command=f"python spin{number}.py", cores=1.0) for number in (1, 2))
START = Settings(per_device_train_batch_size=1, gradient_accumulation_steps=1, precision="bf16")


@pytest.mark.parametrize(
    ("load", "on_gpu", "busy"),
    [
        (OtherLoad(cpu_share=0.05), False, False),
        (OtherLoad(cpu_share=0.25), False, True),
        (OtherLoad(cpu_share=0.5), True, False),
        (OtherLoad(cpu_share=0.9), True, True),
        (OtherLoad(cpu_share=0.0, gpu_share=0.4), True, True),
        (OtherLoad(cpu_share=0.0, gpu_share=0.4), False, False),
        (OtherLoad(), True, False),
    ],
)
def test_a_machine_is_too_busy_if_others_take_what_the_training_computes_on(
    load: OtherLoad, on_gpu: bool, busy: bool
) -> None:
    assert bool(Quiet.after(load, on_gpu).busy) == busy


def test_it_is_said_what_makes_it_busy() -> None:
    load = OtherLoad(cpu_share=0.5, processes=SPINNING, gpu_share=0.64, gpu_processes=("python serve.py",))
    assert Quiet.after(load, on_gpu=False).busy == (
        "other processes used 50 % of the CPU at the start: python spin1.py 1.0 cores, python spin2.py 1.0 cores"
    )
    assert Quiet.after(load, on_gpu=True).busy == "other processes used 64 % of a GPU at the start: python serve.py"


def test_a_run_is_disturbed_by_what_was_seen_during_it_else_by_what_was_seen_before() -> None:
    quiet, busy = Quiet.after(OtherLoad(cpu_share=0.0), False), Quiet.after(OtherLoad(cpu_share=0.5), False)
    assert quiet.is_disturbed(measured(1.0, others_cpu_share=0.3))
    assert not quiet.is_disturbed(measured(1.0))
    assert busy.is_disturbed(measured(1.0))
    assert not busy.is_disturbed(measured(1.0, others_cpu_share=0.02)), "it has become quiet"
    gpu = Quiet.after(OtherLoad(gpu_share=0.5), on_gpu=True)
    assert gpu.is_disturbed(measured(1.0, others_cpu_share=0.0)), "the load of a GPU has no owner"


def tuned(quiet: Quiet, others: float | None, quiet_from: int = 1000) -> tuple[TuningConclusion, int]:
    """The conclusion where compiling is twice as fast in every run, and its confirming trials."""
    ran = [0]

    def trial(trial: Trial) -> Measurement:
        ran[0] += 1
        return measured(
            200.0 if trial.settings.torch_compile else 100.0,
            breakdown=StepBreakdown(data_wait=0.0, optimizer=0.0, padding=0.0),
            others_cpu_share=others if ran[0] < quiet_from else 0.0,
        )

    only_compiling = replace(space(START), candidates={"torch_compile": (False, True)}, quiet=quiet)
    search = run_search(Search(START, only_compiling), trial)
    assert not search.proposals
    return search.conclusion, sum(completed.trial.purpose == "confirm" for completed in search.trials)


BUSY = Quiet.after(OtherLoad(cpu_share=0.5, processes=SPINNING), on_gpu=False)


def test_on_a_busy_machine_nothing_is_confirmed_however_clear_it_looks() -> None:
    conclusion, confirming = tuned(BUSY, others=0.4)
    assert conclusion.winner == START
    assert conclusion.ratio is None
    assert conclusion.disturbed
    assert conclusion.sentence.startswith(
        "2.00× the current speed (1.99 … 2.01, 2 pairs) was measured but not confirmed: "
    )
    assert (
        "the machine was busy (other processes used 50 % of the CPU at the start: python spin1" in conclusion.sentence
    )
    assert "resume the tuning to confirm it" in conclusion.sentence
    assert confirming == 4, "two pairs; more would be as disturbed"


def test_where_no_run_was_watched_the_load_at_the_start_counts() -> None:
    conclusion, _ = tuned(BUSY, others=None)
    assert (conclusion.winner, conclusion.disturbed) == (START, True)


def test_where_nothing_looks_faster_the_load_is_named_too() -> None:
    quiet, loaded = (
        run_search(Search(START, replace(space(START), candidates={}, quiet=quiet)), lambda trial: measured(100.0))
        for quiet in (Quiet(), BUSY)
    )
    assert not quiet.conclusion.disturbed
    assert "busy" not in quiet.conclusion.sentence
    assert loaded.conclusion.disturbed
    assert "to measure again" in loaded.conclusion.sentence


def test_what_looked_slower_on_a_busy_machine_was_not_judged_either() -> None:
    """Compiling looks faster until the pairs, in which the load slows it down."""
    ran = [0]

    def trial(trial: Trial) -> Measurement:
        ran[0] += 1
        speed = 200.0 if trial.settings.torch_compile and trial.purpose != "confirm" else 100.0
        slowed = speed * (0.9 if trial.settings.torch_compile else 1.0)
        busy = 0.4 if trial.purpose == "confirm" else 0.0
        return measured(
            slowed, breakdown=StepBreakdown(data_wait=0.0, optimizer=0.0, padding=0.0), others_cpu_share=busy
        )

    watched = Quiet.after(OtherLoad(cpu_share=0.0), on_gpu=False)
    only_compiling = replace(space(START), candidates={"torch_compile": (False, True)}, quiet=watched)
    verdict = run_search(Search(START, only_compiling), trial).conclusion
    assert verdict.winner == START
    assert verdict.disturbed
    assert "The machine was busy" in verdict.sentence


def test_load_that_came_after_the_start_was_measured_is_named() -> None:
    def trial(trial: Trial) -> Measurement:
        compiled = trial.settings.torch_compile
        return measured(
            90.0 if compiled else 100.0,
            breakdown=StepBreakdown(data_wait=0.0, optimizer=0.0, padding=0.0),
            others_cpu_share=0.5 if compiled else 0.0,
        )

    watched = Quiet.after(OtherLoad(cpu_share=0.0), on_gpu=False)
    only_compiling = replace(space(START), candidates={"torch_compile": (False, True)}, quiet=watched)
    search = run_search(Search(START, only_compiling), trial)
    assert any(completed.trial.settings.torch_compile for completed in search.trials)
    assert search.conclusion.disturbed


def test_a_machine_that_was_busy_only_before_the_trials_confirms() -> None:
    assert tuned(BUSY, others=0.01)[0].ratio == pytest.approx(2.0)


def test_pairs_on_a_machine_that_has_become_quiet_confirm_alone() -> None:
    conclusion, confirming = tuned(BUSY, others=0.4, quiet_from=6)
    assert conclusion.winner.torch_compile
    assert confirming == 6, "the first pair was disturbed"
