"""Simulated GPUs with a model, for the search for the largest batch.

Each has a true maximum between 1 and 512, a base (weights, optimizer, context) of up to 70 % of its memory, an
optimizer-step floor, slightly nonlinear activations, fragmentation and noise. Weights and optimizer states are 75 to
100 % of the base: copies of weights in 16 bit, gradients and buffers are the rest.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, replace

from tuner_tui.memory.fit import PeakPoint
from tuner_tui.tuning.search.batch_search import BatchProbe

GIB = 2**30


@dataclass(frozen=True)
class SimulatedGpu:
    """A GPU with a model. If it `reserves`, runs show the memory lost to fragmentation as well."""

    capacity: int
    base: float
    slope: float
    floor: float
    bend: float
    fragmentation: float
    noise: float
    prior_errors: tuple[float, float]
    knows_parts: bool
    seed: int
    resident: float | None = None
    block: float = 1.0
    reserves: bool = False

    def needed(self, batch: int) -> float:
        """Bytes needed by a run at `batch`, including fragmentation that cannot be reclaimed."""
        wobble = random.Random(self.seed * 1009 + batch).uniform(0, self.fragmentation)
        return self.allocated(batch) * (1 + wobble)

    def allocated(self, batch: int) -> float:
        return max(self.floor, self.line(batch))

    def line(self, batch: int) -> float:
        """Bytes of forward and backward; those of the samples are a multiple of `block`."""
        samples = self.slope * batch * (1 + self.bend * batch / 512)
        return self.base + math.ceil(samples / self.block) * self.block

    def fits(self, batch: int) -> bool:
        return self.allocated(batch) <= self.capacity and self.needed(batch) <= self.capacity

    def true_maximum(self, most: int) -> int:
        return next((batch for batch in range(most, 0, -1) if self.fits(batch)), 0)

    def run(self, batch: int) -> BatchProbe:
        if not self.fits(batch):
            return probe(batch, None)
        jitter = 1 + random.Random(self.seed * 7919 + batch).gauss(0, self.noise)
        resident = None if self.resident is None else int(self.resident)
        peak = self.needed(batch) if self.reserves else self.allocated(batch)
        unused = peak - self.allocated(batch)
        line_bytes = int((self.line(batch) + unused) * jitter) if self.knows_parts else None
        return probe(batch, int(peak * jitter), line_bytes, resident)


def probe(batch: int, peak: int | None, batch_peak: int | None = None, resident: int | None = None) -> BatchProbe:
    """A run with these peaks; None if it ran out of memory."""
    return BatchProbe(batch, None if peak is None else PeakPoint(batch, peak, batch_peak, resident))


def random_gpu(seed: int) -> SimulatedGpu:
    rng = random.Random(seed)
    capacity = rng.choice([8, 11, 16, 24, 40, 48, 80, 141]) * GIB
    true_max = int(2 ** rng.uniform(0, 9))
    base = capacity * rng.uniform(0.03, 0.7)
    slope = (capacity - base) / (true_max + rng.random())
    floor = base * rng.choice([1.0, rng.uniform(1.0, 1.6)])
    return SimulatedGpu(
        capacity, base, slope, min(floor, capacity * 0.9), rng.uniform(0, 0.02), rng.uniform(0, 0.03),
        rng.uniform(0, 0.002), (rng.gauss(0, 0.1), rng.gauss(0, 0.1)), rng.random() < 0.7, seed,
        base * rng.uniform(0.75, 1.0),
    )  # fmt: skip


def fragmented_gpu(seed: int) -> SimulatedGpu:
    """A GPU whose memory grows in blocks of 2 to 512 MiB, 5 % of which are lost to fragmentation, with a base of 5 to
    70 %. Half of them show what is lost, as an allocator does that reserves it."""
    rng = random.Random(seed)
    gpu = random_gpu(rng.randrange(2**40))
    base = gpu.capacity * rng.uniform(0.05, 0.7)
    block = 2.0 ** rng.uniform(21, 29)
    slope = (gpu.capacity - base) / int(2 ** rng.uniform(1, 9) + 1)
    floor = min(base * rng.choice([1.0, rng.uniform(1.0, 1.6)]), gpu.capacity * 0.9)
    return replace(
        gpu, base=base, slope=slope, floor=floor, fragmentation=0.05, block=block, seed=seed,
        resident=base * rng.uniform(0.75, 1.0), reserves=rng.random() < 0.5,
    )  # fmt: skip
