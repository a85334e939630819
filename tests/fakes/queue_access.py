"""A queue without files: its lines, and what was asked of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from tuner_tui.hardware.inventory import Inventory
from tuner_tui.runs.queue.listing import QueueLine
from tuner_tui.ui.backend.queue import QueueAccess, QueueOffer
from tuner_tui.ui.backend.records import TrainingConfig

ADDED = QueueLine("r009", "/runs/r009", "waiting", "llama-1b-sft", "It was queued a moment ago.")


def some_lines(submitted_t: float) -> tuple[QueueLine, ...]:
    """A run in each state."""
    return (
        QueueLine(
            "r002", "/runs/r002", "waiting", "llama-1b-sft",
            "It needs 2 GPUs, 0 free. GPU 0: run r001; GPU 1: alice: python train.py --model llama-3.1-8b.",
            2, submitted_t,
        ),
        QueueLine(
            "r003", "/runs/r003", "waiting", "python eval.py", "It starts after run r002 has ended.", 1, submitted_t
        ),
        QueueLine(
            "r004", "/runs/r004", "was-waiting", "python tiny.py",
            "It was waiting when the machine was restarted; `tuner-tui queue --restart` queues it again.", 1,
        ),
        QueueLine("r005", "/runs/r005", "damaged", reason="/runs/r005/queue.json is damaged: not of this version."),
    )  # fmt: skip


@dataclass
class FakeQueue(QueueAccess):
    """Answers from `lines` and records requests."""

    runs: tuple[QueueLine, ...] = ()
    asked: list[tuple[str, str]] = field(default_factory=list)

    def lines(self) -> tuple[QueueLine, ...]:
        return self.runs

    def wake(self) -> None:
        self.asked.append(("wake", ""))

    def remove(self, path: Path) -> None:
        self.asked.append(("remove", path.name))
        self.runs = tuple(line for line in self.runs if line.path != str(path))

    def offer(self, config: TrainingConfig, inventory: Inventory | None) -> QueueOffer:
        def add() -> str:
            self.runs = (*self.runs, ADDED)
            return ADDED.run

        return QueueOffer([("Command", "python sft.py"), ("Waits for", "1 of 2 GPUs")], add)
