"""How many runs, how many out-of-memory and how good a batch: the batch search over random machines.

Run: `python -m tests.benchmarks.batch_search [machines]`. Each machine has a true maximum between 1 and 512, a base
(weights, optimizer, context), an optimizer-step floor, activations that bend a little, fragmentation and noise. Peers
(doubling with Lightning's two modes, accelerate's ×0.9) are run by their rule on the same machines.
"""

from __future__ import annotations

import random
import statistics
import sys
from collections.abc import Callable
from dataclasses import dataclass

from tuner_tui.memory.fit import PeakModel
from tuner_tui.tuning.batch_search import BatchSearch, Probe

GIB = 2**30


@dataclass(frozen=True)
class Machine:
    """A card and a model on it, as the search meets them."""

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

    def needed(self, batch: int) -> float:
        """What a run at `batch` needs at least, fragmentation that cannot be reclaimed included."""
        wobble = random.Random(self.seed * 1009 + batch).uniform(0, self.fragmentation)
        return self.allocated(batch) * (1 + wobble)

    def allocated(self, batch: int) -> float:
        return max(self.floor, self.base + self.slope * batch * (1 + self.bend * batch / 512))

    def fits(self, batch: int) -> bool:
        return self.needed(batch) <= self.capacity

    def true_maximum(self, most: int) -> int:
        return max((batch for batch in range(1, most + 1) if self.fits(batch)), default=0)

    def run(self, batch: int) -> Probe:
        if not self.fits(batch):
            return Probe(batch, None)
        jitter = 1 + random.Random(self.seed * 7919 + batch).gauss(0, self.noise)
        line = self.base + self.slope * batch * (1 + self.bend * batch / 512)
        return Probe(batch, int(self.allocated(batch) * jitter), int(line * jitter) if self.knows_parts else None)


def random_machine(seed: int) -> Machine:
    rng = random.Random(seed)
    capacity = rng.choice([8, 11, 16, 24, 40, 48, 80, 141]) * GIB
    true_max = int(2 ** rng.uniform(0, 9))
    base = capacity * rng.uniform(0.03, 0.6)
    slope = (capacity - base) / (true_max + rng.random())
    floor = base * rng.choice([1.0, rng.uniform(1.0, 1.6)])
    return Machine(
        capacity, base, slope, min(floor, capacity * 0.9), rng.uniform(0, 0.02), rng.uniform(0, 0.03),
        rng.uniform(0, 0.002), (rng.gauss(0, 0.1), rng.gauss(0, 0.1)), rng.random() < 0.7, seed,
    )  # fmt: skip


def search(machine: Machine, most: int) -> tuple[int, list[Probe]]:
    """Our search: the result and every run it cost."""
    base, slope = machine.prior_errors
    prior = PeakModel(machine.base * (1 + base), machine.slope * (1 + slope), machine.floor * (1 + base))
    state = BatchSearch(machine.capacity, most, prior if machine.seed % 4 else None)
    while (proposal := state.propose()) is not None:
        state = state.record(machine.run(proposal.batch))
    return (state.best.batch if state.best else 0), list(state.probes)


def lightning_power(machine: Machine, most: int) -> tuple[int, list[Probe]]:
    """Lightning's `power`: from 2, double until it fails, keep the last that ran."""
    probes, batch, good = [], 2, 0
    while batch <= most:
        probes.append(machine.run(batch))
        if probes[-1].peak_bytes is None:
            break
        good, batch = batch, batch * 2
    return good, probes


def lightning_binsearch(machine: Machine, most: int) -> tuple[int, list[Probe]]:
    """Lightning's `binsearch`: double until it fails, then halve the interval."""
    good, probes = lightning_power(machine, most)
    high = probes[-1].batch if probes and probes[-1].peak_bytes is None else most + 1
    while high - good > 1:
        middle = (high + good) // 2
        probes.append(machine.run(middle))
        good, high = (middle, high) if probes[-1].peak_bytes is not None else (good, middle)
    return good, probes


def accelerate_finder(machine: Machine, most: int) -> tuple[int, list[Probe]]:
    """accelerate's `find_executable_batch_size` from the largest size: ×0.9 after every out-of-memory."""
    probes, batch = [], most
    while batch > 0:
        probes.append(machine.run(batch))
        if probes[-1].peak_bytes is not None:
            return batch, probes
        batch = int(batch * 0.9)
    return 0, probes


def quantile(values: list[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


def table(name: str, finder: Callable[[Machine, int], tuple[int, list[Probe]]], machines: list[Machine]) -> str:
    """One line of figures for `finder` over `machines`."""
    probes, ooms, shares, untested = [], [], [], 0
    for machine in machines:
        best, runs = finder(machine, 512)
        true_max = machine.true_maximum(512)
        if not true_max:
            continue
        probes.append(float(len(runs)))
        ooms.append(float(sum(run.peak_bytes is None for run in runs)))
        shares.append(best / true_max)
        untested += best > 0 and best not in {run.batch for run in runs if run.peak_bytes is not None}
    return (
        f"{name:22} probes median {statistics.median(probes):4.1f} p90 {quantile(probes, 0.9):4.1f}   "
        f"OOM mean {statistics.mean(ooms):5.2f} most {max(ooms):3.0f}   "
        f"share of the maximum median {statistics.median(shares):5.3f} p10 {quantile(shares, 0.1):5.3f}   "
        f"untested {untested}"
    )


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 2000
    machines = [random_machine(seed) for seed in range(count)]
    print(table("tuner-tui", search, machines))
    print(table("lightning power", lightning_power, machines))
    print(table("lightning binsearch", lightning_binsearch, machines))
    print(table("accelerate x0.9", accelerate_finder, machines))


if __name__ == "__main__":
    main()
