"""Simulated trainings of another distribution than the search was made with.

Small micro batches are bound by launches, larger ones are computed in tiles; the disk limits the workers, which also
take time to hand a batch over; memory may grow faster than the batch; a machine may slow down, or be disturbed for the
whole of a trial.
"""

from __future__ import annotations

import dataclasses
import math
import random
from collections.abc import Iterator
from dataclasses import dataclass

from msgspec.structs import replace

from tests.benchmarks.tuning.simulated_training import GIB, Knobs, SimulatedTraining
from tuner_tui.memory.fit import PeakModel
from tuner_tui.settings.model import Settings
from tuner_tui.tuning.trial import Measurement


@dataclass(frozen=True)
class OtherTraining(SimulatedTraining):
    """Samples are computed in tiles of `tile`, and at least as long as `least` samples take.

    `disk` is the number of workers that saturate the disk, `handing_s` the time per sample to take over a batch of a
    worker. `bend` makes memory grow faster than the batch. `drift` is lost over ten trials; a share `disturbed` of the
    trials is slowed by 10 to 45 %.
    """

    tile: int = 1
    least: float = 0.0
    disk: float = 99.0
    handing_s: float = 0.0
    bend: float = 0.0
    drift: float = 0.0
    disturbed: float = 0.0

    def peaks(self, knobs: Knobs) -> tuple[float, float]:
        """Overall peak, and peak of forward and backward."""
        line = super().peaks(knobs)[1] + self.bend * self.slope * knobs.micro * math.log2(1 + knobs.micro) / 10
        return max(self.floor, line), line

    def step(self, knobs: Knobs) -> tuple[float, float, float, float]:
        """Seconds of forward and backward, of the optimizer and of waiting per step, and the share of padding."""
        once, each, padding = self.costs(knobs)
        rows = math.ceil(knobs.micro / self.tile) * self.tile if knobs.micro > self.tile else knobs.micro
        micro_s = max(once, each * max(rows, self.least) / (1 - padding)) + 0.2 * once
        computing = micro_s * knobs.accumulation * self.crowding(knobs)
        optimizer = self.optimizer_s * (self.fused if knobs.fused else 1)
        return computing, optimizer, self.wait(knobs, micro_s) * knobs.accumulation, padding

    def wait(self, knobs: Knobs, micro_s: float) -> float:
        """Seconds of waiting before a micro batch."""
        limited = dataclasses.replace(knobs, workers=min(knobs.workers, math.ceil(self.disk)))
        return super().wait(limited, micro_s) + (self.handing_s * knobs.micro if knobs.workers else 0.0)

    def run(self, settings: Settings, number: int) -> Measurement:
        """Result of trial `number`."""
        result, rng = super().run(settings, number), random.Random(f"{self.seed} {number} disturbed")
        if result.samples_s is None or result.tokens_s is None:
            return result
        factor = 1 - self.drift * min(1, number / 10)
        factor *= rng.uniform(0.55, 0.9) if rng.random() < self.disturbed else 1
        return replace(result, samples_s=result.samples_s * factor, tokens_s=result.tokens_s * factor)

    def grid(self) -> Iterator[Knobs]:
        """The combinations that a search may reach: it never leaves 16 bit, and a worker has a core."""
        sixteen = self.start.precision != "fp32"
        reached = (knobs for knobs in super().grid() if knobs.workers <= self.cores)
        return (knobs for knobs in reached if not (sixteen and knobs.precision == "fp32"))


def other_training(seed: int) -> OtherTraining | None:
    """A random training of this distribution; None if it does not run with its initial settings."""
    rng = random.Random(f"other {seed}")
    capacity = rng.choice([6, 10, 12, 20, 24, 32, 45, 64, 96, 180]) * GIB
    most = int(2 ** rng.uniform(0, 11))
    base = capacity * rng.uniform(0.01, 0.85)
    micro = min(most, rng.choice([1, 1, 2, 3, 4, 6, 8, 12, 16, 32]))
    start = Settings(
        per_device_train_batch_size=micro,
        gradient_accumulation_steps=rng.choice([1, 1, 2, 4, 5, 8, 16]),
        gradient_checkpointing=rng.random() < 0.4,
        dataloader_num_workers=rng.choice([0, 0, 2, 4, 8]),
        precision=rng.choice(["fp32", "bf16"]),
        dataloader_pin_memory=rng.random() < 0.7,
    )
    once = 0.03
    each, tf32 = once / 2 ** rng.uniform(-3, 7), rng.choice([1.0, rng.uniform(1, 1.6), rng.uniform(1.5, 4)])
    slope = (capacity * 0.97 - base) / (most + rng.random())
    step = (once + each * micro) * start.gradient_accumulation_steps
    prior = PeakModel(base * (1 + rng.gauss(0, 0.15)), slope * (1 + rng.gauss(0, 0.2)), base)
    training = OtherTraining(
        seed=seed, capacity=capacity, base=base, slope=slope,
        floor=min(base * rng.choice([1.0, rng.uniform(1, 1.4)]), capacity * 0.9), fragmentation=rng.uniform(0, 0.05),
        once_s=once, own_s=each, optimizer_s=step * rng.choice([0.01, rng.uniform(0.05, 0.6)]),
        loading_s=(once / micro + each) * rng.choice([0.0, rng.uniform(0, 0.2), rng.uniform(0.2, 6)]),
        cores=rng.choice([1, 2, 3, 6, 12, 24, 64]), padding=rng.choice([0.0, rng.uniform(0, 0.75)]),
        padding_grouped=rng.uniform(0, 0.15), sixteen_bit=(tf32 * rng.uniform(0.95, 2.5), rng.uniform(0.7, 1.4)),
        tf32=tf32, compiling=(rng.uniform(0.3, 1.3), rng.uniform(0.6, 1.2), rng.uniform(0.6, 1.1)),
        checkpointing=(rng.uniform(1.1, 1.5), rng.uniform(0.1, 0.7)), fused=rng.uniform(0.3, 1.15),
        unpinned=rng.uniform(0, 0.15), jitter=rng.choice([0.0, rng.uniform(0, 0.6)]),
        noise=10 ** rng.uniform(-3, -1.2), start=start, held=rng.random() < 0.5, prior=prior if seed % 3 else None,
        tile=rng.choice([1, 8, 16]), least=rng.choice([0, 0, rng.uniform(1, 16)]),
        disk=rng.choice([99, rng.uniform(1, 6)]), handing_s=rng.choice([0.0, each * rng.uniform(0, 0.1)]),
        bend=rng.choice([0, 0, rng.uniform(0, 0.6)]), drift=rng.choice([0, 0, rng.uniform(0, 0.12)]),
        disturbed=rng.choice([0, 0, 0.08]),
    )  # fmt: skip
    limit = capacity * (1 - training.space.reserve)
    fits_grid = any(training.peaks(knobs)[0] <= limit for knobs in training.grid())
    return training if training.samples_s(Knobs.of(start)) and fits_grid else None
