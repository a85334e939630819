"""Changes that become worth a trial late, hidden by others at first."""

from __future__ import annotations

from dataclasses import replace

from tests.benchmarks.tuning.simulated_training import GIB
from tests.tuning.search.builders import CARD, measured, out_of_memory, run_search, space
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
