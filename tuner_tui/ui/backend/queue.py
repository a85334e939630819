"""The queue as the screen sees it: its lines, orders about it, and what a run would be queued for."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Literal, NamedTuple

from tuner_tui.ui.backend.records import translate_errors

if TYPE_CHECKING:
    from pathlib import Path

    from tuner_tui.hardware.inventory import Inventory
    from tuner_tui.scheduling.queueing import QueuedRun
    from tuner_tui.ui.backend.records import TrainingConfig

QueueOrder = Literal["hold", "release", "remove", "up", "down"]


class QueueOffer(NamedTuple):
    """What would be queued, as labelled lines; `add` does it and returns the name of the entry."""

    lines: list[tuple[str, str]]
    add: Callable[[], str]


class QueueAccess:
    """The queue of this user. Calls may block on files; those that can fail raise `BackendError`."""

    def views(self) -> Iterator[tuple[QueuedRun, ...]]:
        """Yield the lines of the queue, read anew each time."""
        from tuner_tui.scheduling.queue_store import open_queue
        from tuner_tui.scheduling.queueing import view_queue

        queue = open_queue()
        while True:
            yield view_queue(queue)

    @translate_errors()
    def wake(self) -> None:
        """Start the dispatcher again where it was killed and entries wait."""
        from tuner_tui.runs.store.folder import state_dir

        if not any((state_dir() / "queue").glob("q*.json")):  # most often: then nothing is imported for it
            return
        from tuner_tui.scheduling.queue_store import open_queue
        from tuner_tui.scheduling.queueing import wake_dispatcher

        wake_dispatcher(open_queue())

    @translate_errors()
    def order(self, what: QueueOrder, entry: str) -> None:
        """Carry out an order about an entry."""
        from tuner_tui.scheduling.queue_store import open_queue
        from tuner_tui.scheduling.queueing import wake_dispatcher

        queue = open_queue()
        if what in ("up", "down"):
            waiting = [one.id for one in queue.read().entries if one.progress.state == "waiting"]
            place = waiting.index(entry) + 1 if entry in waiting else 1
            queue.move(entry, max(1, place - 1 if what == "up" else place + 1))
        else:
            {"hold": queue.hold, "release": queue.release, "remove": queue.withdraw}[what](entry)
        wake_dispatcher(queue)

    @translate_errors()
    def run_folder(self, entry: str) -> Path | None:
        """The folder of the entry's run; None while it waits."""
        from tuner_tui.scheduling.queue_store import open_queue

        found = open_queue().find(entry).run_folder
        return None if found is None else found.path

    @translate_errors()
    def offer(self, config: TrainingConfig, inventory: Inventory | None) -> QueueOffer:
        """Prepare the training of `config` for the queue; nothing is queued yet."""
        from tuner_tui.hardware.detect import read_inventory
        from tuner_tui.runs.launch.prepare import launch_summary, prepare
        from tuner_tui.scheduling.queue_store import open_queue
        from tuner_tui.scheduling.queueing import QueueOptions, add_to_queue, describe_need

        request = config.launch_request()
        machine = inventory or read_inventory(request.runs_root)
        lines = [*launch_summary(prepare(request)), ("Waits for", describe_need(request, machine))]
        add: Callable[[], str] = translate_errors()(
            lambda: add_to_queue(open_queue(), request, QueueOptions(), machine)[0].id
        )
        return QueueOffer(lines, add)
