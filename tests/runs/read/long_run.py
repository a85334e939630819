"""The events of a long run."""

from __future__ import annotations

from pathlib import Path

from tuner_tui.runs.events.types import Checkpoint, Evaluated, Event, Launched, Metrics, Phase, Plan, Started, Steps
from tuner_tui.runs.store.codec import encode_event


def write_events(path: Path, count: int) -> None:
    """Write a run of `count` events: counters every second, metrics every five, evaluations and checkpoints."""
    with path.open("wb") as file:
        for event in (
            Launched(t=0.0, pid=1, argv=("python", "train.py")),
            Started(t=1.0, rank=0, pid=1, torch="2.13.0"),
            Plan(t=1.0, rank=0, total_steps=count * 4),
            Phase(t=2.0, rank=0, phase="training", step=0),
        ):
            file.write(encode_event(event))
        for number in range(count - 4):
            file.write(encode_event(event_number(number)))


def event_number(number: int) -> Event:
    """Event `number` of a long training."""
    t, step = 2.0 + number, number * 3
    if number % 20_000 == 19_999:
        return Evaluated(t=t, rank=0, step=step, metrics={"eval_loss": 3.0 - number / 1e6}, seconds=9.0)
    if number % 20_000 == 19_998:
        return Checkpoint(t=t, rank=0, step=step, path=f"output/checkpoint-{step}", seconds=2.0)
    if number % 5 == 4:
        return Metrics(t=t, rank=0, step=step, loss=3.0 - number / 1e6, learning_rate=1e-5, grad_norm=0.7, epoch=0.1)
    return Steps(
        t=t, rank=0, step=step, own_steps=step, micro_steps=step * 2, samples=step * 64, tokens=step * 64 * 100,
        padding_tokens=step * 64 * 7, train_s=number * 0.98, data_wait_s=number * 0.05, slowest_step_s=0.4,
        allocated_peak_bytes=21_474_836_480, reserved_peak_bytes=23_622_320_128,
    )  # fmt: skip
