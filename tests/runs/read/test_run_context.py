"""Earlier runs of the same training, the energy of a run, and its price."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.runs.builders import record
from tuner_tui.hardware.sample import GpuSample, ProcessSample, Sample
from tuner_tui.runs.events.progress import Series
from tuner_tui.runs.events.run_state import RunState
from tuner_tui.runs.events.types import Metrics
from tuner_tui.runs.read.run_context import (
    PastRun,
    RunContext,
    core_wait_share,
    cost_text,
    gpu_energy_kwh,
    read_run_context,
)
from tuner_tui.runs.store.codec import encode_event
from tuner_tui.runs.store.folder import RunFolder, create_folder
from tuner_tui.runs.store.record import RunRecord, write_record
from tuner_tui.settings.job import CommandJob


def sample(time_s: float, *powers_w: float | None) -> Sample:
    return Sample(time_s, tuple(GpuSample(index, "H100", power_w=power) for index, power in enumerate(powers_w)))


def energy(samples: Sequence[Sample], *gpus: int) -> float | None:
    return gpu_energy_kwh(samples, lambda sample: frozenset(gpus))


def test_energy_is_the_power_of_the_gpus_of_the_training_over_the_time() -> None:
    hour = [sample(0.0, 400.0, 50.0), sample(1800.0, 600.0, 50.0), sample(3600.0, 600.0, 50.0)]
    assert energy(hour, 0) == pytest.approx((0.5 * 500 + 0.5 * 600) / 1000)
    assert energy(hour, 0, 1) == pytest.approx(0.6)
    assert energy(hour) is None
    assert energy(hour[:1], 0) is None, "one sample spans no time"
    assert energy([*hour, sample(5400.0, None, 50.0)], 0) is None
    assert energy([sample(0.0), sample(60.0)]) is None


def test_the_wait_for_a_core_is_that_of_trainers_since_the_first_step() -> None:
    def waited(time_s: float, pct: float | None) -> Sample:
        processes = (ProcessSample(1, "main", cpu_queue_pct=pct), ProcessSample(2, "worker", cpu_queue_pct=90.0))
        return Sample(time_s, processes=processes)

    samples = [waited(1.0, 100.0), waited(5.0, 40.0), waited(6.0, None), waited(7.0, 80.0)]
    assert core_wait_share(samples, 5.0) == pytest.approx(0.4), "of all time, that of the start included"
    assert core_wait_share(samples, 8.0) is None


@pytest.mark.parametrize(
    ("price", "text"),
    [
        ("0.30 €", "0.15 €"), ("€ 0.30", "€ 0.15"), ("$0.12", "$ 0.06"), ("0,30 EUR", "0.15 EUR"), ("0.3", "0.15"),
        ("", ""), ("cheap", ""), ("1.2.3", ""),
    ],
)  # fmt: skip
def test_a_price_is_a_number_with_a_currency(price: str, text: str) -> None:
    assert cost_text(0.5, price) == text
    assert cost_text(None, price) == ""


def test_the_usual_start_is_the_median_and_the_fastest_run_has_a_speed() -> None:
    rows = (("r003", None, 50.0), ("r002", 9.0, 41.0), ("r001", 8.0, None), ("r000", 7.0, 30.0))
    context = RunContext(tuple(PastRun(*row) for row in rows))
    assert context.usual_startup_s == 41.0
    assert context.fastest is not None
    assert context.fastest.id == "r002"
    assert RunContext().usual_startup_s is None
    assert RunContext().fastest is None


def test_the_loss_of_the_earlier_run_that_ended_lowest(tmp_path: Path) -> None:
    def run(created_t: float, *losses: float, **more: Any) -> tuple[RunFolder, RunRecord]:
        folder = create_folder(tmp_path)
        job = CommandJob(command=("python", "train.py"))
        written = record(id=folder.id, created_t=created_t, **{"job": job, **more})
        write_record(folder, written)
        events = (Metrics(t=float(step), rank=0, step=step, loss=loss) for step, loss in enumerate(losses, 1))
        folder.events.write_bytes(b"".join(map(encode_event, events)))
        return folder, written

    run(1.0, 3.0, 2.0)
    run(2.0, 3.0, 1.5)
    run(3.0, 3.0, float("nan"))
    run(4.0, 3.0, 0.1, job=CommandJob(command=("python", "other.py")))
    run(4.5, 3.0, 0.1, cwd="/another/project")
    folder, latest = run(5.0, 3.0)
    context = read_run_context(folder, latest, RunState(), training_gpus=lambda sample: frozenset())
    assert [past.id for past in context.past] == ["r003", "r002", "r001"]
    assert context.earlier_loss is not None
    name, loss, _ = context.earlier_loss
    assert (name, loss.xs, loss.ys) == ("r002", (1.0, 2.0), (3.0, 1.5))
    resumed = {"parent": "r001", "lineage": ("r002", "r001"), "resumed_from": "/srv/checkpoint-1"}
    folder, latest = run(6.0, 2.0, **resumed)
    context = read_run_context(folder, latest, RunState(), training_gpus=lambda sample: frozenset())
    assert context.earlier_loss == ("r001", Series("loss", "", (1.0, 2.0), (3.0, 2.0)), True)
    folder, latest = run(7.0, 2.0, **(resumed | {"resumed_from": None}))
    context = read_run_context(folder, latest, RunState(), training_gpus=lambda sample: frozenset())
    assert context.earlier_loss is not None
    assert not context.earlier_loss.continued, "it started at step 0 again"
