"""Trials on the workers of a cluster: which workers are taken, and what happens to the trial of one that is lost.

`TrialWorker` runs on a node of the cluster, the rest where the tuner runs. All runs are in a folder that they share.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

from tuner_tui.core.procfs import identify_process, this_machine
from tuner_tui.hardware.detect import read_inventory
from tuner_tui.hardware.environment import visible_cards
from tuner_tui.hardware.inventory import Inventory
from tuner_tui.runs.launch.command import LaunchError
from tuner_tui.runs.launch.prepare import LaunchRequest
from tuner_tui.runs.store.folder import RunFolder, state_dir
from tuner_tui.runs.store.record import RecordError
from tuner_tui.runs.store.supervisor_state import read_supervisor_state
from tuner_tui.settings.distributed import best_kind
from tuner_tui.settings.model import Settings
from tuner_tui.tuning.parallel.trial_share import CARDS_VARIABLE, bind, share_of
from tuner_tui.tuning.store import TuningFolder, TuningRecord, read_tuning_record
from tuner_tui.tuning.trial import Measurement, Trial, TrialProtocol
from tuner_tui.tuning.trials.runner import TrialCallbacks, TrialReport, TrialRunner

UUID_PREFIX = "GPU-"
POLL_S = 0.5
START_S = 120.0
"""Maximum wait for the first worker, whose node has to import the program."""
MORE_S = 20.0
"""Maximum wait for the others after it. Those that do not come are in use by others."""
RETURN_S = 60.0
"""Maximum wait for a worker that died, which the cluster starts again."""


@dataclass(frozen=True, slots=True)
class WorkerPlace:
    """Where a worker is. `card` is its GPU, None without one; `inventory` is what its trials see of the machine.

    `problem` says why no trial can run there; empty if one can.
    """

    host: str
    card: str | None
    inventory: Inventory
    problem: str = ""


@dataclass(frozen=True, slots=True)
class TrialOrder:
    """A trial for a worker. Times are relative, since clocks of nodes differ; see `TrialCallbacks`."""

    runner: TrialRunner
    trial: Trial
    left_s: float | None
    expected_s: float | None
    give_up_s: float | None


@dataclass
class TrialWorker:
    """Runs trials on the GPU that its process was given, if `on_gpu`, with `cores` cores. Several threads call it."""

    on_gpu: bool
    cores: int
    _runs: dict[int, str] = field(default_factory=dict)
    _stopped: int | None = None

    def place(self, folder: Path, record: TuningRecord, environ: Mapping[str, str]) -> WorkerPlace:
        """Return where this worker is, and whether it sees the folder of the tuning and that of the training."""
        inventory, gpu = read_inventory(state_dir(environ)), None
        if self.on_gpu:
            gpu = next(iter(visible_cards(inventory)), None)
        return WorkerPlace(
            this_machine().host,
            (gpu and gpu.uuid) or (os.environ.get(CARDS_VARIABLE) if self.on_gpu else None),
            share_of(inventory, gpu, self.cores),
            _problem(folder, record),
        )

    def run(self, order: TrialOrder) -> TrialReport | str:
        """Run a trial to its end; returns why it could not be launched, if it could not."""
        number, card = order.trial.number, os.environ.get(CARDS_VARIABLE) if self.on_gpu else None
        base = replace(bind(order.runner.base, card, self.cores), ends_with=identify_process(os.getpid()))
        callbacks = TrialCallbacks(
            lambda: self._stopped == number,
            lambda run: self._runs.update({number: run.id}),
            None if order.left_s is None else time.time() + order.left_s,
            order.expected_s,
            order.give_up_s,
        )
        try:
            return replace(order.runner, base=base).run(order.trial, callbacks)
        except LaunchError as error:
            return str(error)
        finally:
            self._runs.pop(number, None)

    def launched(self, number: int) -> str | None:
        """Return the run of the trial that is under way; None before it is launched."""
        return self._runs.get(number)

    def stop(self, number: int) -> None:
        """End the trial if it is under way."""
        self._stopped = number


def _problem(folder: Path, record: TuningRecord) -> str:
    try:
        seen = read_tuning_record(TuningFolder(folder)) == record
    except RecordError:
        seen = False
    if not seen:
        return f"{folder} is not there: all nodes must share the state folder (TUNER_STATE_DIR)."
    return "" if Path(record.cwd).is_dir() else f"The folder of the training, {record.cwd}, is not there."


class WorkerLostError(Exception):
    """A worker, or its node, is gone."""


class Worker(Protocol):
    """A `TrialWorker` in a cluster. What it returns may raise `WorkerLostError`."""

    def place(self, folder: Path, record: TuningRecord, environ: Mapping[str, str]) -> Future[WorkerPlace]:
        """See `TrialWorker.place`. It is done once the cluster has a place for the worker."""

    def run(self, order: TrialOrder) -> Future[TrialReport | str]:
        """See `TrialWorker.run`."""

    def launched(self, number: int) -> Future[str | None]:
        """See `TrialWorker.launched`."""

    def stop(self, number: int) -> Future[None]:
        """See `TrialWorker.stop`."""

    def release(self) -> None:
        """Give the worker's place back to the cluster."""


@dataclass
class WorkerSlots:
    """The workers that trials run on, by their names; `gone` have been lost for good."""

    workers: Mapping[str, Worker]
    places: Mapping[str, WorkerPlace]
    tuning: tuple[Path, TuningRecord, Mapping[str, str]]
    return_s: float = RETURN_S
    gone: set[str] = field(default_factory=set)

    @property
    def cards(self) -> tuple[str, ...]:
        """The names of the workers."""
        return tuple(self.workers)

    @property
    def inventory(self) -> Inventory:
        """What a trial sees of its machine: that with the least memory."""
        return min((one.inventory for one in self.places.values()), key=_memory_bytes)

    def present(self) -> frozenset[str]:
        """Return the workers that are not lost."""
        return frozenset(self.workers) - self.gone

    def runner(self, base: LaunchRequest, protocol: TrialProtocol) -> WorkerRunner:
        """Return a runner of trials of `base`."""
        return WorkerRunner(self, TrialRunner(base, protocol))

    def wait_for_return(self, name: str) -> None:
        """Wait until the cluster has started a lost worker again; elsewhere it is not the same."""
        ends = time.monotonic() + self.return_s
        while (left_s := ends - time.monotonic()) > 0:
            try:
                place = self.workers[name].place(*self.tuning).result(left_s)
            except (WorkerLostError, TimeoutError):
                time.sleep(min(POLL_S, left_s))
                continue
            if (place.host, place.card, place.problem) == (self.places[name].host, self.places[name].card, ""):
                return
            break
        self.gone.add(name)
        self.workers[name].release()


@dataclass(frozen=True)
class WorkerRunner:
    """Runs trials on the worker `card`."""

    slots: WorkerSlots
    runner: TrialRunner
    card: str = ""

    def on_card(self, card: str) -> WorkerRunner:
        """Return a runner whose trials run on this worker."""
        return replace(self, card=card)

    def with_start(self, start: Settings) -> WorkerRunner:
        """Return a runner whose trials start from `start`."""
        return replace(self, runner=self.runner.with_start(start))

    def run(self, trial: Trial, callbacks: TrialCallbacks) -> TrialReport:
        """Run a trial to its end, or until its worker is lost. Raises `LaunchError`."""
        started, run, worker = time.monotonic(), None, self.slots.workers[self.card]
        left_s = None if callbacks.deadline_t is None else callbacks.deadline_t - time.time()
        try:
            running = worker.run(TrialOrder(self.runner, trial, left_s, callbacks.expected_s, callbacks.give_up_s))
            while not wait([running], POLL_S).done:
                if run is None and (name := worker.launched(trial.number).result()) is not None:
                    run = RunFolder(self.runner.base.runs_root / name)
                    callbacks.launched(run)
                if callbacks.aborted():
                    worker.stop(trial.number)
            report = running.result()
        except WorkerLostError as error:
            # The trial may live on for a moment without its worker, until its supervisor sees that. A new trial on the
            # same GPU before that would be measured with a neighbour.
            if run is not None:
                _wait_ended(run, time.monotonic() + self.slots.return_s)
            self.slots.wait_for_return(self.card)
            sentence = f"The worker {self.card} was lost. {error}".rstrip()
            name, seconds = None if run is None else run.id, time.monotonic() - started
            lost = Measurement(outcome="failed", seconds=seconds, run_id=name, sentence=sentence, passing=True)
            return TrialReport(lost, trial.settings)
        if isinstance(report, str):
            raise LaunchError(f"{self.card}: {report}")
        if run is None and report.measurement.run_id is not None:
            callbacks.launched(RunFolder(self.runner.base.runs_root / report.measurement.run_id))
        return report


def _wait_ended(run: RunFolder, until: float) -> None:
    """Wait until the supervisor has ended a trial whose worker is gone, unless its node is gone, too."""
    while time.monotonic() < until:
        known = read_supervisor_state(run.state)
        if known is not None and known.outcome is not None:
            return
        time.sleep(POLL_S)


def take_workers(
    workers: Sequence[Worker],
    tuning: tuple[Path, TuningRecord, Mapping[str, str]],
    start_s: float = START_S,
    more_s: float = MORE_S,
) -> WorkerSlots:
    """Wait for the workers and return those of the best kind, at most as many as the tuning may use.

    The others are given back. Raises `LaunchError` if none comes, or if one cannot run trials.
    """
    # The cluster has no call for "which of my actors will get a place": those that answer have one. After the first has
    # come the others get MORE_S, since waiting longer costs more than an additional worker gains.
    asked = {worker.place(*tuning): worker for worker in workers}
    wait(asked, start_s, FIRST_COMPLETED)
    done, _ = wait(asked, more_s)
    placed, why = [], ""
    for future in done:
        try:
            placed.append((future.result(), asked[future]))
        except WorkerLostError as error:
            why = f" {error}"
    problem = next((f"On {place.host}: {place.problem}" for place, _ in placed if place.problem), "")
    if not placed:
        problem = f"No worker of the cluster could be started within {start_s:.0f} s: all are in use, or fail.{why}"
    if problem:
        raise LaunchError(problem)
    most = tuning[1].most_gpus
    best = best_kind(tuple(gpu for place, _ in placed for gpu in place.inventory.gpus))
    taken = sorted(
        (pair for pair in placed if not best or set(pair[0].inventory.gpus) & set(best)),
        key=lambda pair: (pair[0].host, pair[0].card or ""),
    )[:most]
    named: dict[str, tuple[WorkerPlace, Worker]] = {}
    for place, worker in taken:
        where = place.card if place.card is not None and place.card.startswith(UUID_PREFIX) else place.host
        names = (where, *(f"{where}/{number}" for number in range(2, len(taken) + 1)))
        named[next(name for name in names if name not in named)] = place, worker
    for worker in workers:
        if all(worker is not one for _, one in named.values()):
            worker.release()
    chosen = {name: worker for name, (_, worker) in named.items()}
    return WorkerSlots(chosen, {name: place for name, (place, _) in named.items()}, tuning)


def _memory_bytes(inventory: Inventory) -> int:
    gpus = inventory.gpus
    return min((gpu.memory_total_bytes or 0 for gpu in gpus), default=inventory.memory.total_bytes or 0)
