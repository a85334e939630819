"""How long a training will take."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from msgspec import structs
from msgspec.structs import replace

from tests.runs.builders import JOB, counters, view
from tuner_tui.advice.recommend.duration_estimate import (
    DurationEstimate,
    EarlierRun,
    describe_duration,
    earlier_run,
    earlier_runs,
    estimate_duration,
    summarise_duration,
)
from tuner_tui.runs.events.progress import Series
from tuner_tui.runs.events.run_state import RankState, Rates
from tuner_tui.runs.events.types import Finished, TrialMeasured
from tuner_tui.runs.store.record import redact_job
from tuner_tui.settings.job import BuiltinJob, CommandJob
from tuner_tui.settings.model import AppliedRemedy, Settings, Value

T4_SETTINGS = Settings(per_device_train_batch_size=16, precision="fp16", gradient_checkpointing=True)
"""Those with which the notes were measured."""


def earlier(settings: Settings, low: float = 90.0, high: float = 110.0, **changes: Any) -> EarlierRun:
    return replace(EarlierRun("r007", JOB, settings, low, high), **changes)


def test_measured_with_these_settings_is_taken_as_it_is() -> None:
    settings = Settings(max_steps=100, seed=3)
    duration = estimate_duration(JOB, settings, 1, (earlier(Settings()),))
    assert duration is not None
    assert duration.samples == 800
    assert duration.range_s == pytest.approx((800 / 110, 800 / 90))
    assert duration.measured
    assert "r007 with these settings" in duration.rests_on


def test_evaluating_and_saving_are_counted() -> None:
    duration = estimate_duration(JOB, Settings(max_steps=100), 1, (earlier(Settings(), 100, 100, overhead_share=0.5),))
    assert duration is not None
    assert duration.range_s == pytest.approx((12.0, 12.0))


def test_other_settings_widen_the_range_and_say_so() -> None:
    duration = estimate_duration(JOB, Settings(precision="bf16", max_steps=100), 1, (earlier(Settings(), 100, 100),))
    assert duration is not None
    assert (duration.low_samples_s, duration.high_samples_s) == pytest.approx((70, 130))
    assert "other settings" in duration.rests_on


def test_what_a_remedy_promises_counts_until_a_run_has_shown_it() -> None:
    remedy = AppliedRemedy("workers", "workers 0 → 4", "data-wait", "r007", {"dataloader_num_workers": 0}, (1.0, 4.0))
    settings = Settings(dataloader_num_workers=4, max_steps=100)
    promised = estimate_duration(JOB, settings, 1, (earlier(Settings(), 100, 100),), remedies=(remedy,))
    assert promised is not None
    assert promised.range_s == pytest.approx((2.0, 8.0))
    assert (summarise_duration(promised), promised.rests_on) == (
        "5 to 10 s",
        "measured here by r007 and the expected effect of workers 0 → 4",
    )
    shown = estimate_duration(JOB, settings, 1, (earlier(settings, 200, 200),), remedies=(remedy,))
    assert shown is not None
    assert shown.range_s == pytest.approx((4.0, 4.0))


def test_a_run_with_these_settings_is_worth_more_than_others() -> None:
    runs = (earlier(Settings(precision="bf16"), 500, 500), earlier(Settings(), 100, 100))
    duration = estimate_duration(JOB, Settings(), 1, runs)
    assert duration is not None
    assert duration.low_samples_s == 100


def test_the_size_of_the_data_comes_from_the_job_or_an_earlier_run() -> None:
    limited = structs.replace(JOB, max_samples=1000)
    for job, run in ((limited, earlier(Settings(), job=limited)), (JOB, earlier(Settings(), samples_an_epoch=1000.0))):
        duration = estimate_duration(job, Settings(num_train_epochs=2.0), 1, (run,))
        assert duration is not None
        assert duration.samples == 2000
    unknown = estimate_duration(JOB, Settings(), 1, (earlier(Settings()),))
    assert unknown is not None
    assert unknown.range_s is None


def test_runs_of_other_jobs_say_nothing() -> None:
    assert estimate_duration(BuiltinJob(), Settings(), 1, (earlier(Settings()),)) is None


@pytest.mark.parametrize(
    ("job", "settings", "gpus"),
    [
        (JOB, T4_SETTINGS, ("NVIDIA T400",)),
        (JOB, T4_SETTINGS, ("Tesla T4", "Tesla T4")),
        (JOB, T4_SETTINGS, ("NVIDIA H100",)),
        (JOB, Settings(max_length=512), ("Tesla T4",)),
        (BuiltinJob(task="causal-lm", model="gpt2"), T4_SETTINGS, ("Tesla T4",)),
        (BuiltinJob(model="llama-1b"), T4_SETTINGS, ("Tesla T4",)),
        (BuiltinJob(model="org/unheard-of"), T4_SETTINGS, ("Tesla T4",)),
    ],
)
def test_where_the_notes_have_no_figure_none_is_made_up(job: BuiltinJob, settings: Settings, gpus: Any) -> None:
    assert estimate_duration(job, settings, 1, (), gpus) is None


@pytest.mark.parametrize(
    ("changes", "low", "high"),
    [
        # 80 to 100 samples/s tuned, with 10 % around them; the defaults were 2 to 2.5 times slower.
        ({}, 72, 110),
        ({"per_device_train_batch_size": 8}, 72 / 2, 110),
        ({"per_device_train_batch_size": 1}, 72 / 2.5, 110),
        ({"per_device_train_batch_size": 32}, 72, 110 * 1.3),
        ({"gradient_checkpointing": False}, 72, 110 * 1.2),
        ({"per_device_train_batch_size": 8, "precision": "fp32"}, 72 / 2.5, 110 / 1.3),
    ],
)  # fmt: skip
def test_other_settings_than_the_notes_are_not_as_fast(changes: dict[str, Any], low: float, high: float) -> None:
    duration = estimate_duration(JOB, T4_SETTINGS.changed(**changes), 1, (), ("Tesla T4",))
    assert duration is not None
    assert (duration.low_samples_s, duration.high_samples_s) == pytest.approx((low, high))


def test_a_v100_at_batch_8_had_100_samples_a_second_in_the_notes() -> None:
    settings = Settings(per_device_train_batch_size=8, precision="fp16", max_steps=1000)
    duration = estimate_duration(JOB, settings, 1, (), ("Tesla V100-SXM2-16GB",))
    assert duration is not None
    assert duration.low_samples_s < 100 < duration.high_samples_s
    text = describe_duration(duration, 1.0)
    assert "not measured here" in text
    assert text.endswith(", with another micro batch")


def test_a_command_is_timed_by_its_own_runs_and_not_by_the_notes(tmp_path: Path) -> None:
    job = CommandJob(command=("python", "train.py"), apply="inject")
    assert estimate_duration(job, Settings(), 1, earlier_runs(job, tmp_path), ("Tesla T4",)) is None


def test_the_notes_speed_of_gemma_on_a_3090() -> None:
    job = BuiltinJob(model="google/gemma-3-1b-pt", max_samples=8640)
    settings = Settings(per_device_train_batch_size=12, peft_method="dora", num_train_epochs=1.0, precision="bf16")
    duration = estimate_duration(job, settings, 1, (), ("NVIDIA GeForce RTX 3090",))
    assert duration is not None
    assert duration.range_s is not None
    assert duration.range_s[0] < 54 < duration.range_s[1]  # an epoch in the notes
    assert estimate_duration(job, settings.changed(peft_method="none"), 1, (), ("NVIDIA GeForce RTX 3090",)) is None


def test_the_time_of_a_run_that_trains_covers_what_its_time_left_is_known_by() -> None:
    state: dict[str, Any] = {"rates": Rates(samples_s=10.0), "total_steps": 300}  # 13.3 on average
    for finished, low in ((None, 10.0), (Finished(t=61.0, outcome="completed", sentence="Completed."), 12.0)):
        run = earlier_run(view(train_s=60.0, state={**state, "finished": finished}))
        assert run is not None
        assert run.low_samples_s == pytest.approx(low)


def test_an_earlier_run_says_its_speed_and_the_size_of_its_data() -> None:
    run = earlier_run(view({"num_train_epochs": 2.0}, steps=100, batch=8, train_s=50.0))
    assert run is not None
    assert (run.low_samples_s, run.high_samples_s) == pytest.approx((14.4, 17.6))
    assert run.samples_an_epoch == 400
    assert run.overhead_share == 0
    slow_eval = earlier_run(view(ranks=(counters(100, 8, 50.0, eval_s=10.0, save_s=5.0),)))
    assert slow_eval is not None
    assert slow_eval.overhead_share == pytest.approx(0.3)


def test_the_spread_is_that_of_the_run() -> None:
    plain = view()
    points = Series("throughput", "samples/s", tuple(range(8)), (1.0, 12.0, 14.0, 16.0, 16.0, 18.0, 20.0, 90.0))
    run = earlier_run(replace(plain, history=replace(plain.history, samples_s=points)))
    assert run is not None
    assert (run.low_samples_s, run.high_samples_s) == (14.0, 18.0)


def test_a_run_that_hardly_trained_says_nothing() -> None:
    assert earlier_run(view(train_s=2.0)) is None
    assert earlier_run(replace(view(), record=None)) is None
    stepped = earlier_run(view({"max_steps": 100}))
    assert stepped is not None
    assert stepped.samples_an_epoch is None


@pytest.mark.parametrize(("spread", "low", "high"), [(0.05, 80 / 1.05, 84.0), (1.5, 32.0, 200.0)])
def test_a_trial_of_a_tuning_says_its_speed_though_it_is_short(spread: float, low: float, high: float) -> None:
    """Twenty steps of eight samples in two seconds, of 300 that the training would take in three epochs."""
    measured = TrialMeasured(
        t=9.0, steps=20, seconds=2.0, samples=160, spread=spread, dataset_samples=800, planned_steps=300
    )
    run = earlier_run(view(state={"ranks": {0: RankState(0, trial=measured)}}, tuning="t001"))
    assert run is not None
    assert (run.low_samples_s, run.high_samples_s) == pytest.approx((low, high))
    assert (run.samples_an_epoch, run.overhead_share) == (800.0, None)
    whole = earlier(Settings(), 80, 80, overhead_share=0.5)
    duration = estimate_duration(JOB, Settings(max_steps=100), 1, (replace(run, job=JOB, settings=Settings()), whole))
    assert duration is not None
    assert duration.overhead_share == 0.5, "a trial neither evaluates nor saves, so it says nothing of that"


def test_a_trial_that_measured_nothing_says_nothing() -> None:
    """It was ended after a step of a minute, on a machine too busy to train on."""
    assert earlier_run(view(steps=1, train_s=60.0, tuning="t001")) is None


def test_a_command_counts_with_the_settings_that_it_was_seen_to_use() -> None:
    job = CommandJob(command=("python", "sft.py", "--per_device_train_batch_size", "1"), apply="hf-args")
    seen = {"per_device_train_batch_size": 1, "attn_implementation": "sdpa", "tf32": False}
    run = earlier_run(view(state={"in_effect": seen}, job=job))
    assert run is not None
    observed = Settings(per_device_train_batch_size=1, max_steps=60)
    duration = estimate_duration(job, observed, 1, (run, replace(run, settings=Settings(), low_samples_s=1.0)))
    assert duration is not None
    assert duration.rests_on == "measured here by r001 with these settings"
    assert duration.low_samples_s == pytest.approx(14.4)


@pytest.mark.parametrize(
    ("total", "outcome", "known"), [(100, None, True), (None, "completed", True), (None, None, False)]
)
def test_a_command_trains_as_long_again_whatever_the_default_number_of_epochs(
    total: int | None, outcome: str | None, known: bool
) -> None:
    """One pass over the data, which the command does not name, and the observer may not know before the end."""
    job = CommandJob(command=("python", "train.py"))
    ranks = (replace(counters(100, 8, 50.0), epoch_batches=100),)
    finished = None if outcome is None else Finished(t=90.0, outcome=outcome, sentence="")
    seen = {"per_device_train_batch_size": 8}
    run = earlier_run(view(ranks=ranks, state={"in_effect": seen, "total_steps": total, "finished": finished}, job=job))
    assert run is not None
    duration = estimate_duration(job, Settings(), 1, (run,))
    assert duration is not None
    assert duration.samples == (pytest.approx(800) if known else None)


def test_epochs_that_are_chosen_count_from_those_observed() -> None:
    job = CommandJob(command=("python", "train.py"))
    run = earlier_run(view(state={"in_effect": {"num_train_epochs": 1.0}}, job=job))
    assert run is not None
    for epochs, samples in ((Settings().num_train_epochs, 800), (2.0, 1600)):
        duration = estimate_duration(job, Settings(num_train_epochs=epochs), 1, (run,))
        assert duration is not None
        assert duration.samples == samples


def test_the_range_of_a_duration_is_that_of_its_speed_and_its_overhead() -> None:
    # 9,000 samples at 100 and at 90 a second are 90 and 100 s; a tenth more is spent outside the steps.
    estimate = DurationEstimate(9_000, 90.0, 100.0, 0.1, True, "a run")
    assert estimate.seconds(9_000) == pytest.approx((99.0, 110.0))
    assert "min" in summarise_duration(replace(estimate, samples=90_000))
    assert summarise_duration(replace(estimate, samples=None)) == "90–100 samples/s; number of samples unknown"
    assert summarise_duration(replace(estimate, samples=None, low_samples_s=100.0)).startswith("100 samples/s")


def test_a_secret_in_the_command_does_not_hide_its_runs() -> None:
    job = CommandJob(command=("python", "x.py", "--api-key", "abc"), apply="inject")
    run = earlier(Settings(), job=redact_job(structs.replace(job, apply="none")))
    assert estimate_duration(job, Settings(max_steps=10), 1, (run,)) is not None


@pytest.mark.parametrize("in_effect", [{}, {"gradient_accumulation_steps": 4}], ids=["none", "accumulation"])
@pytest.mark.parametrize("max_steps", [None, 400])
def test_a_run_that_shows_only_steps_tells_the_time_and_no_samples(
    in_effect: dict[str, Value], max_steps: int | None
) -> None:
    """A training whose samples nobody counted: 100 of 400 steps in 50 s."""
    plan = {"ranks": {}, "step": 100, "total_steps": 400, "training_since_t": 10.0, "last_step_t": 60.0}
    job = CommandJob(command=("python", "x.py"), apply="inject")
    changes = {"max_steps": max_steps} if max_steps else {}
    run = earlier_run(view(changes, state={**plan, "in_effect": in_effect}, job=job))
    assert run is not None
    planned = Settings(max_steps=max_steps).changed(**in_effect)
    expected = estimate_duration(JOB, planned, 1, (replace(run, job=JOB),))
    assert expected is not None
    assert summarise_duration(expected) == "3 min to 3 min 30 s"
    assert describe_duration(expected, 3.0) == "3 min to 3 min 30 s, measured here by r001 with these settings"


def test_the_length_of_the_loader_is_the_size_of_an_epoch() -> None:
    """`batch 26 of 125` of two ranks, with two micro batches of 8 a step; how many epochs there are is not known."""
    ranks = tuple(
        counters(13, 16, 50.0, rank=rank, micro_steps=26, epoch_batch=26, epoch_batches=125) for rank in (0, 1)
    )
    run = earlier_run(view({"num_train_epochs": 3.0}, ranks=ranks, state={"total_steps": None}))
    assert run is not None
    assert run.samples_an_epoch == 2 * 125 * 8
