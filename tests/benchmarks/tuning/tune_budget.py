"""Result of the tuner within a given time: the whole loop over random trainings, on a simulated clock.

Run: `python -m tests.benchmarks.tuning.tune_budget [trainings] [first seed]`. A trial takes half a minute, and one that
compiles a minute more. Shares are relative to the best grid point's true throughput, gains relative to the start's.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

from tests.benchmarks.tuning.batch_search import quantile
from tests.benchmarks.tuning.simulated_training import Knobs, SimulatedTraining, random_training
from tests.fakes.inventories import box
from tests.fakes.listed_search import RUNNER
from tuner_tui.hardware.inventory import Inventory
from tuner_tui.tuning.process.trial_log import TrialLog, TuningEnded
from tuner_tui.tuning.process.tuner import TrialHistory, Tuner
from tuner_tui.tuning.search.batch_search import RESERVE
from tuner_tui.tuning.search.search import Search
from tuner_tui.tuning.store import TuningFolder
from tuner_tui.tuning.trial import Measurement, Trial
from tuner_tui.tuning.trials.runner import TrialCallbacks, TrialReport, TrialRunner

MINUTES = (3, 5, 9, 15, 30)


@dataclass
class Clock:
    """Runs the trials of `training` without delay and advances a clock by their duration."""

    training: SimulatedTraining
    now_s: float = 0.0
    trials: int = 0

    cards: tuple[str | None, ...] = (None,)
    inventory: Inventory = field(default_factory=box)

    def run(self, card: str | None, runner: TrialRunner, trial: Trial, callbacks: TrialCallbacks) -> TrialReport:
        """Run the trial; it is aborted if the tuning's time ends during it."""
        self.trials += 1
        found = self.training.run(trial.settings, trial.number)
        assert callbacks.deadline_t is not None
        over_s = self.now_s + found.seconds - callbacks.deadline_t
        if over_s > 0:
            found = Measurement(outcome="aborted", seconds=found.seconds - over_s)
        self.now_s += found.seconds
        return TrialReport(found, trial.settings)


def tuned_in(training: SimulatedTraining, minutes: float) -> tuple[TuningEnded, Clock]:
    """Result of a tuning of `minutes`."""
    clock = Clock(training)
    with tempfile.TemporaryDirectory() as path:
        folder = TuningFolder(Path(path))
        tuner = Tuner(
            folder, TrialLog(folder), clock, RUNNER,
            lambda known, compare_only: Search(known.start, training.space, known.trials, compare_only),
            minutes * 60, lambda: clock.now_s,
        )  # fmt: skip
        return tuner.tune(TrialHistory(training.start)), clock


def line(minutes: float, trainings: list[SimulatedTraining]) -> str:
    """The figures of one length of time."""
    shares, gains, unconfirmed, used = [], [], 0, []
    for training in trainings:
        ended, clock = tuned_in(training, minutes)
        limit = training.capacity * (1 - RESERVE)
        best = max(training.samples_s(knobs) for knobs in training.grid() if training.peaks(knobs)[0] <= limit)
        start = training.samples_s(Knobs.of(training.start))
        verdict = ended.verdict
        chosen = 0.0 if verdict is None else training.samples_s(Knobs.of(verdict.winner))
        shares.append(chosen / best)
        if start:
            gains.append(chosen / start)
            unconfirmed += verdict is not None and verdict.winner != training.start and verdict.ratio is None
        used.append(clock.now_s / (minutes * 60))
    return (
        f"{minutes:3.0f} min: share of the best median {statistics.median(shares):.3f} "
        f"p10 {quantile(shares, 0.1):.3f}   "
        f"times the start median {statistics.median(gains):.2f}   unconfirmed {unconfirmed}   "
        f"time used median {statistics.median(used):.2f}"
    )


def main() -> None:
    """Print one line per duration."""
    count, first = (int(word) for word in (*sys.argv[1:], *("300", "0")[len(sys.argv) - 1 :]))
    trainings = [random_training(seed) for seed in range(first, first + count)]
    for minutes in MINUTES:
        print(line(minutes, trainings))


if __name__ == "__main__":
    main()
