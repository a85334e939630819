"""By how much each rung changes a setting, and where it is not offered."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.fakes.situations import NOW, box, make_gpu, situation, training
from tuner_tui.advice.remedies.computed import climb, more_workers, possible_gain
from tuner_tui.hardware.sample import HostSample, ProcessSample, Sample
from tuner_tui.settings.model import Settings

STEPS: list[dict[str, Any]] = yaml.load(Path(__file__).with_name("steps.yaml").read_text("utf-8"), yaml.CSafeLoader)
GPUS = {"RTX 3090": (make_gpu(),), "V100": (make_gpu(name="V100", capability=(7, 0)),), "none": ()}


@pytest.mark.parametrize("step", STEPS, ids=lambda step: f"{step['rung']} {step['now']}")
def test_a_rung_changes_this_much(step: dict[str, Any]) -> None:
    machine = box(*GPUS[step.get("gpu", "RTX 3090")], cores=step.get("cores", 16))
    state = training(rates={"data_wait_share": step.get("data_wait", 0.02)}, in_effect=step.get("in_effect", {}))
    now = situation(inventory=machine, state=state, settings=Settings(**step["now"]))
    result = [dict(remedy.change) for remedy in climb(step["rung"], now)]
    assert result == ([step["change"]] if "change" in step else [])


@pytest.mark.parametrize(
    ("parameters", "effect"), [(None, "6 bytes per parameter less"), (1_000_000_000, "6.0 GB less")]
)
def test_eight_bit_states_save_six_bytes_of_eight(parameters: int | None, effect: str) -> None:
    now = situation(state=training(trainable_parameters=parameters), settings=Settings(optim="adamw_torch"))
    (remedy,) = climb("eight-bit-optimizer", now)
    assert remedy.effect == effect


@pytest.mark.parametrize(
    ("share", "workers", "wanted", "gain"),
    [
        # Eight workers take the whole step; with ten, loading takes 8/10 of it, computing 60 %.
        (0.4, 8, 10, 1.25),
        (0.1, 8, 10, 1 / 0.9),
        # Without workers loading is the wait itself: 40 % spread over four workers is less than computing.
        (0.4, 0, 4, 1 / 0.6),
        # One worker for a wait of 98 %: loading alone still takes 98 % of the step.
        (0.98, 0, 1, 1 / 0.98),
        (1.0, 4, 6, 1.5),
        (None, 4, 6, None),
    ],
)
def test_a_step_takes_as_long_as_the_slower_of_computing_and_loading(
    share: float | None, workers: int, wanted: int, gain: float | None
) -> None:
    assert possible_gain(share, workers, wanted) == pytest.approx(gain)


def effects(share: float, workers: int, cores: int) -> list[str]:
    now = situation(state=training(rates={"data_wait_share": share}), inventory=box(make_gpu(), cores=cores))
    return [remedy.effect for remedy in more_workers(now, Settings(dataloader_num_workers=workers))]


@pytest.mark.parametrize(
    ("workers", "cpu", "queue", "offered"),
    [
        (0, 8.0, 0.0, ["up to about 16× the steps per second"]),
        (0, 95.0, 0.0, []),
        (0, 8.0, 80.0, []),
        (2, 8.0, 0.0, ["up to about 8× the steps per second"]),
        (8, 8.0, 0.0, ["up to about 2× the steps per second"]),
        (16, 8.0, 0.0, []),
    ],
)
def test_loading_that_takes_no_core_may_have_more_workers_than_cores(
    workers: int, cpu: float, queue: float, offered: list[str]
) -> None:
    loading = ProcessSample(7, "worker" if workers else "main", cpu_pct=cpu, cpu_queue_pct=queue)
    processes = (loading, ProcessSample(6, "main", cpu_pct=0.5)) if workers else (loading,)
    samples = tuple(Sample(NOW - ago, host=HostSample(), processes=processes) for ago in range(30, 0, -1))
    now = situation(
        state=training(rates={"data_wait_share": 0.99}), inventory=box(make_gpu(), cores=2), samples=samples
    )
    offers = list(more_workers(now, Settings(dataloader_num_workers=workers)))
    assert [remedy.effect for remedy in offers] == offered
    assert all("PyTorch warns about more workers than cores" in remedy.why for remedy in offers)


def test_a_remedy_without_a_gain_is_not_offered() -> None:
    assert effects(0.99, 0, cores=2) == effects(0.97, 0, cores=2) == []
    assert effects(0.5, 0, cores=2) == ["up to about 2× the steps per second"]


@pytest.mark.parametrize(("share", "effect"), [(0.49, "2"), (0.52, "2"), (0.55, "2"), (0.4, "1.7"), (0.3, "1.4")])
def test_a_possible_gain_is_said_as_coarsely_as_it_is_known(share: float, effect: str) -> None:
    assert effects(share, 0, cores=8)[0].startswith(f"up to about {effect}× the steps")
