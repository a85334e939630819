"""The search: what it tries and in which order, what it leaves, and what it says at its end."""

from __future__ import annotations

import re
from typing import Any

import pytest
from msgspec.structs import replace

from tests.benchmarks.tuning.simulated_training import GIB, PYTHON, recorded
from tests.fakes.situations import box
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
from tuner_tui.settings.job import BuiltinJob, CommandJob
from tuner_tui.settings.model import Settings
from tuner_tui.tuning.search.search import Search
from tuner_tui.tuning.search.space import MICRO, NOT_REACHED, build_space
from tuner_tui.tuning.trial import Measurement, StepBreakdown, Trial

START = Settings(gradient_accumulation_steps=8)


def reasons(search: Search, knob: str) -> list[str]:
    return [entry.reason for entry in search.skipped if entry.knob == knob]


def test_it_begins_with_the_start_and_the_same_again() -> None:
    first = Search(START, space(START)).proposals[0]
    assert (first.number, first.purpose, first.settings) == (1, "start", START)
    second = recorded(Search(START, space(START)), first, linear_measurement(first)).proposals[0]
    assert (second.number, second.purpose, second.settings) == (2, "noise", START)


def test_two_runs_far_apart_call_for_a_third() -> None:
    search = Search(START, space(START))
    for rate in (100.0, 90.0):
        trial = search.propose()
        assert trial is not None
        search = recorded(search, trial, measured(rate))
    third = search.proposals[0]
    assert third.purpose == "noise"


def test_memory_is_filled_with_the_effective_batch_held_and_the_winner_is_confirmed_in_turn() -> None:
    search = run_search(Search(START, space(START)), linear_measurement)
    verdict = search.conclusion
    assert verdict.winner.per_device_train_batch_size == 16
    assert verdict.winner.effective_batch() == START.effective_batch()
    assert verdict.ratio == pytest.approx((16 / 0.18) / (8 / 0.1))
    assert verdict.ratio_low is not None
    assert verdict.ratio_low > 1
    confirming = [
        completed.trial.settings == START for completed in search.trials if completed.trial.purpose == "confirm"
    ]
    assert confirming == [True, False, False, True], "the order turns, so that a steady drift favours nobody"
    assert not any(completed.measurement.outcome == "out-of-memory" for completed in search.trials)


def test_a_free_effective_batch_comes_with_the_learning_rate_rule() -> None:
    search = run_search(Search(START, space(START, hold_effective_batch=False)), linear_measurement)
    assert search.conclusion.winner.per_device_train_batch_size >= 18
    assert search.conclusion.winner.effective_batch() != START.effective_batch()
    assert "square-root scaling" in search.conclusion.learning_rate_note


def test_knobs_are_tried_by_their_bound_and_left_where_it_is_within_the_noise() -> None:
    breakdown = StepBreakdown(data_wait=0.3, optimizer=0.004, padding=0.1)
    only = Settings(gradient_accumulation_steps=1, precision="bf16", torch_compile=True)
    search = run_search(Search(only, space(only)), lambda trial: measured(100.0, breakdown=breakdown))
    tried = [completed.trial.changed[0] for completed in search.trials if completed.trial.purpose == "knob"]
    assert tried == ["dataloader_num_workers", "torch_compile", "train_sampling_strategy"]
    assert "within the noise" in reasons(search, "optim")[0]
    assert search.conclusion.winner == only
    assert search.conclusion.ratio is None


@pytest.mark.parametrize(("gain", "winner"), [(1.5, 8), (1.0, 1)])
def test_what_looks_faster_within_the_noise_is_compared_in_pairs(gain: float, winner: int) -> None:
    """The start's own runs differ by half; 8 × 1 looks a fifth faster, and the pairs measure `gain`."""
    rates = iter((81.3, 122.5, 97.9, 88.4, 102.1))
    drift = iter((80.0, 84.0, 118.0, 110.0, 96.0, 99.0, 88.0, 90.0))

    def run(trial: Trial) -> Measurement:
        micro = trial.settings.per_device_train_batch_size
        if trial.purpose == "confirm":
            return measured(next(drift) * (gain if micro > 1 else 1.0))
        return measured(next(rates) if micro == 1 else 117.2)

    start = Settings(per_device_train_batch_size=1, gradient_accumulation_steps=8)
    only_batches = replace(space(start), candidates={})
    search = run_search(Search(start, only_batches), run)
    assert search.conclusion.winner.per_device_train_batch_size == winner
    assert "confirm" in purposes(search)


def test_a_change_is_kept_only_above_the_noise() -> None:
    def run(trial: Trial) -> Measurement:
        wobble = 1.05 if trial.purpose == "noise" else 1.0
        gain = 1.03 if trial.settings.optim == "adamw_torch_fused" else 1.0
        return measured(100.0 * wobble * gain, breakdown=StepBreakdown(data_wait=0.0, optimizer=0.2, padding=0.0))

    search = run_search(Search(START, space(START)), run)
    assert any(completed.trial.changed == ("optim",) for completed in search.trials)
    assert search.conclusion.winner.optim == START.optim


def test_workers_are_as_many_as_the_wait_asks_for() -> None:
    breakdown = StepBreakdown(data_wait=0.7, optimizer=0.0, padding=0.0)
    search = Search(START, space(START, cores=16))
    changed = []
    while (trial := search.propose()) is not None and trial.purpose != "confirm":
        changed += [trial.settings.dataloader_num_workers] if "dataloader_num_workers" in trial.changed else []
        search = recorded(search, trial, measured(100.0, breakdown=breakdown))
    assert changed[0] == 4
    winner = next(
        completed.trial.settings for completed in search.trials if "dataloader_num_workers" in completed.trial.changed
    )
    assert winner.dataloader_persistent_workers


def test_what_does_not_reach_the_training_is_not_tried() -> None:
    job = CommandJob(command=("python", "train.py", "--bs={per_device_train_batch_size}"), apply="placeholders")
    search = run_search(Search(START, space(START, job)), linear_measurement)
    assert set(purposes(search)) == {"start", "noise"}
    assert NOT_REACHED in reasons(search, "precision")
    (reason,) = {*reasons(search, "per_device_train_batch_size")} - {NOT_REACHED}
    assert reason.startswith("accumulation would have to change with it and cannot be passed")


def test_a_prime_effective_batch_leaves_one_and_itself() -> None:
    start = Settings(gradient_accumulation_steps=13, per_device_train_batch_size=1)
    search = run_search(Search(start, space(start)), lambda trial: linear_measurement(trial, sample=2 * GIB))
    assert set(sizes(search)) == {1}
    assert any("13 is prime" in reason for reason in reasons(search, "per_device_train_batch_size"))


def test_no_micro_batch_is_larger_than_the_data() -> None:
    start = Settings(per_device_train_batch_size=32)
    search = run_search(
        Search(start, space(start, dataset_size=10)), lambda trial: linear_measurement(trial, sample=GIB // 10)
    )
    assert max(sizes(search)) == 8
    assert search.conclusion.winner.effective_batch() == 32


def test_the_job_says_how_many_samples_there_are() -> None:
    assert space(START, BuiltinJob(max_samples=5), dataset_size=100).dataset_size == 5


def test_time_left_shrinks_to_nothing() -> None:
    search = Search(START, space(START))
    assert search.remaining_s() is None
    trial = search.proposals[0]
    after = recorded(search, trial, linear_measurement(trial)).remaining_s()
    assert after is not None
    assert 0 < after[0] <= after[1]
    assert run_search(search, linear_measurement).remaining_s() == (0.0, 0.0)


def test_time_left_counts_the_trials_that_are_needed_at_least_and_at_most() -> None:
    """Trials of 10 s: the start once more and a change; then two pairs of start and winner at least, four at most."""
    search = Search(START, space(START))
    left: list[tuple[str, Any]] = []
    while (trial := search.propose()) is not None:
        left.append((trial.purpose, search.remaining_s()))
        search = recorded(search, trial, linear_measurement(trial))
    assert left[1] == ("noise", (20.0, pytest.approx(150.0, abs=50.0)))
    assert [seconds for purpose, seconds in left if purpose == "confirm"] == [
        (40.0, 80.0), (30.0, 70.0), (20.0, 60.0), (10.0, 50.0)
    ]  # fmt: skip


def test_the_figures_of_start_and_winner_are_those_of_the_comparison() -> None:
    """A tuning's first runs were twice as slow: 36,530 → 40,961 stood next to 1.06 times."""

    def run(trial: Trial) -> Measurement:
        figures = linear_measurement(trial)
        pace = 1.0 if trial.purpose == "confirm" else 0.5
        return measured((figures.samples_s or 0.0) * pace, figures.peak_bytes or 0)

    result = run_search(Search(START, space(START)), run).conclusion
    assert result.start is not None
    assert result.best is not None
    assert result.start.samples_s == pytest.approx(8 / 0.1)
    assert (result.best.samples_s or 0.0) / (result.start.samples_s or 1.0) == pytest.approx(result.ratio)


def test_a_search_broken_off_after_one_pair_confirms_nothing() -> None:
    whole = run_search(Search(START, space(START)), linear_measurement)
    broken_off = Search(START, whole.space, whole.trials[:-2])
    assert broken_off.proposals
    assert broken_off.conclusion.winner == START
    assert broken_off.conclusion.ratio is None
    assert broken_off.conclusion.sentence.startswith("Not confirmed")
    assert "1 pair)" in broken_off.conclusion.sentence


def test_what_was_measured_is_named_where_no_pair_was_run() -> None:
    whole = run_search(Search(START, space(START)), linear_measurement)
    changes = tuple(completed for completed in whole.trials if completed.trial.purpose != "confirm")
    conclusion = Search(START, whole.space, changes).conclusion
    assert conclusion.winner == START
    assert re.match(r"\d\.\d\d× the current speed was measured but not confirmed: no comparison", conclusion.sentence)


def test_a_search_that_closes_compares_and_changes_nothing_more() -> None:
    search = Search(START, space(START))
    while search.best is None or search.best.settings.per_device_train_batch_size < 16:
        trial = search.propose()
        assert trial is not None
        search = recorded(search, trial, linear_measurement(trial))
    closing = run_search(Search(START, search.space, search.trials, compare_only=True), linear_measurement)
    assert set(purposes(closing)[len(search.trials) :]) == {"confirm"}
    assert not closing.proposals
    assert closing.conclusion.winner.per_device_train_batch_size == 16


def test_twice_the_size_is_there_if_the_largest_takes_too_long() -> None:
    """A sample takes 1 MiB: hundreds of them fit, and a step of so many may take longer than there is time."""
    search = Search(START, space(START, hold_effective_batch=False))
    while (trial := search.propose()) is not None and trial.purpose != "batch":
        search = recorded(search, trial, linear_measurement(trial, base=GIB, sample=2**20))
    batches = [
        proposal.settings.per_device_train_batch_size for proposal in search.proposals if proposal.purpose == "batch"
    ]
    assert batches[0] >= 4 * START.per_device_train_batch_size
    assert batches[1:] == [2 * START.per_device_train_batch_size]


def test_without_a_gpu_a_free_batch_grows_in_steps_as_long_as_that_pays() -> None:
    """Sixty thousand samples would fit. At 4096, 0.3 % of a step is left to gain, which is within the noise."""
    start = Settings(per_device_train_batch_size=16, gradient_accumulation_steps=1)
    host = build_space(box(), PYTHON, BuiltinJob(), start, memory_limit_bytes=60 * GIB, hold_effective_batch=False)
    only_batches = replace(host, candidates={})

    def run(trial: Trial) -> Measurement:
        micro = trial.settings.per_device_train_batch_size
        return measured(micro / (0.1 + 0.01 * micro), GIB + 2**20 * micro)

    search = run_search(Search(start, only_batches), run)
    tried = [
        completed.trial.settings.per_device_train_batch_size
        for completed in search.trials
        if completed.trial.purpose == "batch"
    ]
    assert tried == [64, 256, 1024, 4096]


SMALL = Settings(per_device_train_batch_size=4, gradient_accumulation_steps=4)


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
    assert search.conclusion.winner.torch_compile
    assert search.conclusion.winner.dataloader_num_workers >= 3


def test_what_16_bit_made_room_for_is_not_lost_again() -> None:
    """16 bit made room for the batch; with fp32 it would need twice the activations."""

    def run(trial: Trial) -> Measurement:
        settings = trial.settings
        micro, wide = settings.per_device_train_batch_size, settings.precision == "fp32"
        peak = 4 * GIB + micro * (GIB if not wide else 2 * GIB)
        if peak > 24 * GIB:
            return out_of_memory()
        return measured(micro / (0.02 + 0.01 * micro), peak)

    search = run_search(Search(SMALL, space(SMALL)), run)
    assert not any(completed.measurement.outcome == "out-of-memory" for completed in search.trials)
    assert search.conclusion.winner.per_device_train_batch_size == 16


def test_memory_that_the_optimizer_step_takes_is_no_samples() -> None:
    """Forward and backward take less than weights, gradients and states do while the optimizer steps."""

    def run(trial: Trial) -> Measurement:
        micro = trial.settings.per_device_train_batch_size
        line = (14 + 3 * micro) * GIB
        peak = max(line, 22 * GIB)
        return measured(micro / (0.02 + 0.001 * micro), peak, batch_peak_bytes=line) if peak <= GPU else out_of_memory()

    start = Settings(per_device_train_batch_size=1, gradient_accumulation_steps=2)
    search = run_search(Search(start, replace(space(start), candidates={})), run)
    assert search.conclusion.winner.per_device_train_batch_size == 2


def test_memory_that_hardly_grows_is_found_by_a_smaller_size_where_there_is_no_estimate() -> None:
    start = Settings(per_device_train_batch_size=2, gradient_accumulation_steps=2)
    search = Search(start, space(start, hold_effective_batch=False))
    search = run_search(search, lambda trial: linear_measurement(trial, base=21 * GIB, sample=GIB // 8))
    assert sizes(search)[2] == 1, "a second point for the memory model"
    assert search.conclusion.winner.per_device_train_batch_size >= 12


def test_a_change_that_runs_out_of_memory_is_tried_with_a_smaller_micro_batch() -> None:
    """Compiling takes more memory at first, and is worth half the micro batch."""

    def run(trial: Trial) -> Measurement:
        micro = trial.settings.per_device_train_batch_size
        compiled = trial.settings.torch_compile
        if compiled and micro > 4:
            return out_of_memory()
        return measured((150.0 if compiled else 100.0) * micro / (micro + 1), micro * GIB)

    start = Settings(per_device_train_batch_size=8, gradient_accumulation_steps=1, precision="bf16")
    search = run_search(Search(start, space(start)), run)
    assert (search.conclusion.winner.torch_compile, search.conclusion.winner.per_device_train_batch_size) == (True, 4)


def test_no_workers_are_tried_where_more_of_them_wait_as_long() -> None:
    """Handing over a batch takes as long as computing it, with however many workers."""

    def run(trial: Trial) -> Measurement:
        handed_over = trial.settings.dataloader_num_workers > 0
        waits = StepBreakdown(data_wait=0.4 if handed_over else 0.1, optimizer=0.0, padding=0.0)
        return measured(100.0 if handed_over else 150.0, breakdown=waits)

    start = Settings(gradient_accumulation_steps=1, dataloader_num_workers=2, precision="bf16", torch_compile=True)
    search = run_search(Search(start, space(start)), run)
    assert search.conclusion.winner.dataloader_num_workers == 0


@pytest.mark.parametrize("cores", [3, 8], ids=["prefetching alone can grow", "workers can grow"])
def test_no_workers_are_tried_after_those_that_gained_within_the_noise(cores: int) -> None:
    """Handing over takes as long whatever is loaded ahead; what loads ahead most looks best by half a percent."""

    def run(trial: Trial) -> Measurement:
        workers, prefetch = trial.settings.dataloader_num_workers, trial.settings.dataloader_prefetch_factor or 2
        waits = StepBreakdown(data_wait=0.2 if workers else 0.0, optimizer=0.0, padding=0.0)
        return measured(100.0 + workers + prefetch / 4 if workers else 125.0, breakdown=waits)

    start = Settings(gradient_accumulation_steps=1, dataloader_num_workers=2, precision="bf16", torch_compile=True)
    search = run_search(Search(start, space(start, cores=cores)), run)
    assert search.conclusion.winner.dataloader_num_workers == 0


def test_no_worker_is_tried_too_where_fewer_are_slower_on_crowded_cores() -> None:
    rates = {4: 100.0, 2: 95.0, 1: 90.0, 0: 112.0}
    start = Settings(gradient_accumulation_steps=1, dataloader_num_workers=4, precision="bf16", torch_compile=True)
    search = Search(start, space(start, cores=2))
    search = run_search(search, lambda trial: measured(rates[trial.settings.dataloader_num_workers]))
    assert search.conclusion.winner.dataloader_num_workers == 0


@pytest.mark.parametrize(("share", "is_compiled"), [(0.5, False), (0.9, True)], ids=["roomy", "full"])
def test_compiling_is_left_out_where_it_is_slower_and_the_memory_has_room(share: float, is_compiled: bool) -> None:
    def run(trial: Trial) -> Measurement:
        return measured(100.0 if trial.settings.torch_compile else 120.0, int(share * GPU))

    start = Settings(gradient_accumulation_steps=1, precision="bf16", torch_compile=True)
    search = run_search(Search(start, space(start)), run)
    assert search.conclusion.winner.torch_compile == is_compiled


def test_of_a_free_batch_the_multiple_of_8_below_is_tried() -> None:
    """Memory holds 23 samples, which are computed as 32."""

    def run(trial: Trial) -> Measurement:
        micro = trial.settings.per_device_train_batch_size
        peak = int((1 + micro * 0.95) * GIB)
        return measured(micro / (0.01 + 0.01 * -(-micro // 16)), peak) if peak <= GPU else out_of_memory()

    start = Settings(gradient_accumulation_steps=1, precision="bf16", torch_compile=True)
    search = run_search(Search(start, space(start, hold_effective_batch=False)), run)
    assert search.conclusion.winner.per_device_train_batch_size == 16


def test_a_processor_has_no_tiles() -> None:
    start = Settings(per_device_train_batch_size=12, gradient_accumulation_steps=1)
    on_cpu = build_space(box(), PYTHON, BuiltinJob(), start, hold_effective_batch=False)
    assert not on_cpu.on_gpu
    search = run_search(Search(start, on_cpu), lambda trial: measured(100.0))
    assert 8 not in sizes(search)


def test_what_gained_nothing_with_a_tiny_micro_batch_is_tried_again_with_a_large_one() -> None:
    """With fewer than 8 samples the launches take all of the time, in either precision."""

    def run(trial: Trial) -> Measurement:
        micro = trial.settings.per_device_train_batch_size
        each_s = 0.001 if trial.settings.precision != "fp32" else 0.004
        peak = 21 * GIB + (GIB // 64 if trial.settings.gradient_checkpointing else GIB) * micro
        rate = micro / max(0.03, each_s * micro)
        return measured(rate, peak, resident_bytes=21 * GIB) if peak <= GPU else out_of_memory()

    start = Settings(per_device_train_batch_size=1, gradient_accumulation_steps=64)
    candidates = {"precision": ("fp32", "bf16"), "gradient_checkpointing": (False, True)}
    search = run_search(Search(start, replace(space(start), candidates=candidates)), run)
    assert search.conclusion.winner.precision == "bf16"
    assert search.conclusion.winner.per_device_train_batch_size >= 32


def test_a_run_that_is_slower_than_its_change_can_make_it_is_repeated() -> None:
    """Another program slows down the first trial of the fused optimizer for all of its length."""
    fused: list[float] = [70.0, 130.0, 130.0]

    def run(trial: Trial) -> Measurement:
        if trial.settings.optim == "adamw_torch_fused":
            return measured(fused.pop(0) if len(fused) > 1 else fused[0])
        return measured(100.0, breakdown=StepBreakdown(data_wait=0.0, optimizer=0.4, padding=0.0))

    start = Settings(gradient_accumulation_steps=1, optim="adamw_torch", precision="bf16", torch_compile=True)
    search = run_search(Search(start, space(start)), run)
    assert search.conclusion.winner.optim == "adamw_torch_fused"


def test_a_start_is_repeated_until_a_run_agrees_with_the_fastest() -> None:
    """Two of the first three runs were disturbed, so that they say nothing of the noise."""
    rates = iter((61.0, 89.0, 67.0))
    search = run_search(Search(START, space(START)), lambda trial: measured(next(rates, 90.0)))
    assert purposes(search)[:4] == ["start", "noise", "noise", "noise"]
    assert purposes(search)[4] != "noise"
    assert search.results.noise < 0.1


def test_a_larger_batch_alone_that_is_slower_is_measured_again() -> None:
    """Another program halves the speed of the first trial of two samples."""
    slow = iter((0.55,))

    def run(trial: Trial) -> Measurement:
        result = linear_measurement(trial, sample=6 * GIB)
        return measured(98.0, result.peak_bytes or 0) if trial.changed == (MICRO,) and next(slow, None) else result

    start = Settings(per_device_train_batch_size=1, gradient_accumulation_steps=8, precision="bf16")
    search = run_search(Search(start, replace(space(start), candidates={})), run)
    assert search.conclusion.winner.per_device_train_batch_size == 2


def test_what_padding_takes_from_a_larger_batch_is_given_back_by_similar_lengths() -> None:
    def run(trial: Trial) -> Measurement:
        micro = trial.settings.per_device_train_batch_size
        padding = 0.0 if micro == 1 or trial.settings.train_sampling_strategy == "group_by_length" else 0.7
        rate = (1 - padding) * micro / (0.02 + 0.01 * micro)
        parts = StepBreakdown(data_wait=0.0, optimizer=0.0, padding=padding)
        return measured(rate, (4 + micro) * GIB, breakdown=parts) if micro <= 16 else out_of_memory()

    start = Settings(per_device_train_batch_size=1, gradient_accumulation_steps=16, precision="bf16")
    search = run_search(Search(start, space(start)), run)
    winner = search.conclusion.winner
    assert (winner.train_sampling_strategy, winner.per_device_train_batch_size) == ("group_by_length", 16)


def test_sizes_beyond_one_that_is_slower_are_not_tried() -> None:
    def run(trial: Trial) -> Measurement:
        micro = trial.settings.per_device_train_batch_size
        return measured(100.0 / (1 + abs(micro - 6) / 20), (4 + micro) * GIB)

    start = Settings(per_device_train_batch_size=2, gradient_accumulation_steps=1, precision="bf16")
    only_batches = replace(space(start, hold_effective_batch=False), candidates={})
    search = run_search(Search(start, only_batches), run)
    slower = next(size for size in sizes(search) if size > 10)
    assert max(sizes(search)) == slower
    assert search.conclusion.winner.per_device_train_batch_size < slower


def test_one_run_far_below_two_that_agree_is_no_noise() -> None:
    search = Search(START, space(START))
    for rate in (100.0, 60.0, 101.0):
        trial = search.propose()
        assert trial is not None
        search = recorded(search, trial, measured(rate))
    trial = search.propose()
    assert trial is not None
    assert trial.purpose == "batch"
    # Were the second one counted, the gain would be within the noise.
    search = recorded(search, trial, measured(108.0))
    assert search.best is not None
    assert search.best.settings == trial.settings
