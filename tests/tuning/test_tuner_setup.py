"""A tuning put together: what may be tried by what is known, the estimate it begins with."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.fakes.inventories import box, card, python
from tests.fakes.listed_search import measured
from tests.tuning.builders import SCRIPT, resolved
from tuner_tui.hardware.inventory import Inventory
from tuner_tui.memory.fit import PeakModel
from tuner_tui.runs.store.record import resolved_to_json
from tuner_tui.settings.job import BuiltinJob, CommandJob, Job
from tuner_tui.tuning.create import TunerSpec
from tuner_tui.tuning.search.search import Search
from tuner_tui.tuning.store import TuningRecord
from tuner_tui.tuning.trial import Trial, WholeJob
from tuner_tui.tuning.trial_runner import TrialReport
from tuner_tui.tuning.tuner import TrialHistory, TuningContext, estimate_prior

GIB = 2**30
START = resolved(per_device_train_batch_size=8)
BERT = BuiltinJob(model="bert-base")


def setting(inventory: Inventory, job: Job = BERT, prior: PeakModel | None = None, **options: Any) -> TuningContext:
    record = TuningRecord(
        id="t001", title="x", created_t=0.0, job=job, **resolved_to_json(START), cwd="/", most_minutes=9.0, **options
    )
    return TuningContext(record, TunerSpec(job), inventory, python(), prior)


def known(**figures: Any) -> TrialHistory:
    trial = Trial(number=1, purpose="start", settings=START.settings, reason="")
    return TrialHistory(START.settings).after(
        trial, TrialReport(measured(**figures), START.settings, frozenset({"precision"}))
    )


def test_what_the_trials_showed_bounds_what_is_tried() -> None:
    space = setting(box(card("RTX 3090"))).space(known(room_bytes=20 * GIB, dataset_samples=100))
    assert space.capacity_bytes == 20 * GIB
    assert space.dataset_size == 100
    assert "precision" in space.unreachable
    assert "bf16" not in space.candidates.get("precision", ())


def test_the_whole_job_is_compared_unless_steady_speed_is_asked_for() -> None:
    """20 samples a step for 300 steps."""
    long = known(speed=40.0, step_time_s=0.5, job_steps=300)
    assert setting(box()).space(long).whole_job == WholeJob(steps=300, samples=6000.0)
    assert setting(box(), objective="steady").space(long).whole_job is None
    assert setting(box()).space(known()).whole_job is None


def test_on_the_host_a_limit_or_its_own_memory_is_the_bound() -> None:
    assert setting(box()).space(TrialHistory(START.settings)).capacity_bytes == box().memory.usable_bytes
    assert setting(box(), memory_limit_bytes=3 * GIB).space(TrialHistory(START.settings)).capacity_bytes == 3 * GIB


def test_a_command_starts_as_many_processes_as_accelerates_own_file_says(tmp_path: Path) -> None:
    """Each of them takes its part of the data, and of the host's memory."""
    config_file = tmp_path / "accelerate.yaml"
    config_file.write_text("distributed_type: MULTI_GPU\nnum_processes: 2\n")
    launch = ("accelerate", "launch", "--config_file", str(config_file), "train.py")
    job = CommandJob(command=launch, apply="inject")
    assert setting(box(card("RTX 3090"), card("RTX 3090")), job).space(TrialHistory(START.settings)).processes == 2


def test_the_estimate_is_that_of_a_card_without_its_context(tmp_path: Path) -> None:
    orders = TunerSpec(BERT, {"TUNER_STATE_DIR": str(tmp_path)})
    found = estimate_prior(box(card("RTX 3090")), python(), orders, START.settings)
    assert found is not None
    assert 1.5 * GIB < found.peak_bytes(1) < 6 * GIB, "weights, gradients and AdamW's states of 110 M parameters"
    assert found.slope_bytes > 0
    assert setting(box(), prior=found).space(TrialHistory(START.settings)).prior == found


@pytest.mark.parametrize(("inventory", "job"), [(box(), BERT), (box(card("RTX 3090")), SCRIPT)])
def test_elsewhere_there_is_no_estimate(inventory: Inventory, job: Job) -> None:
    assert estimate_prior(inventory, python(), TunerSpec(job), START.settings) is None


def test_a_start_above_the_data_which_its_own_trial_showed_is_not_the_winner() -> None:
    """Its batches were never as large as asked for, so that it was as fast as anything."""
    small = setting(box())
    now = known(speed=200.0, dataset_samples=5)
    while (trial := Search(now.start, small.space(now), now.trials).propose()) is not None:
        assert trial.settings.per_device_train_batch_size <= 5
        now = now.after(trial, TrialReport(measured(100.0, dataset_samples=5), trial.settings))
    verdict = Search(now.start, small.space(now), now.trials).verdict
    assert verdict is not None
    assert verdict.winner.per_device_train_batch_size <= 5
