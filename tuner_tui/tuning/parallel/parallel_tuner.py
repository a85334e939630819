"""The tuning loop with a trial on each of several cards at once."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from tuner_tui.hardware.detect import read_inventory
from tuner_tui.hardware.inventory import Inventory
from tuner_tui.runs.launch.prepare import LaunchRequest
from tuner_tui.tuning.parallel.parallel_search import ParallelSearch
from tuner_tui.tuning.parallel.trial_share import bind, inventory_of_trial
from tuner_tui.tuning.parallel.workers import take_workers
from tuner_tui.tuning.process.trial_log import TuningEnded
from tuner_tui.tuning.process.tuner import (
    NO_CARD_LEFT,
    CardRunner,
    RunnerLike,
    SearchLike,
    TrialHistory,
    TrialSlots,
    Tuner,
)
from tuner_tui.tuning.store import TuningFolder, TuningRecord, tunings_dir
from tuner_tui.tuning.trial import Trial, TrialProtocol
from tuner_tui.tuning.trials.runner import TrialCallbacks, TrialReport, TrialRunner

POLL_S = 1.0


@dataclass
class _Running:
    """A trial that a thread waits for, and the event that ends it because it is not needed any more."""

    number: int
    unneeded: threading.Event


@dataclass
class ParallelTuner:
    """Runs the trials of `tuner` on `cards`, at most one on each.

    `present` returns the cards that are there, None if that is not known: a card that is gone loses its trial, which
    runs on another.
    """

    tuner: Tuner
    runner: CardRunner
    cards: tuple[str, ...]
    present: Callable[[], frozenset[str] | None]
    under_way: tuple[Trial, ...] = ()
    lost: tuple[Trial, ...] = ()
    _running: dict[Future[TrialReport], _Running] = field(default_factory=dict)

    def __post_init__(self) -> None:
        one_at_a_time = self.tuner.search_from

        def search_from(history: TrialHistory, compare_only: bool) -> SearchLike:
            space = one_at_a_time(history, compare_only).space
            return self._search(ParallelSearch(history.start, space, self.cards, history.trials, compare_only))

        self.tuner.search_from = search_from

    def tune(self, history: TrialHistory) -> TuningEnded:
        """Run trials to the end. Returns the last log entry without writing it. Raises `LaunchError`, `OSError`."""
        with ThreadPoolExecutor(len(self.cards)) as pool:
            try:
                return self._tune(history, pool)
            finally:
                for running in self._running.values():
                    running.unneeded.set()

    def _search(self, search: ParallelSearch) -> ParallelSearch:
        return replace(search, under_way=self.under_way, lost=self.lost)

    def _tune(self, history: TrialHistory, pool: ThreadPoolExecutor) -> TuningEnded:
        shown = self.present()  # a tuning that is resumed may find other cards
        self.cards = tuple(card for card in self.cards if shown is None or card in shown)
        while not self.tuner.folder.aborted():
            search, trial = self.tuner.next_trial(history)
            assert isinstance(search, ParallelSearch)
            if trial is None:
                return self.tuner.end("finished", search.conclusion)
            busy = {one.card for one in self.under_way}
            for proposed in search.propose([card for card in self.cards if card not in busy]):
                self._start(proposed, search, history, pool)
            if not self._running:
                ended = self.tuner.end("failed", None if search.best is None else search.conclusion)
                resume = f"`tuner-tui tune --resume {self.tuner.folder.id}` continues when they are back."
                return replace(ended, sentence=f"{NO_CARD_LEFT} {resume}")
            done, _ = wait(self._running, POLL_S, FIRST_COMPLETED)
            for future in done:
                over, history = self._finish(future, history)
                if over:
                    return self.tuner.interrupted(history)
        return self.tuner.interrupted(history)

    def _start(self, trial: Trial, search: ParallelSearch, history: TrialHistory, pool: ThreadPoolExecutor) -> None:
        assert trial.card is not None
        unneeded, callbacks = threading.Event(), self.tuner.callbacks(trial, search, history)
        aborted = callbacks.aborted
        callbacks = replace(callbacks, aborted=lambda: unneeded.is_set() or aborted())
        runner = self.runner.on_card(trial.card)
        self.under_way = (*self.under_way, trial)
        future = pool.submit(_run, runner.with_start(history.start) if history.trials else runner, trial, callbacks)
        self._running[future] = _Running(trial.number, unneeded)

    def _finish(self, future: Future[TrialReport], history: TrialHistory) -> tuple[bool, TrialHistory]:
        """Take in the end of a trial; true if it was ended because the time is over or the tuning was stopped."""
        number = self._running.pop(future).number
        report = future.result()
        trial = next(one for one in self.under_way if one.number == number)
        self.under_way = tuple(one for one in self.under_way if one is not trial)
        if report.measurement.outcome == "aborted":
            return True, history
        if report.measurement.outcome != "measured" and self._is_lost(trial, report):
            # The search counts how often, and takes it for failed in the end.
            space = self.tuner.search_from(history, False).space
            before = ParallelSearch(history.start, space, self.cards, history.trials, False, (), self.lost)
            after = before.lose(trial)
            self.lost = after.lost
            if len(after.trials) == len(before.trials):
                return False, history
            report = replace(report, measurement=after.trials[-1].measurement)
        requested = history.start
        history = history.after(trial, report)
        if history.start != requested:  # the first trial showed the settings that the script sets itself
            self.under_way = tuple(
                replace(one, settings=history.start) if one.settings == requested else one for one in self.under_way
            )
        self.tuner.write(history, report)
        return False, history

    def _is_lost(self, trial: Trial, report: TrialReport) -> bool:
        """Whether the trial ended because its card or its worker went away, not because of its settings."""
        assert trial.card is not None
        shown = self.present()
        if shown is None or trial.card in shown:
            return report.measurement.passing
        self.cards = tuple(card for card in self.cards if card != trial.card)
        return True


def _run(runner: RunnerLike, trial: Trial, callbacks: TrialCallbacks) -> TrialReport:
    return runner.run(trial, callbacks)


def tune_side_by_side(tuner: Tuner, runner: CardRunner, slots: TrialSlots, history: TrialHistory) -> TuningEnded:
    """Run the trials of `tuner` in the `slots`."""
    return ParallelTuner(tuner, runner, slots.cards, slots.present).tune(history)


@dataclass(frozen=True)
class LocalCards:
    """The `cards` of this machine that trials run on; `inventory` is what each of them sees."""

    cards: tuple[str, ...]
    inventory: Inventory

    def present(self) -> frozenset[str] | None:
        """Return the cards that the driver shows; None if it does not answer, which shows as no cards."""
        return frozenset(gpu.uuid for gpu in read_inventory(Path("/")).gpus if gpu.uuid is not None) or None

    def runner(self, base: LaunchRequest, protocol: TrialProtocol) -> TrialRunner:
        """Return a runner of trials of `base`."""
        return TrialRunner(bind(base, self.cards[0], self.inventory.cpu.usable_cores), protocol)


@contextmanager
def open_slots(record: TuningRecord, request: LaunchRequest, machine: Inventory) -> Iterator[TrialSlots | None]:
    """Return where the trials of a tuning run side by side; None if they run one after another.

    Raises `LaunchError`.
    """
    if record.on == "ray":
        from tuner_tui.tuning.parallel.ray_cluster import open_ray_workers

        with open_ray_workers() as workers:
            folder = TuningFolder(tunings_dir(request.environ) / record.id)
            yield take_workers(workers, (folder.path, record, request.environ))
    else:
        yield LocalCards(record.cards, inventory_of_trial(machine, record.cards)) if record.cards else None
