"""Result of the tuner relative to a full grid, and its share of the grid's time, over random trainings.

Run: `python -m tests.benchmarks.tuning.tune_quality [trainings] [first seed] [gpus] [other]`. The chosen settings are
judged by their true throughput, without noise, relative to the best point of the grid that leaves the reserve free.
Each run of grid and search takes its simulated time; with `gpus`, the search runs a trial on each of them at once. With
the word `other` the trainings are those of `other_training`.
"""

from __future__ import annotations

import random
import statistics
import sys
from dataclasses import dataclass

from msgspec.structs import replace

from tests.benchmarks.tuning.batch_search import quantile
from tests.benchmarks.tuning.other_training import other_training
from tests.benchmarks.tuning.simulated_training import (
    OUT_OF_MEMORY_S,
    Knobs,
    SimulatedTraining,
    random_training,
    recorded,
    seconds_of,
)
from tuner_tui.tuning.search.batch_search import RESERVE
from tuner_tui.tuning.search.search import Search, comparable, proposals_on, scaled
from tuner_tui.tuning.trial import CompletedTrial, Measurement, Trial

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
        return sum(completed.measurement.outcome == "out-of-memory" for completed in self.search.trials)


def tuned(training: SimulatedTraining, gpus: int = 1) -> Tuned:
    """Run search and grid on one training."""
    search, seconds = searched_on(training, gpus) if gpus > 1 else searched(training)
    assert not search.proposals
    rates = {knobs: training.samples_s(knobs) for knobs in training.grid()}
    limit = training.capacity * (1 - RESERVE)
    return Tuned(
        training,
        search,
        training.samples_s(Knobs.of(training.start)),
        training.samples_s(Knobs.of(search.conclusion.winner)),
        max(rate for knobs, rate in rates.items() if training.peaks(knobs)[0] <= limit),
        seconds,
        sum(seconds_of(knobs) if rate else OUT_OF_MEMORY_S for knobs, rate in rates.items()),
    )


def searched(training: SimulatedTraining) -> tuple[Search, float]:
    """Return the search at its end, and its seconds."""
    search = Search(training.start, training.space)
    while (trial := search.propose()) is not None:
        search = recorded(search, trial, training.run(trial.settings, trial.number))
    return search, sum(completed.measurement.seconds for completed in search.trials)


def searched_on(training: SimulatedTraining, gpus: int) -> tuple[Search, float]:
    """The same on several GPUs, whose speed differs by up to 3 %."""
    rng = random.Random(training.seed)
    speeds = {f"GPU-{number}": rng.uniform(0.97, 1.0) for number in range(gpus)}
    search, now = Search(training.start, training.space), 0.0
    done: tuple[CompletedTrial, ...] = ()
    running: dict[str, tuple[float, Trial, Measurement]] = {}
    while True:
        for gpu, speed in speeds.items():
            under_way = [trial for _, trial, _ in running.values()]
            if gpu not in running and (trials := proposals_on(search, gpu, under_way)):
                run = scaled(training.run(trials[0].settings, trials[0].number), speed)
                running[gpu] = now + run.seconds, trials[0], run
        if not search.proposals:
            return search, now
        gpu = min(running, key=lambda gpu_index: running[gpu_index][0])
        now, trial, run = running.pop(gpu)
        done = (*done, CompletedTrial(trial, run))
        search = replace(search, trials=comparable(done))


def lines(outcomes: list[Tuned]) -> str:
    """The figures, a line each."""
    shares, times = [outcome.share for outcome in outcomes], [outcome.time_share for outcome in outcomes]
    trials, ooms = [float(len(outcome.search.trials)) for outcome in outcomes], [outcome.ooms for outcome in outcomes]
    gains = [outcome.chosen / outcome.start for outcome in outcomes if outcome.start]
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
    words = [word for word in sys.argv[1:] if word != "other"]
    count, first, gpus = (int(word) for word in (*words, *("2000", "0", "1")[len(words) :]))
    make = other_training if "other" in sys.argv else random_training
    trainings = [training for seed in range(first, first + count) if (training := make(seed)) is not None]
    print(lines([tuned(training, gpus) for training in trainings]))


if __name__ == "__main__":
    main()
