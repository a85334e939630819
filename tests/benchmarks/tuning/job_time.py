"""Time of the whole job with the settings that each objective chooses, over random trainings.

Run: `python -m tests.benchmarks.tuning.job_time [trainings] [first seed]`. A job starts in 10 s and compiles
in a minute more. Its length is random: with the settings of the start it trains from ten seconds to ten hours.
Shares are relative to the fastest grid point's whole job.
"""

from __future__ import annotations

import random
import statistics
import sys
from collections.abc import Iterable
from dataclasses import dataclass, replace

from tests.benchmarks.tuning.batch_search import quantile
from tests.benchmarks.tuning.simulated_training import COMPILING_S, Knobs, SimulatedTraining, random_training
from tuner_tui.settings.model import Settings
from tuner_tui.tuning.search.batch_search import RESERVE
from tuner_tui.tuning.search.search import Search
from tuner_tui.tuning.trial import Measurement, Objective, WholeJob

STARTING_S = 10.0
STEPS = 1000


@dataclass(frozen=True)
class SimulatedJob:
    """`samples` trained by `training`."""

    training: SimulatedTraining
    samples: float

    def seconds(self, knobs: Knobs) -> float | None:
        """The time of the whole job; None if it does not fit."""
        rate = self.training.samples_s(knobs)
        return overhead_s(knobs) + self.samples / rate if rate else None

    def run(self, settings: Settings, number: int) -> Measurement:
        """The trial, with its overhead."""
        found = self.training.run(settings, number)
        return replace(found, overhead_s=overhead_s(Knobs.of(settings))) if found.outcome == "measured" else found

    def tuned_s(self, objective: Objective) -> float | None:
        """The time of the whole job with the settings that the search chooses."""
        job = WholeJob(steps=STEPS, samples=self.samples, tokens_a_sample=100.0)
        space = replace(self.training.space, whole_job=job if objective == "job" else None)
        search = Search(self.training.start, space)
        while (trial := search.propose()) is not None:
            search = search.record(trial, self.run(trial.settings, trial.number))
        return self.seconds(Knobs.of(search.conclusion.winner))

    def best_s(self) -> float:
        """The shortest time of the grid."""
        limit = self.training.capacity * (1 - RESERVE)
        fitting = (knobs for knobs in self.training.grid() if self.training.peaks(knobs)[0] <= limit)
        return min(seconds for knobs in fitting if (seconds := self.seconds(knobs)) is not None)


def overhead_s(knobs: Knobs) -> float:
    """Start-up and compilation."""
    return STARTING_S + (COMPILING_S if knobs.compiled else 0.0)


def random_job(seed: int) -> SimulatedJob | None:
    """A job whose length is spread evenly over four orders of magnitude; None if its start does not run."""
    training = random_training(seed)
    rate = training.samples_s(Knobs.of(training.start))
    return SimulatedJob(training, rate * 10 ** random.Random(seed).uniform(1, 4.6)) if rate else None


def line(objective: Objective, jobs: Iterable[SimulatedJob]) -> str:
    """The figures of one objective."""
    shares, slower, count = [], 0, 0
    for job in jobs:
        tuned, start = job.tuned_s(objective), job.seconds(Knobs.of(job.training.start))
        assert tuned is not None
        assert start is not None
        shares.append(job.best_s() / tuned)
        slower += tuned > start * 1.01
        count += 1
    return (
        f"{objective:7} share of the shortest job: median {statistics.median(shares):.3f} "
        f"p10 {quantile(shares, 0.1):.3f} least {min(shares):.3f}   slower than the start in {slower} of {count}"
    )


def main() -> None:
    """Print one line per objective."""
    count, first = (int(word) for word in (*sys.argv[1:], *("300", "0")[len(sys.argv) - 1 :]))
    jobs = [job for seed in range(first, first + count) if (job := random_job(seed)) is not None]
    for objective in ("steady", "job"):
        print(line(objective, jobs))


if __name__ == "__main__":
    main()
