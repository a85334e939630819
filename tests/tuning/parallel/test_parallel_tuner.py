"""The loop of a tuning on several cards; no training, no process."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.benchmarks.tuning.simulated_training import SimulatedTraining, random_training
from tests.fakes.inventories import box
from tests.tuning.builders import resolved
from tuner_tui.core.files import acquire_lock
from tuner_tui.runs.launch.command import LaunchError
from tuner_tui.runs.launch.prepare import LaunchRequest
from tuner_tui.runs.store.folder import RunFolder
from tuner_tui.settings.job import CommandJob
from tuner_tui.settings.model import Settings
from tuner_tui.tuning.parallel.parallel_tuner import LocalCards, ParallelTuner
from tuner_tui.tuning.process.trial_log import (
    TrialCompleted,
    TrialLog,
    TrialStarted,
    TuningEnded,
    TuningReader,
    TuningStarted,
    read_entries,
)
from tuner_tui.tuning.process.tuner import NO_CARD_LEFT, TrialHistory, Tuner, check_runner
from tuner_tui.tuning.search.search import Search
from tuner_tui.tuning.store import TuningFolder
from tuner_tui.tuning.trial import Measurement, Trial
from tuner_tui.tuning.trials.runner import TrialCallbacks, TrialReport, TrialRunner

CARDS = ("GPU-a", "GPU-b", "GPU-c")
NOON = 1_000_000.0
TRAINING = random_training(12)


@dataclass
class Cards:
    """Runs the trials of a simulated training without delay; `before` is called before each, and may answer it."""

    training: SimulatedTraining
    before: Callable[[Trial, TrialCallbacks], Measurement | None] = lambda trial, callbacks: None
    busy: set[str] = field(default_factory=set)
    ran: list[tuple[str, Trial]] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)
    own: Settings | None = None

    def on_card(self, card: str) -> OneCard:
        return OneCard(self, card)

    def run(self, trial: Trial, callbacks: TrialCallbacks) -> TrialReport:
        raise AssertionError("trials run on a card")

    def with_start(self, start: Settings) -> Cards:
        return self


@dataclass(frozen=True)
class OneCard:
    """The runner of one card."""

    all: Cards
    card: str

    def run(self, trial: Trial, callbacks: TrialCallbacks) -> TrialReport:
        with self.all.lock:
            assert self.card not in self.all.busy, "at most one trial on a card"
            self.all.busy.add(self.card)
            self.all.ran.append((self.card, trial))
            number = len(self.all.ran)
        callbacks.launched(RunFolder(Path(f"/nowhere/r{number:03d}")))
        found = self.all.before(trial, callbacks) or self.all.training.run(trial.settings, trial.number)
        with self.all.lock:
            self.all.busy.remove(self.card)
        return TrialReport(found, self.all.own or trial.settings)

    def with_start(self, start: Settings) -> OneCard:
        return self


class Bench:
    """One tuning on three cards."""

    def __init__(self, path: Path) -> None:
        self.folder = TuningFolder(path)
        self.present = frozenset(CARDS)

    def tune(self, runner: Cards, history: TrialHistory | None = None) -> TuningEnded:
        log = TrialLog(self.folder)
        log.add(TuningStarted(t=NOON))
        space = runner.training.space
        tuner = Tuner(
            self.folder, log, runner,
            lambda known, compare_only: Search(known.start, space, known.trials, compare_only),
            NOON + 36_000, lambda: NOON,
        )  # fmt: skip
        ended = ParallelTuner(tuner, runner, CARDS, lambda: self.present).tune(
            history or TrialHistory(runner.training.start)
        )
        log.add(ended)
        return ended

    def history(self) -> TrialHistory:
        return TrialHistory.from_entries(TRAINING.start, read_entries(self.folder))


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def aborted() -> Measurement:
    return Measurement(outcome="aborted", seconds=1.0)


def test_trials_run_on_all_cards_until_the_search_is_done(bench: Bench) -> None:
    runner = Cards(TRAINING)
    ended = bench.tune(runner)
    assert (ended.status, ended.early) == ("finished", False)
    assert ended.verdict is not None
    assert {card for card, _ in runner.ran} == set(CARDS)
    assert all(trial.card == card for card, trial in runner.ran)
    starts = [card for card, trial in runner.ran if trial.settings == TRAINING.start and trial.pair is None]
    assert set(starts) == set(CARDS), "the start is measured on each card"


def test_what_runs_on_which_card_is_written_and_read(bench: Bench) -> None:
    all_run = threading.Barrier(len(CARDS), timeout=60)
    reader, views = TuningReader(bench.folder), []

    def meet(trial: Trial, callbacks: TrialCallbacks) -> None:
        if trial.number <= len(CARDS) and all_run.wait() == 0:
            views.append(reader.poll())
        if trial.number <= len(CARDS):
            all_run.wait()

    lock = acquire_lock(bench.folder.lock)
    bench.tune(Cards(TRAINING, meet))
    os.close(lock)
    first = views[0]
    assert first.current is not None
    cards = [first.current.card, *(one.trial.card for one in first.parallel)]
    assert sorted(map(str, cards)) == list(CARDS)


def test_a_card_that_vanishes_loses_its_trial_which_runs_on_another(bench: Bench) -> None:
    def vanish(trial: Trial, callbacks: TrialCallbacks) -> Measurement | None:
        if trial.card == "GPU-b" and trial.number > len(CARDS):
            bench.present = frozenset(CARDS) - {"GPU-b"}
            return Measurement(outcome="failed", seconds=1.0, sentence="CUDA error: device lost")
        return None

    runner = Cards(TRAINING, vanish)
    assert bench.tune(runner).status == "finished"
    lost = next(trial for card, trial in runner.ran if card == "GPU-b" and trial.number > len(CARDS))
    again = [card for card, trial in runner.ran if trial.number == lost.number]
    assert again[0] == "GPU-b"
    assert len(again) == 2
    assert all(card != "GPU-b" for card, trial in runner.ran if trial.number > lost.number)
    completed = [entry.tried for entry in read_entries(bench.folder) if isinstance(entry, TrialCompleted)]
    assert all(one.measurement.outcome != "failed" for one in completed)


def test_without_a_card_the_tuning_fails_and_can_go_on(bench: Bench) -> None:
    def vanish(trial: Trial, callbacks: TrialCallbacks) -> Measurement | None:
        bench.present = frozenset({"GPU-other"})
        return Measurement(outcome="failed", seconds=1.0)

    ended = bench.tune(Cards(TRAINING, vanish))
    assert ended.status == "failed"
    assert NO_CARD_LEFT in ended.sentence
    still = Cards(TRAINING)
    assert bench.tune(still, bench.history()).status == "failed", "the cards are still gone"
    assert still.ran == []
    bench.present = frozenset(CARDS)
    assert bench.tune(Cards(TRAINING), bench.history()).status == "finished"


@dataclass(frozen=True)
class Left(LocalCards):
    """Cards of which only some are left."""

    left: frozenset[str] | None = None

    def present(self) -> frozenset[str] | None:
        return self.left


def test_the_preset_is_checked_on_a_card_that_is_still_there() -> None:
    job = CommandJob(command=("python", "train.py"))
    request = LaunchRequest(job=job, resolved=resolved(), cwd=Path("/"), environ={})

    def card(left: frozenset[str] | None) -> str:
        runner = check_runner(request, Left(CARDS, box(cores=8), left))
        assert isinstance(runner, TrialRunner)
        return runner.base.environ["CUDA_VISIBLE_DEVICES"]

    assert card(frozenset({"GPU-b", "GPU-c"})) == "GPU-b"
    assert card(None) == "GPU-a", "the driver does not answer"
    with pytest.raises(LaunchError, match=NO_CARD_LEFT):
        card(frozenset())


def test_a_stopped_tuning_ends_all_trials_and_goes_on_where_it_was(bench: Bench) -> None:
    ended_trials = []

    def stop(trial: Trial, callbacks: TrialCallbacks) -> Measurement | None:
        if trial.number == 8:
            bench.folder.abort()
        if callbacks.aborted():
            ended_trials.append(trial.number)
            return aborted()
        return None

    assert bench.tune(Cards(TRAINING, stop)).status == "aborted"
    assert 8 in ended_trials
    measured = len(bench.history().trials)
    bench.folder.control.unlink()
    rest = Cards(TRAINING)
    assert bench.tune(rest, bench.history()).status == "finished"
    numbers = [one.trial.number for one in bench.history().trials]
    assert len(set(numbers)) == len(numbers)
    assert len(bench.history().trials) > measured
    assert not [trial for _, trial in rest.ran if trial.settings == TRAINING.start and trial.pair is None][len(CARDS) :]


def test_the_settings_that_a_script_sets_itself_are_the_start_on_each_card(bench: Bench) -> None:
    own = TRAINING.start.changed(learning_rate=1e-3)
    all_started = threading.Barrier(len(CARDS), timeout=60)

    def meet(trial: Trial, callbacks: TrialCallbacks) -> None:
        if trial.number <= len(CARDS):
            all_started.wait()

    bench.tune(Cards(TRAINING, meet, own=own))
    started = [entry.trial for entry in read_entries(bench.folder) if isinstance(entry, TrialStarted)]
    assert [one.settings for one in started[: len(CARDS)]] == [TRAINING.start] * len(CARDS)
    assert all(one.settings.learning_rate == 1e-3 for one in started[len(CARDS) :])
    first = [one.trial.settings for one in bench.history().trials[: len(CARDS)]]
    assert first == [own] * len(CARDS)
