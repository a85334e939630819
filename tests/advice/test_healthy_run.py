"""A healthy training of five minutes, replayed second by second, shows no finding; the same with a fault does."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest
from msgspec.structs import replace

from tests.fakes.situations import GB, PID, box, make_gpu, sample, worker
from tuner_tui.advice.diagnose import FindingHysteresis, diagnose
from tuner_tui.advice.situation import Situation
from tuner_tui.hardware.sample import Sample
from tuner_tui.runs.events import types as ev
from tuner_tui.runs.events.fold import fold
from tuner_tui.runs.events.run_state import RunState
from tuner_tui.settings.model import Settings

BEGAN = 1_000_000.0
SECONDS = 300
STEPS_S = 2.0
SETTINGS = Settings(
    dataloader_num_workers=4, dataloader_persistent_workers=True, dataloader_prefetch_factor=4, precision="bf16",
    optim="adamw_torch_fused", per_device_train_batch_size=48, gradient_accumulation_steps=2,
)  # fmt: skip
IN_EFFECT = {
    "autocast_dtype": "bfloat16", "optimizer": "AdamW", "fused": True, "dataloader_num_workers": 4,
    "dataloader_prefetch_factor": 4, "dataloader_persistent_workers": True, "per_device_train_batch_size": 48,
    "gradient_accumulation_steps": 2, "gradient_checkpointing": False, "torch_compile": False,
    "attn_implementation": "sdpa",
}  # fmt: skip


def events_of_second(second: int, draw: random.Random, wait: float) -> Iterator[ev.Event]:
    """What the training tells in its n-th second: evaluated and saved once a minute."""
    t, step = BEGAN + second, int(second * STEPS_S)
    if second == 1:
        yield ev.InEffect(t=t, rank=0, values=IN_EFFECT)
    train_s = float(second) - 6.0 * (second // 60)
    yield ev.Steps(
        t=t, rank=0, step=step, own_steps=step, micro_steps=2 * step, samples=96 * step, tokens=9000 * step,
        padding_tokens=700 * step, train_s=train_s, data_wait_s=wait * train_s * draw.uniform(0.95, 1.0),
        eval_s=5.0 * (second // 60), save_s=1.0 * (second // 60), slowest_step_s=draw.uniform(0.5, 0.7),
        allocated_bytes=draw.randrange(14 * GB, 15 * GB), anonymous_bytes=draw.randrange(3 * GB, 4 * GB),
    )  # fmt: skip
    yield ev.Metrics(t=t, rank=0, step=step, loss=2.0 / (1 + second), grad_norm=draw.uniform(0.2, 2.0), epoch=0.1)


def hardware(second: int, draw: random.Random) -> Sample:
    gpu = {"utilisation_pct": draw.uniform(93, 99), "power_w": draw.uniform(300, 345)}
    taken = sample(BEGAN + second, gpu=gpu, cpu_pct=draw.uniform(30, 70), disk_free_bytes=200 * GB)
    loaders = tuple(worker(PID + 1 + n, draw.uniform(30, 80)) for n in range(4))
    return replace(taken, processes=(*taken.processes[:1], *loaders))


def shown(seed: int, wait: float) -> tuple[str, ...]:
    """Every cause that is shown at any time of the five minutes."""
    draw = random.Random(seed)
    state, steadiness, samples = RunState(), FindingHysteresis(), list[Sample]()
    state = fold(state, ev.Launched(t=BEGAN, pid=PID))
    state = fold(state, ev.Started(t=BEGAN, rank=0, pid=PID))
    seen: dict[str, None] = {}
    for second in range(1, SECONDS + 1):
        for event in events_of_second(second, draw, wait):
            state = fold(state, event)
        samples.append(hardware(second, draw))
        situation = Situation(
            state, BEGAN + second + 0.2, SETTINGS, box(make_gpu()), samples=tuple(samples[-300:]),
        )  # fmt: skip
        steadiness = steadiness.after(diagnose(situation), situation.now_s)
        seen |= dict.fromkeys(finding.cause for finding in steadiness.shown)
    return tuple(seen)


@pytest.mark.parametrize("seed", range(5))
def test_nothing_is_found_in_a_healthy_training(seed: int) -> None:
    assert shown(seed, wait=0.03) == ()


def test_the_same_training_that_waits_for_its_data() -> None:
    assert shown(0, wait=0.4) == ("data-wait",)
