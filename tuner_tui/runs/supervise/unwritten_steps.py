"""The steps that killed processes took after they wrote their last counters.

The observer writes counters once a second, and the number of optimizer calls to a file of its own at every step.
"""

from __future__ import annotations

from dataclasses import replace

from tuner_tui.core.files import read_regular
from tuner_tui.runs.events.run_state import RankState, RunState
from tuner_tui.runs.store.folder import RunFolder

MAX_BYTES = 64


def with_unwritten_steps(state: RunState, folder: RunFolder) -> RunState:
    """`state` at the last step of each rank: to be asked when the training has ended."""
    steps = [unwritten_steps(rank, folder) for rank in state.ranks.values()]
    more = max(steps, default=0)
    return state if not more or state.step is None else replace(state, step=state.step + more)


def unwritten_steps(rank: RankState, folder: RunFolder) -> int:
    """Steps of a rank after its newest counters; 0 where nothing is known. Several optimizers may make one step."""
    latest = rank.latest
    if rank.pid is None or latest is None or not latest.optimizer_calls or not latest.own_steps:
        return 0
    try:
        calls = int(read_regular(folder.optimizer_calls(rank.pid), MAX_BYTES))
    except (OSError, ValueError):
        return 0
    return max(0, (calls - latest.optimizer_calls) * latest.own_steps // latest.optimizer_calls)
