"""The queue as the screen sees it: the runs that wait, and what a run would be queued for."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from tuner_tui.ui.backend.records import TrainingConfig, translate_errors

if TYPE_CHECKING:
    from tuner_tui.hardware.inventory import Inventory
    from tuner_tui.runs.queue.listing import QueueLine


class QueueOffer(NamedTuple):
    """What would be queued, as labelled lines; `add` does it and returns the id of the run."""

    lines: list[tuple[str, str]]
    add: Callable[[], str]


class QueueAccess:
    """The queue of this user. Calls may block on files; those that can fail raise `BackendError`."""

    def lines(self) -> tuple[QueueLine, ...]:
        """The runs that wait, in their order."""
        from tuner_tui.runs.queue.listing import list_queue
        from tuner_tui.runs.store.folder import runs_dir

        return list_queue(runs_dir())

    @translate_errors()
    def wake(self) -> None:
        """Start the process that starts waiting runs again where it was killed."""
        from tuner_tui.runs.queue.queued_run import revive_waiter
        from tuner_tui.runs.store.folder import runs_dir

        revive_waiter(runs_dir())

    @translate_errors()
    def remove(self, path: Path) -> None:
        """Remove the waiting run in the folder `path` from the queue."""
        from tuner_tui.runs.launch.orders import give_order
        from tuner_tui.runs.store.folder import RunFolder

        give_order(RunFolder(path), "stop")

    @translate_errors()
    def offer(self, config: TrainingConfig, inventory: Inventory | None) -> QueueOffer:
        """Prepare the training of `config` for the queue; nothing is queued yet."""
        from tuner_tui.hardware.detect import read_inventory
        from tuner_tui.runs.launch.prepare import launch_summary, prepare
        from tuner_tui.runs.queue.submission import enqueue, queue_need

        request = config.launch_request()
        need = queue_need(request, inventory or read_inventory(request.runs_root))
        prepared = prepare(request)
        gpus = f"{need.gpus} of {len(need.allowed)} GPUs" if need.gpus else "the processor"

        @translate_errors()
        def add() -> str:
            run = enqueue(prepared, need).id
            self.wake()
            return run

        return QueueOffer([*launch_summary(prepared), ("Waits for", gpus)], add)
