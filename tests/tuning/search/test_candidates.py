"""Changes that become worth a trial late: hidden by others at first, or too risky before."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.benchmarks.tuning.simulated_training import GIB
from tests.tuning.search.builders import CARD, measured, out_of_memory, run_search, sizes, space
from tuner_tui.settings.model import Settings
from tuner_tui.tuning.search.search import Search
from tuner_tui.tuning.trial import Measurement, StepBreakdown, Trial

START = Settings(per_device_train_batch_size=4, gradient_accumulation_steps=4)


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


def test_what_16_bit_made_room_for_is_not_lost_again() -> None:
    """16 bit made room for the batch; with fp32 it would need twice the activations."""

    def run(trial: Trial) -> Measurement:
        settings = trial.settings
        micro, wide = settings.per_device_train_batch_size, settings.precision == "fp32"
        peak = 4 * GIB + micro * (GIB if not wide else 2 * GIB)
        if peak > 24 * GIB:
            return out_of_memory()
        return measured(micro / (0.02 + 0.01 * micro), peak)

    search = run_search(Search(START, space(START)), run)
    assert not any(one.measurement.outcome == "out-of-memory" for one in search.trials)
    assert search.verdict is not None
    assert search.verdict.winner.per_device_train_batch_size == 16


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
    assert sum(one.measurement.outcome == "out-of-memory" for one in search.trials) == (bend > 0)


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
    assert sum(one.measurement.outcome == "out-of-memory" for one in search.trials) == failed


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
