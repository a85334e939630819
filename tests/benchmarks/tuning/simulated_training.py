"""Simulated trainings for the tuner: the effect of every setting on time and memory.

Settings interact as they do on real hardware: faster computation makes the loader the bottleneck, 16 bit and compiling
change the slope of memory, a larger micro batch has more padding, and more workers than cores slow everything down.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from dataclasses import dataclass

from msgspec.structs import replace

from tests.fakes.situations import box, make_gpu
from tuner_tui.hardware.interpreter import Interpreter
from tuner_tui.memory.fit import PeakModel
from tuner_tui.settings.job import BuiltinJob
from tuner_tui.settings.model import Settings
from tuner_tui.tuning.search.search import Search
from tuner_tui.tuning.search.space import SearchSpace, build_space
from tuner_tui.tuning.trial import CompletedTrial, Measurement, StepBreakdown, Trial

GIB = 2**30
PYTHON = Interpreter("python", "3.11.9", {"torch": "2.13.0", "transformers": "5.23.0", "accelerate": "1.15.0"}, "12.8")
TRIAL_S, COMPILING_S, OUT_OF_MEMORY_S = 30.0, 60.0, 20.0
GRID_WORKERS = (0, 2, 4, 8)


@dataclass(frozen=True)
class Knobs:
    """The simulated settings as plain values."""

    micro: int
    accumulation: int
    precision: str = "fp32"
    tf32: bool = False
    checkpointing: bool = False
    compiled: bool = False
    fused: bool = False
    grouped: bool = False
    workers: int = 0
    prefetch: int = 2
    pinned: bool = True

    @classmethod
    def of(cls, settings: Settings) -> Knobs:
        """The simulated part of `settings`."""
        return cls(
            settings.per_device_train_batch_size,
            settings.gradient_accumulation_steps,
            settings.precision,
            bool(settings.tf32),
            settings.gradient_checkpointing,
            settings.torch_compile,
            settings.optim == "adamw_torch_fused",
            settings.train_sampling_strategy == "group_by_length",
            settings.dataloader_num_workers,
            settings.dataloader_prefetch_factor or 2,
            settings.dataloader_pin_memory,
        )


@dataclass(frozen=True)
class SimulatedTraining:
    """A training on a GPU. Sizes in bytes, times in seconds in fp32: `once_s` per micro batch, `own_s` per sample,
    `optimizer_s` per step, `loading_s` per sample in one worker.
    """

    seed: int
    capacity: int
    base: float
    slope: float
    floor: float
    fragmentation: float
    once_s: float
    own_s: float
    optimizer_s: float
    loading_s: float
    cores: int
    padding: float
    padding_grouped: float
    sixteen_bit: tuple[float, float]
    tf32: float
    compiling: tuple[float, float, float]
    checkpointing: tuple[float, float]
    fused: float
    unpinned: float
    jitter: float
    noise: float
    start: Settings
    held: bool
    prior: PeakModel | None

    def peaks(self, knobs: Knobs) -> tuple[float, float]:
        """Overall peak, and peak of forward and backward."""
        base, slope = self.base, self.slope
        if knobs.precision != "fp32":
            base, slope = base * self.sixteen_bit[1], slope * 0.6
        if knobs.compiled:
            slope *= self.compiling[2]
        if knobs.checkpointing:
            slope *= self.checkpointing[1]
        line = base + slope * knobs.micro
        return max(self.floor, line), line

    def fits(self, knobs: Knobs) -> bool:
        """Whether it fits, including memory that the allocator cannot give back."""
        wobble = random.Random(f"{self.seed} {knobs}").uniform(0, self.fragmentation)
        return self.peaks(knobs)[0] * (1 + wobble) <= self.capacity

    def costs(self, knobs: Knobs) -> tuple[float, float, float]:
        """Seconds per micro batch and per sample, and the share of padding."""
        once, each = self.once_s, self.own_s
        if knobs.precision != "fp32":
            each /= self.sixteen_bit[0]
        elif knobs.tf32:
            each /= self.tf32
        if knobs.compiled:
            once, each = once * self.compiling[0], each * self.compiling[1]
        if knobs.checkpointing:
            once, each = once * self.checkpointing[0], each * self.checkpointing[0]
        spread = self.padding_grouped if knobs.grouped else self.padding
        return once, each, spread * (1 - 1 / (1 + 0.3 * (knobs.micro - 1)))

    def step(self, knobs: Knobs) -> tuple[float, float, float, float]:
        """Seconds of forward and backward, of the optimizer and of waiting per step, and the share of padding."""
        once, each, padding = self.costs(knobs)
        micro_s = once + each * knobs.micro / (1 - padding)
        return (
            micro_s * knobs.accumulation * self.crowding(knobs),
            self.optimizer_s * (self.fused if knobs.fused else 1),
            self.wait(knobs, micro_s) * knobs.accumulation,
            padding,
        )

    def crowding(self, knobs: Knobs) -> float:
        """Slowdown of the training process by workers beyond the number of cores."""
        return 1 + 0.05 * max(0, knobs.workers - (self.cores - 1))

    def wait(self, knobs: Knobs, micro_s: float) -> float:
        """Seconds of waiting before a micro batch."""
        copying = 0.0 if knobs.pinned else self.unpinned * micro_s
        loading = self.loading_s * knobs.micro
        if not knobs.workers:
            return loading + copying
        ready = self.jitter * loading / knobs.workers * (2 / knobs.prefetch)
        return max(0.0, loading / min(knobs.workers, self.cores) - micro_s) + ready + copying

    def samples_s(self, knobs: Knobs) -> float:
        """True throughput in samples per second without padding; 0 if it does not fit."""
        if not self.fits(knobs):
            return 0.0
        computing, optimizer, waiting, _ = self.step(knobs)
        return knobs.micro * knobs.accumulation / (computing + optimizer + waiting)

    def run(self, settings: Settings, number: int) -> Measurement:
        """Result of trial `number`."""
        knobs = Knobs.of(settings)
        if not self.fits(knobs):
            return Measurement(outcome="out-of-memory", seconds=OUT_OF_MEMORY_S)
        computing, optimizer, waiting, padding = self.step(knobs)
        total = computing + optimizer + waiting
        rate = self.samples_s(knobs) * (1 + random.Random(f"{self.seed} {number}").gauss(0, self.noise))
        peak, line = self.peaks(knobs)
        return Measurement(
            outcome="measured",
            seconds=seconds_of(knobs),
            steps=20,
            samples_s=rate,
            tokens_s=rate * 100,
            spread=self.noise,
            peak_bytes=int(peak),
            batch_peak_bytes=int(line),
            breakdown=StepBreakdown(data_wait=waiting / total, optimizer=optimizer / total, padding=padding),
        )

    @property
    def space(self) -> SearchSpace:
        """Search space given to the tuner."""
        inventory = box(make_gpu(memory_total_bytes=self.capacity), cores=self.cores)
        return build_space(
            inventory, PYTHON, BuiltinJob(), self.start,
            dataset_size=20_000, hold_effective_batch=self.held, prior=self.prior,
        )  # fmt: skip

    def grid(self) -> Iterator[Knobs]:
        """All combinations of doubled micro batches and each setting on and off."""
        effective = self.start.effective_batch()
        sizes = [2**power for power in range(10)]
        if self.held:
            sizes = [size for size in sizes if effective % size == 0]
        kinds = (("fp32", False), ("fp32", True), ("bf16", False))
        flags = tuple(itertools.product((False, True), repeat=4))
        for micro, (precision, tf32), on, workers in itertools.product(sizes, kinds, flags, GRID_WORKERS):
            accumulation = max(1, round(effective / micro))
            yield Knobs(micro, accumulation, precision, tf32, on[0], on[1], on[2], on[3], workers)


def recorded(search: Search, trial: Trial, measurement: Measurement) -> Search:
    """The search after one more trial."""
    return replace(search, trials=(*search.trials, CompletedTrial(trial, measurement)))


def seconds_of(knobs: Knobs) -> float:
    """Duration of a trial that fits."""
    return TRIAL_S + (COMPILING_S if knobs.compiled else 0.0)


def random_training(seed: int) -> SimulatedTraining:
    """A training whose largest micro batch with the initial settings lies between 1 and 512."""
    rng = random.Random(seed)
    capacity = rng.choice([8, 11, 16, 24, 40, 48, 80, 141]) * GIB
    most = int(2 ** rng.uniform(0, 9))
    base = capacity * rng.uniform(0.03, 0.6)
    micro = 2 ** rng.randint(0, min(4, most.bit_length() - 1))
    start = Settings(
        per_device_train_batch_size=micro,
        gradient_accumulation_steps=2 ** rng.randint(0, 6),
        gradient_checkpointing=rng.random() < 0.2,
        dataloader_num_workers=rng.choice([0, 0, 1, 4]),
    )
    once, tf32 = 0.02, rng.uniform(1, 3)
    own_cost = once / 2 ** rng.uniform(-2, 6)
    step = (once + own_cost * micro) * start.gradient_accumulation_steps
    slope = (capacity - base) / (most + rng.random())
    floor = min(base * rng.choice([1.0, rng.uniform(1.0, 1.6)]), capacity * 0.9)
    prior = PeakModel(base * (1 + rng.gauss(0, 0.1)), slope * (1 + rng.gauss(0, 0.1)), floor)
    return SimulatedTraining(
        seed=seed, capacity=capacity, base=base, slope=slope, floor=floor, fragmentation=rng.uniform(0, 0.03),
        once_s=once, own_s=own_cost, optimizer_s=step * rng.uniform(0.005, 0.25),
        loading_s=(once / micro + own_cost) * rng.choice([0.0, rng.uniform(0, 0.1), rng.uniform(0.1, 2.5)]),
        cores=rng.choice([2, 4, 8, 16]), padding=rng.uniform(0, 0.6), padding_grouped=rng.uniform(0, 0.08),
        sixteen_bit=(tf32 * rng.uniform(0.9, 2), rng.uniform(0.8, 1.25)), tf32=tf32,
        compiling=(rng.uniform(0.4, 1.1), rng.uniform(0.75, 1.1), rng.uniform(0.7, 1.05)),
        checkpointing=(rng.uniform(1.15, 1.4), rng.uniform(0.15, 0.6)), fused=rng.uniform(0.4, 1.0),
        unpinned=rng.uniform(0, 0.05), jitter=rng.choice([0.0, rng.uniform(0, 0.3)]),
        noise=10 ** rng.uniform(-3, -1.5), start=start, held=rng.random() < 0.6,
        prior=prior if seed % 4 else None,
    )  # fmt: skip
