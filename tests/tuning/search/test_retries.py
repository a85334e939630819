"""A second look: changes that did nothing at first are weighed again beside the best, and near rivals are run again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from tests.benchmarks.tuning.simulated_training import GIB
from tests.tuning.search.builders import CARD, measured, out_of_memory, run_search, sizes, space
from tuner_tui.settings.model import Settings
from tuner_tui.tuning.search.candidates import MAX_RUNS, TieBreak
from tuner_tui.tuning.search.results import SearchResults, SettingsResult
from tuner_tui.tuning.search.retries import ChangeEffects, SampleTime
from tuner_tui.tuning.search.search import Search
from tuner_tui.tuning.trial import CompletedTrial, Measurement, StepBreakdown, Trial

START = Settings(per_device_train_batch_size=4, gradient_accumulation_steps=4)
BF16: Mapping[str, Any] = {"precision": "bf16"}


def results(*runs: tuple[Settings, Measurement]) -> SearchResults:
    tried = (
        CompletedTrial(Trial(number=1, purpose="knob", settings=settings, reason=""), run) for settings, run in runs
    )
    return SearchResults.of(tried, 24.0 * GIB)


def found(all_results: SearchResults, settings: Settings) -> SettingsResult:
    result = all_results.get(settings)
    assert result is not None
    return result


def test_the_parts_of_a_sample_add_up_to_its_time() -> None:
    run = measured(50.0, breakdown=StepBreakdown(data_wait=0.3, optimizer=0.1, padding=0.2))
    parts = SampleTime.of(found(results((START, run)), START))
    assert parts.seconds == pytest.approx(1 / 50.0)
    assert (parts.waiting, parts.optimizer) == pytest.approx((0.3 / 50, 0.1 / 50))
    assert parts.computing == pytest.approx(0.6 / 50 * 0.8)


def test_what_a_change_did_to_computing_is_seen_although_the_wait_hid_it() -> None:
    waited = StepBreakdown(data_wait=0.2, optimizer=0.0), StepBreakdown(data_wait=0.6, optimizer=0.0)
    known = results(
        (START, measured(100.0, breakdown=waited[0])), (START.changed(**BF16), measured(100.0, breakdown=waited[1]))
    )
    workers = START.changed(dataloader_num_workers=4)
    assert ChangeEffects(known, None).on_computing(workers, BF16) == pytest.approx(0.5)
    assert ChangeEffects(known, None).on_computing(START.changed(**BF16), {"precision": "fp32"}) == pytest.approx(2.0)
    assert ChangeEffects(known, None).on_computing(START, {"torch_compile": True}) is None


def test_sizes_are_made_alike_by_what_a_micro_batch_costs_once() -> None:
    def run(micro: int, own: float) -> Measurement:
        return measured(1 / (own + 0.02 / micro))

    larger = START.changed(per_device_train_batch_size=8, **BF16)
    known = results((START, run(4, 0.01)), (larger, run(8, 0.005)))
    expected = (0.005 + 0.02 / 4) / (0.01 + 0.02 / 4)
    assert ChangeEffects(known, 0.02).on_computing(START, BF16) == pytest.approx(expected)


def test_memory_that_a_change_adds_is_taken_to_grow_with_the_batch() -> None:
    peaks = {(4, False): 8 * GIB, (4, True): 9 * GIB}
    runs = [
        (START.changed(per_device_train_batch_size=micro, torch_compile=compiled), measured(100.0, peak))
        for (micro, compiled), peak in peaks.items()
    ]
    before = START.changed(per_device_train_batch_size=16)
    known = results(*runs, (before, measured(150.0, 20 * GIB)))
    effects = ChangeEffects(known, None)
    assert effects.more_bytes(found(known, before), {"torch_compile": True}) == pytest.approx(4 * GIB)
    compiled = found(known, START.changed(torch_compile=True))
    assert effects.more_bytes(compiled, {"torch_compile": False}) == pytest.approx(-GIB)


def test_a_change_that_the_wait_for_data_hid_is_tried_again_once_nothing_waits() -> None:
    """Compiling halves the computing, but the one worker was the limit when it was tried."""

    def run(trial: Trial) -> Measurement:
        settings = trial.settings
        computing = 0.5 if settings.torch_compile else 1.0
        loading = 1.2 / max(1, settings.dataloader_num_workers)
        total = max(computing, loading)
        parts = StepBreakdown(data_wait=(total - computing) / total, optimizer=0.0, padding=0.0)
        return measured(100 / total, breakdown=parts)

    start = Settings(gradient_accumulation_steps=1, dataloader_num_workers=1, precision="bf16")
    search = run_search(Search(start, space(start)), run)
    assert search.verdict is not None
    assert search.verdict.winner.torch_compile
    assert search.verdict.winner.dataloader_num_workers >= 3


def test_a_second_look_does_not_put_back_what_would_not_fit() -> None:
    """16 bit made room for the batch; fp32 beside it would need twice the activations."""

    def run(trial: Trial) -> Measurement:
        settings = trial.settings
        micro, wide = settings.per_device_train_batch_size, settings.precision == "fp32"
        peak = 4 * GIB + micro * (GIB if not wide else 2 * GIB)
        if peak > 24 * GIB:
            return out_of_memory()
        return measured(micro / (0.02 + 0.01 * micro), peak)

    search = run_search(Search(START, space(START)), run)
    assert not any(one.measurement.outcome == "out-of-memory" for one in search.tried)
    assert search.verdict is not None
    assert search.verdict.winner.per_device_train_batch_size == 16


def test_a_rival_within_the_noise_is_run_again_until_it_is_told_apart() -> None:
    one, other = START, START.changed(torch_compile=True)
    noisy = [(START, measured(100.0, spread=0.06)), (START, measured(104.0, spread=0.06))]
    close = results(*noisy, (other, measured(105.0, spread=0.06)))
    following = TieBreak(found(close, one), close).next()
    assert following is not None
    assert following[0].settings == other
    assert "once more" in following[1]
    often = results(*noisy * 2, *[(other, measured(105.0, spread=0.06))] * MAX_RUNS)
    assert TieBreak(found(often, one), often).next() is None
    slower = results(*noisy, (other, measured(99.0, spread=0.06)))
    assert TieBreak(found(slower, one), slower).next() is None


def test_the_best_is_run_again_where_it_was_run_less_often_than_its_rival() -> None:
    best, rival = START, START.changed(torch_compile=True)
    known = results((best, measured(100.0, spread=0.08)), *[(rival, measured(103.0, spread=0.08))] * 2)
    following = TieBreak(found(known, best), known).next()
    assert following is not None
    assert following[0].settings == best


@pytest.mark.parametrize(
    ("bend", "winner", "tried"),
    [(0, 8, [2, 1, 4, 8]), (6 * GIB, 2, [2, 1, 4])],
    ids=["straight", "bent"],
)
def test_a_size_that_only_a_bend_could_forbid_is_dared_once_where_much_is_to_be_gained(
    bend: int, winner: int, tried: list[int]
) -> None:
    """Large weights and small batches: two runs on a flat line do not tell what lies beyond."""

    def run(trial: Trial) -> Measurement:
        micro = trial.settings.per_device_train_batch_size
        peak = 18 * GIB + micro * GIB // 2 + (bend if micro > 2 else 0)
        return measured(micro / (0.02 + 0.001 * micro), peak) if peak <= CARD else out_of_memory()

    start = Settings(per_device_train_batch_size=2, gradient_accumulation_steps=8)
    search = run_search(Search(start, replace(space(start), candidates={})), run)
    assert list(dict.fromkeys(sizes(search))) == tried
    assert search.verdict is not None
    assert search.verdict.winner.per_device_train_batch_size == winner
    assert sum(one.measurement.outcome == "out-of-memory" for one in search.tried) == (bend > 0)


@pytest.mark.parametrize(
    ("sample", "winner", "failed"), [(1, 8, 0), (10, 1, 1)], ids=["mostly weights", "mostly batch"]
)
def test_from_one_sample_alone_the_second_is_dared(sample: int, winner: int, failed: int) -> None:
    """One sample takes two thirds of the card: nothing is proved, but most of that is no sample's, as a rule."""

    def run(trial: Trial) -> Measurement:
        micro = trial.settings.per_device_train_batch_size
        peak = (16 - sample + sample * micro) * GIB
        return measured(micro / (0.02 + 0.001 * micro), peak) if peak <= CARD else out_of_memory()

    start = Settings(per_device_train_batch_size=1, gradient_accumulation_steps=8)
    search = run_search(Search(start, replace(space(start), candidates={})), run)
    assert search.verdict is not None
    assert search.verdict.winner.per_device_train_batch_size == winner
    assert sum(one.measurement.outcome == "out-of-memory" for one in search.tried) == failed


def test_memory_that_the_optimizer_step_takes_is_no_samples() -> None:
    """Forward and backward take less than weights, gradients and states do while the optimizer steps."""

    def run(trial: Trial) -> Measurement:
        micro = trial.settings.per_device_train_batch_size
        line = (14 + 3 * micro) * GIB
        peak = max(line, 22 * GIB)
        return (
            measured(micro / (0.02 + 0.001 * micro), peak, batch_peak_bytes=line) if peak <= CARD else out_of_memory()
        )

    start = Settings(per_device_train_batch_size=1, gradient_accumulation_steps=2)
    search = run_search(Search(start, replace(space(start), candidates={})), run)
    assert search.verdict is not None
    assert search.verdict.winner.per_device_train_batch_size == 2
