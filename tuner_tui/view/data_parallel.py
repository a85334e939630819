"""How many processes and GPUs multiply the micro batch."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from tuner_tui.hardware.interpreter import Interpreter
    from tuner_tui.hardware.inventory import Inventory
    from tuner_tui.runs.read.reader import RunView
    from tuner_tui.settings.distributed import AccelerateConfig
    from tuner_tui.settings.job import Job


class DataParallel(NamedTuple):
    """Processes, and the GPUs among which each of them splits a step.

    `perhaps` is the number of GPUs it would use if the command builds a Trainer, which is not known before it runs.
    """

    processes: int = 1
    cards: int = 1
    perhaps: int = 1


SINGLE_DEVICE = DataParallel()


def expected_data_parallel(
    job: Job, inventory: Inventory | None, interpreter: Interpreter | None, accelerate: AccelerateConfig | None
) -> DataParallel:
    """Return what job and machine imply before the job has run."""
    from tuner_tui.settings.distributed import process_count

    if inventory is None:
        return DataParallel(process_count(job, accelerate=accelerate))
    from tuner_tui.advice.recommend.target import target_of

    target = target_of(inventory, interpreter, job, accelerate)
    perhaps = 1 if target.spread_known else len(target.cards)
    return DataParallel(target.processes, target.replicas // target.processes, perhaps)


def observed_data_parallel(view: RunView | None) -> tuple[Job, DataParallel] | None:
    """Return the job of a run and what was observed in it, or None until it trains."""
    if view is None or view.record is None or view.state.replicas is None:
        return None
    processes = max(1, len(view.state.ranks))
    return view.record.job, DataParallel(processes, view.state.replicas // processes)
