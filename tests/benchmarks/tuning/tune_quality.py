"""Result of the tuner relative to a full grid, and its share of the grid's time, over random trainings.

Run: `python -m tests.benchmarks.tuning.tune_quality [trainings] [first seed]`. The chosen settings are judged by their
true throughput, without noise, relative to the best point of the grid that leaves the reserve free. Each run of grid
and search takes its simulated time.
"""

from __future__ import annotations

import statistics
import sys
from dataclasses import dataclass

from tests.benchmarks.tuning.batch_search import quantile
from tests.benchmarks.tuning.simulated_training import (
    OUT_OF_MEMORY_S,
    Knobs,
    SimulatedTraining,
    random_training,
    seconds_of,
)
from tuner_tui.tuning.search.batch_search import RESERVE
from tuner_tui.tuning.search.search import Search

WANTED = 0.97
AS_FAST = 0.995
"""Ratio from which two true throughputs count as equal."""


@dataclass(frozen=True)
class Tuned:
    """Result of a search on one training: true throughputs per second, and durations in seconds."""

    training: SimulatedTraining
    search: Search
    start: float
    chosen: float
    best: float
    seconds: float
    grid_seconds: float

    @property
    def share(self) -> float:
        """Throughput relative to the best grid point."""
        return self.chosen / self.best

    @property
    def time_share(self) -> float:
        """Duration relative to the grid's."""
        return self.seconds / self.grid_seconds

    @property
    def ooms(self) -> int:
        """Trials that ran out of memory."""
        return sum(one.measurement.outcome == "out-of-memory" for one in self.search.trials)


def tuned(training: SimulatedTraining) -> Tuned:
    """Run search and grid on one training."""
    search = Search(training.start, training.space)
    while (trial := search.propose()) is not None:
        search = search.record(trial, training.run(trial.settings, trial.number))
    assert search.verdict is not None
    rates = {knobs: training.samples_s(knobs) for knobs in training.grid()}
    limit = training.capacity * (1 - RESERVE)
    return Tuned(
        training,
        search,
        training.samples_s(Knobs.of(training.start)),
        training.samples_s(Knobs.of(search.verdict.winner)),
        max(rate for knobs, rate in rates.items() if training.peaks(knobs)[0] <= limit),
        sum(one.measurement.seconds for one in search.trials),
        sum(seconds_of(knobs) if rate else OUT_OF_MEMORY_S for knobs, rate in rates.items()),
    )


def lines(found: list[Tuned]) -> str:
    """The figures, a line each."""
    shares, times = [one.share for one in found], [one.time_share for one in found]
    trials, ooms = [float(len(one.search.trials)) for one in found], [one.ooms for one in found]
    gains = [one.chosen / one.start for one in found if one.start]
    good = statistics.mean(share >= WANTED for share in shares)
    slower = sum(gain < AS_FAST for gain in gains)
    return "\n".join(
        (
            f"of the best grid point's throughput: {_spread(shares, 0.1)}  least {min(shares):.3f}  "
            f"at least {WANTED:.0%} in {good:.1%}",
            f"of the grid's time: {_spread(times, 0.9)}  most {max(times):.3f}",
            f"trials: {_spread(trials, 0.9)}  most {max(trials):.0f}",
            f"out of memory: mean {statistics.mean(ooms):.3f}  most {max(ooms)}",
            f"times the start's throughput: {_spread(gains, 0.1)}  slower than the start in {slower} of {len(gains)}",
        )
    )


def _spread(values: list[float], share: float) -> str:
    return f"median {statistics.median(values):.3f}  p{share * 100:.0f} {quantile(values, share):.3f}"


def main() -> None:
    """The figures."""
    count, first = (int(word) for word in (*sys.argv[1:], *("2000", "0")[len(sys.argv) - 1 :]))
    found = [tuned(random_training(seed)) for seed in range(first, first + count)]
    print(lines(found))


if __name__ == "__main__":
    main()
