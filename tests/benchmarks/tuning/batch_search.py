"""Batch search on random simulated GPUs: number of runs, out-of-memory errors, and the batch found.

Run: `python -m tests.benchmarks.tuning.batch_search [gpus] [first seed]`. The searches run on as many GPUs whose memory
grows in blocks and is fragmented, too.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace

from msgspec import structs

from tests.benchmarks.tuning.simulated_gpu import SimulatedGpu, fragmented_gpu, random_gpu
from tuner_tui.memory.fit import PeakModel
from tuner_tui.tuning.search.batch_search import BatchProbe, BatchSearch

Finder = Callable[[SimulatedGpu, int], tuple[int, list[BatchProbe]]]
MOST = 2048
"""Samples in the data set, more than fit on any GPU."""


def search(machine: SimulatedGpu, most: int) -> tuple[int, list[BatchProbe]]:
    """The result of this program's search, and its runs, with an estimate."""
    base, slope = machine.prior_errors
    prior = PeakModel(machine.base * (1 + base), machine.slope * (1 + slope), machine.floor * (1 + base))
    return complete(BatchSearch(machine.capacity, most, prior), machine)


def search_without_estimate(machine: SimulatedGpu, most: int) -> tuple[int, list[BatchProbe]]:
    """The same without an estimate: the first run shows weights and optimizer states."""
    return complete(BatchSearch(machine.capacity, most), machine)


def search_by_peaks_alone(machine: SimulatedGpu, most: int) -> tuple[int, list[BatchProbe]]:
    """The same where runs show nothing but their peaks, as with a torch older than 2."""
    return search_without_estimate(replace(machine, resident=None), most)


def after(state: BatchSearch, *probes: BatchProbe) -> BatchSearch:
    """The search after further runs."""
    return structs.replace(state, probes=(*state.probes, *probes))


def complete(state: BatchSearch, machine: SimulatedGpu) -> tuple[int, list[BatchProbe]]:
    """The result of a search and its runs."""
    while (proposal := state.propose()) is not None:
        state = after(state, machine.run(proposal.batch))
    return (state.best.batch if state.best else 0), list(state.probes)


@dataclass(frozen=True)
class Found:
    """Result of a finder on one GPU, with the true maximum."""

    true_maximum: int
    best: int
    fits: bool
    probes: list[BatchProbe]

    @property
    def ooms(self) -> int:
        """Number of runs that ran out of memory."""
        return sum(probe.point is None for probe in self.probes)

    @property
    def tested(self) -> bool:
        """Whether the resulting batch was run and fitted."""
        return not self.best or any(probe.batch == self.best and probe.point is not None for probe in self.probes)


def finds(finder: Finder, machines: list[SimulatedGpu]) -> list[Found]:
    """Results of `finder` on every GPU on which at least one sample fits."""
    collected = []
    for machine in machines:
        if true_maximum := machine.true_maximum(MOST):
            best, probes = finder(machine, MOST)
            collected.append(Found(true_maximum, best, not best or machine.fits(best), probes))
    return collected


def quantile(values: list[float], share: float) -> float:
    """The `share` quantile of `values`."""
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


def line(name: str, outcomes: list[Found]) -> str:
    """One line of figures."""
    probes, ooms = [len(outcome.probes) for outcome in outcomes], [outcome.ooms for outcome in outcomes]
    shares = [outcome.best / outcome.true_maximum for outcome in outcomes]
    return (
        f"{name:22} probes median {statistics.median(probes):4.1f} p90 {quantile([*map(float, probes)], 0.9):4.1f}   "
        f"OOM mean {statistics.mean(ooms):5.2f} most {max(ooms):3}   "
        f"share of the maximum median {statistics.median(shares):5.3f} p10 {quantile(shares, 0.1):5.3f}   "
        f"never run {sum(not outcome.tested for outcome in outcomes)}   "
        f"does not fit {sum(not outcome.fits for outcome in outcomes)}"
    )


SEARCHES: dict[str, Finder] = {
    "with estimate": search,
    "without": search_without_estimate,
    "by peaks alone": search_by_peaks_alone,
}


def main() -> None:
    """Print a line for each search, on random machines and on those whose memory grows in blocks."""
    count, first = (int(word) for word in (*sys.argv[1:], *("2000", "0")[len(sys.argv) - 1 :]))
    seeds = range(first, first + count)
    machines, fragmented = [random_gpu(seed) for seed in seeds], [fragmented_gpu(seed) for seed in seeds]
    print(f"seeds {first} … {first + count - 1}")
    for name, finder in SEARCHES.items():
        print(line(f"{name}, {count}", finds(finder, machines)))
        print(line(f"{name}, in blocks", finds(finder, fragmented)))


if __name__ == "__main__":
    main()
