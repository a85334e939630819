"""A queue without files: its lines, and what was asked of it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from tuner_tui.scheduling.queueing import QueuedRun

from tuner_tui.hardware.inventory import Inventory
from tuner_tui.ui.backend.queue import QueueAccess, QueueOffer, QueueOrder
from tuner_tui.ui.backend.records import TrainingConfig

ADDED = QueuedRun("q009", "waiting", "llama-1b-sft", "The dispatcher has not looked at it yet.")


def some_lines(queued_t: float) -> tuple[QueuedRun, ...]:
    """An entry in each state."""
    return (
        QueuedRun("q001", "running", "python sft.py --lr 2e-5", run="r008", gpus=1, queued_t=queued_t),
        QueuedRun(
            "q002", "waiting", "llama-1b-sft",
            "It needs 2 GPUs with 41.3 GiB each, 1 would do now. GPU 1 has 12.0 GiB free (alice: python train.py "
            "61.0 GiB, run r008 5.1 GiB).",
            gpus=2, queued_t=queued_t,
        ),
        QueuedRun(
            "q003", "waiting", "python eval.py",
            "There is room on GPU 0, but starting now would delay q002, which came first.", gpus=1, queued_t=queued_t,
        ),
        QueuedRun("q004", "held", "python tiny.py", "Held by you; `tuner-tui queue release` releases it.", gpus=1),
        QueuedRun("q005", "damaged", reason="/state/queue/q005.json is damaged: it is not an entry of this version."),
    )  # fmt: skip


@dataclass
class FakeQueue(QueueAccess):
    """Answers from `lines` and records requests."""

    lines: tuple[QueuedRun, ...] = ()
    asked: list[tuple[str, str]] = field(default_factory=list)

    def views(self) -> Iterator[tuple[QueuedRun, ...]]:
        while True:
            yield self.lines

    def wake(self) -> None:
        self.asked.append(("wake", ""))

    def order(self, what: QueueOrder, entry: str) -> None:
        self.asked.append((what, entry))
        states = {"hold": "held", "release": "waiting"}
        self.lines = tuple(
            replace(one, state=states.get(what, one.state)) if one.entry == entry else one
            for one in self.lines
            if not (what == "remove" and one.entry == entry)
        )

    def run_folder(self, entry: str) -> Path | None:
        run = next(one.run for one in self.lines if one.entry == entry)
        return None if run is None else Path("/runs") / run

    def offer(self, config: TrainingConfig, inventory: Inventory | None) -> QueueOffer:
        def add() -> str:
            self.lines = (*self.lines, ADDED)
            return ADDED.entry

        return QueueOffer([("Command", "python sft.py"), ("Waits for", "1 GPU with 41.3 GiB (closed form)")], add)
