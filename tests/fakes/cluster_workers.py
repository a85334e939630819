"""Workers of a cluster that answer at once, without a cluster."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from tests.benchmarks.tuning.simulated_training import SimulatedTraining, random_training
from tuner_tui.tuning.parallel.workers import TrialOrder, WorkerLostError, WorkerPlace
from tuner_tui.tuning.store import TuningRecord
from tuner_tui.tuning.trials.runner import TrialReport

Result = TypeVar("Result")


def answered(result: Result) -> Future[Result]:
    """A call that has returned."""
    future: Future[Result] = Future()
    future.set_result(result)
    return future


@dataclass(eq=False)
class FakeWorker:
    """A worker at each of `places` in turn: at the next one after each loss; None: the cluster has no place for it.

    `fails` says of an order what happens instead of its trial: a report, why it could not be launched, or a loss.
    """

    places: list[WorkerPlace | None]
    fails: Callable[[TrialOrder], TrialReport | str | WorkerLostError | None] = lambda order: None
    training: SimulatedTraining = field(default_factory=lambda: random_training(12))
    ran: list[int] = field(default_factory=list)
    stopped: list[int] = field(default_factory=list)
    released: bool = False

    def place(self, folder: Path, record: TuningRecord, environ: Mapping[str, str]) -> Future[WorkerPlace]:
        place = self.places[0]
        return Future() if place is None else answered(place)

    def run(self, order: TrialOrder) -> Future[TrialReport | str]:
        self.ran.append(order.trial.number)
        found = self.fails(order)
        if isinstance(found, WorkerLostError):
            self.places.pop(0)
            gone: Future[TrialReport | str] = Future()
            gone.set_exception(found)
            return gone
        if found is not None:
            return answered(found)
        measured = self.training.run(order.trial.settings, order.trial.number)
        return answered(TrialReport(measured, order.trial.settings))

    def launched(self, number: int) -> Future[str | None]:
        return answered(f"r{number:03d}")

    def stop(self, number: int) -> Future[None]:
        self.stopped.append(number)
        return answered(None)

    def release(self) -> None:
        self.released = True
