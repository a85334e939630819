"""How many processes and cards multiply the micro batch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tuner_tui.settings.job import Job
    from tuner_tui.ui.screen_state.ui_state import UiState


@dataclass(frozen=True, slots=True)
class DataParallel:
    """`cards` each of the `processes` shares a step among; `perhaps`: so many if the command holds a Trainer."""

    processes: int = 1
    cards: int = 1
    perhaps: int = 1


SINGLE_DEVICE = DataParallel()


def data_parallel_of(state: UiState, job: Job) -> DataParallel:
    """As the followed run of this very job showed it; before that, as far as job and box tell."""
    from tuner_tui.settings.distributed import process_count

    seen = observed_data_parallel(state)
    if seen is not None and seen[0] == job:
        return seen[1]
    if state.inventory is None:
        return DataParallel(process_count(job, accelerate=state.accelerate))
    from tuner_tui.advice.recommend.target import target_of

    target = target_of(state.inventory, state.interpreter, job, state.accelerate)
    perhaps = 1 if target.spread_known else len(target.cards)
    return DataParallel(target.processes, target.replicas // target.processes, perhaps)


def observed_data_parallel(state: UiState) -> tuple[Job, DataParallel] | None:
    """Which job the followed run trains, and how; None until its training was seen."""
    view = state.view
    if view is None or view.record is None or view.state.replicas is None:
        return None
    processes = max(1, len(view.state.ranks))
    return view.record.job, DataParallel(processes, view.state.replicas // processes)
