"""Trials on several GPUs at once: which GPU runs what, and how their figures are compared."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from tests.benchmarks.tuning.simulated_training import random_training, recorded
from tests.benchmarks.tuning.tune_quality import searched, searched_on
from tests.tuning.search.builders import measured, run_search, space
from tuner_tui.settings.model import Settings
from tuner_tui.tuning.search.results import SearchContext
from tuner_tui.tuning.search.search import Search, comparable, proposals_on
from tuner_tui.tuning.trial import CompletedTrial, Measurement, StepBreakdown, Trial

START = Settings(per_device_train_batch_size=8, precision="bf16")
GPUS = ("GPU-a", "GPU-b", "GPU-c")
PARTS = StepBreakdown(data_wait=0.3, optimizer=0.2, padding=0.2)


def start_run(gpu: str, rate: float, number: int = 1) -> CompletedTrial:
    trial = Trial(number=number, purpose="noise", settings=START, reason="", gpu=gpu)
    return CompletedTrial(trial, measured(rate, breakdown=PARTS))


def after(*trials: CompletedTrial) -> Search:
    return Search(START, space(START), comparable(trials))


def first(search: Search, gpu: str, *under_way: Trial) -> Trial:
    return proposals_on(search, gpu, under_way)[0]


def test_the_first_trial_runs_alone_then_each_gpu_runs_the_same() -> None:
    start = first(after(), "GPU-a")
    assert (start.purpose, start.number) == ("start", 1)
    assert proposals_on(after(), "GPU-b", [start]) == ()
    search = after(start_run("GPU-a", 100.0))
    trial = first(search, "GPU-b")
    assert (trial.settings, trial.gpu, trial.number) == (START, "GPU-b", 2)


def test_idle_gpus_take_the_next_best_changes_of_different_knobs() -> None:
    search = after(*(start_run(gpu, 100.0, number) for number, gpu in enumerate(GPUS, 1)))
    under_way: list[Trial] = []
    for gpu in GPUS:
        under_way.append(first(search, gpu, *under_way))
    assert [trial.number for trial in under_way] == [4, 5, 6]
    assert len({trial.changed[0] for trial in under_way}) == 3
    assert under_way[0].settings == search.proposals[0].settings


def test_a_start_that_does_not_fit_is_made_smaller_on_one_gpu() -> None:
    failed = Trial(number=1, purpose="start", settings=START, reason="", gpu="GPU-a")
    search = after(CompletedTrial(failed, Measurement(outcome="out-of-memory", seconds=5.0)))
    trial = first(search, "GPU-b")
    assert trial.settings.per_device_train_batch_size < 8
    assert proposals_on(search, "GPU-c", [trial]) == ()


def test_gains_that_were_measured_at_the_same_time_are_joined() -> None:
    """Fused kernels and compiling each gain a fifth over the start: none of them is rejected for the other."""
    starts = [start_run(gpu, 100.0, number) for number, gpu in enumerate(GPUS, 1)]
    changes: list[dict[str, Any]] = [{"optim": "adamw_torch_fused"}, {"torch_compile": True}]
    tried = [
        CompletedTrial(
            Trial(
                number=number, purpose="knob", settings=START.changed(**change), reason="", gpu=gpu,
                changed=tuple(change), bound=0.25, base=START,
            ),
            measured(120.0 + number, breakdown=PARTS),
        )
        for number, (gpu, change) in enumerate(zip(GPUS, changes, strict=False), 4)
    ]  # fmt: skip
    proposed = [trial.settings for trial in after(*starts, *tried).proposals]
    assert START.changed(optim="adamw_torch_fused", torch_compile=True) in proposed


def test_both_runs_of_a_pair_are_made_on_one_gpu_in_either_order() -> None:
    searched = run_search(
        Search(START, replace(space(START), candidates={"torch_compile": (False, True)})),
        lambda trial: measured(150.0 if trial.settings.torch_compile else 100.0, breakdown=PARTS),
    )
    compared = next(n for n, completed in enumerate(searched.trials) if completed.trial.purpose == "confirm")
    done = [
        replace(completed, trial=replace(completed.trial, gpu="GPU-a")) for completed in searched.trials[:compared]
    ] + [start_run("GPU-b", 100.0, 90)]
    search = replace(searched, trials=tuple(done))
    a = first(search, "GPU-a")
    b = first(search, "GPU-b", a)
    assert {a.settings, b.settings} == {START, START.changed(torch_compile=True)}
    search = recorded(recorded(search, a, measured(100.0)), b, measured(150.0))
    assert first(search, "GPU-a").settings == b.settings
    assert first(search, "GPU-b").settings == a.settings
    search = recorded(search, first(search, "GPU-a"), measured(150.0))
    search = recorded(search, first(search, "GPU-b"), measured(100.0))
    assert not search.proposals
    assert search.conclusion.ratio == pytest.approx(1.5)


def test_a_result_is_taken_relative_to_its_own_gpus_first_run() -> None:
    changed = Trial(number=3, purpose="knob", settings=START.changed(torch_compile=True), reason="", gpu="GPU-b")
    starts = start_run("GPU-a", 100.0), start_run("GPU-b", 121.0, 2)
    trials = comparable((*starts, CompletedTrial(changed, measured(121.0))))
    # The average GPU makes 110: the geometric mean of 100 and 121.
    assert trials[2].measurement.samples_s == pytest.approx(110.0)
    assert [outcome.measurement.samples_s for outcome in trials[:2]] == [100.0, 121.0], "the difference counts as noise"


def test_the_difference_between_gpus_counts_as_noise() -> None:
    trials = tuple(start_run(gpu, rate) for gpu, rate in zip(GPUS, (100.0, 104.0, 108.0), strict=True))
    results = SearchContext(START, space(START), comparable(trials)).results
    # The logarithms of 100, 104 and 108 deviate by a sum of squares of 0.00296; the prior's is 2 × (0.005 / 1.96)².
    sigma = ((2 * (0.005 / 1.96) ** 2 + 0.00296) / (2 + 2)) ** 0.5
    assert results.sigma == pytest.approx(sigma, rel=0.01)


@pytest.mark.parametrize("seed", [12, 5_000_001, pytest.param(5_000_007, marks=pytest.mark.full)])
def test_several_gpus_find_what_one_finds_in_less_time(seed: int) -> None:
    training = random_training(seed)
    alone, alone_s = searched(training)
    search, seconds = searched_on(training, 4)
    numbers = [completed.trial.number for completed in search.trials]
    assert len(set(numbers)) == len(numbers)
    rates = [
        ended_search.conclusion.best.throughput
        for ended_search in (search, alone)
        if not ended_search.proposals and ended_search.conclusion.best
    ]
    assert (rates[0] or 0.0) >= 0.8 * (rates[1] or 0.0)
    assert seconds < alone_s
