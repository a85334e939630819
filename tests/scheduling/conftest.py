"""A queue with fake cards, and trainings that are real processes."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from threading import Event

import pytest

from tests.runs.sandbox import Sandbox
from tests.scheduling.fake_cards import TRAINING, FakeCards, environment
from tuner_tui.core.units import GIB
from tuner_tui.memory.device import CONTEXT_BYTES
from tuner_tui.runs.launch.prepare import LaunchRequest
from tuner_tui.runs.store.folder import RunFolder, list_runs
from tuner_tui.scheduling.admission import Place
from tuner_tui.scheduling.dispatcher import Dispatcher
from tuner_tui.scheduling.entry import EntryProgress, QueueEntry
from tuner_tui.scheduling.occupancy import StartedRuns, read_places
from tuner_tui.scheduling.queue_store import Queue
from tuner_tui.scheduling.starting import launch_request
from tuner_tui.settings.job import CommandJob

PATIENCE_S, PAUSE_S = 240.0, 0.02
"""A longer wait means that the event will not happen: a dozen processes start one after another on a busy machine."""


class FakeMachine:
    """The places of fake cards, with the real live runs on them."""

    def __init__(self, cards: FakeCards, root: Path) -> None:
        self.cards = cards
        self._runs = StartedRuns(root)

    def read(self, entries: Sequence[QueueEntry]) -> tuple[Place, ...]:
        return read_places(self.cards, self._runs.read(entries, self.cards.cards()), cores=4)

    @property
    def ended_runs(self) -> int:
        return 0


class QueueBox:
    """A queue in a temporary folder, and a dispatcher that the test steps."""

    def __init__(self, root: Path) -> None:
        self.state = root / "state"
        self.queue = Queue(self.state / "queue", root / "secrets")
        self.cards = FakeCards(root / "cards")
        self.sandbox = Sandbox(root)
        self.machine = FakeMachine(self.cards, self.state / "runs")
        self.dispatcher = self.new_dispatcher()

    def new_dispatcher(self, launch: Callable[[LaunchRequest], RunFolder] = launch_request) -> Dispatcher:
        return Dispatcher(self.queue, self.machine, launch)

    def request(self, gib: float, seconds: float, promised_gib: float | None = None) -> LaunchRequest:
        """A launch that takes `gib` of its card, by a training for which `promised_gib` were declared."""
        script = self.state.parent / "train.py"
        script.write_text(TRAINING)
        command = (sys.executable, str(script), str(self.cards.folder), str(gib), str(seconds))
        base = self.sandbox.request("", job=CommandJob(command=command))
        script.write_text(TRAINING)
        limit = round((gib if promised_gib is None else promised_gib) * GIB) - CONTEXT_BYTES
        return replace(
            base, memory_limit_bytes=limit, root=self.state / "runs", environ=environment(self.state), interpreter=None
        )

    def add(self, request: LaunchRequest, gpus: int = 1, after: str | None = None) -> QueueEntry:
        entry = QueueEntry("", "", 0.0, request, EntryProgress(0.0), gpus=gpus, after=after)
        return self.queue.add(entry)

    def play(self, until: Callable[[], bool], each: Callable[[], object] = lambda: None) -> None:
        """Step the dispatcher until the condition holds."""
        pause = Event()
        for _ in range(round(PATIENCE_S / PAUSE_S)):
            if until():
                return
            if not self.dispatcher.step():
                pause.wait(PAUSE_S)
            each()
        raise AssertionError("the condition was never met")

    def play_others(self, until: Callable[[], bool]) -> None:
        """Wait until the condition holds, by what other processes do."""
        pause = Event()
        for _ in range(round(PATIENCE_S / PAUSE_S)):
            if until():
                return
            pause.wait(PAUSE_S)
        raise AssertionError("the condition was never met")

    def is_empty(self) -> bool:
        return not self.queue.read().entries

    def runs(self) -> list[RunFolder]:
        return list_runs(self.state / "runs")

    def close(self) -> None:
        self.sandbox.folders = self.runs()
        self.sandbox.close()


@pytest.fixture
def box(tmp_path: Path) -> Iterator[QueueBox]:
    made = QueueBox(tmp_path)
    os.makedirs(made.state, mode=0o700)  # noqa: PTH103  the mode of the last folder alone
    yield made
    made.close()
