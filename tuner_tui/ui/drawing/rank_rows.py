"""The ranks of a distributed training side by side, the slowest named."""

from __future__ import annotations

from collections.abc import Mapping

from tuner_tui.core.text import wrap_text
from tuner_tui.runs.events.rates import data_wait_share
from tuner_tui.runs.events.run_state import RankState, RunState
from tuner_tui.ui import format as f
from tuner_tui.ui.drawing.cells import Row, Run, line, right
from tuner_tui.ui.drawing.figures import LABEL, labelled

CELL = 6


def rank_rows(state: RunState, width: int) -> list[Row]:
    """Seconds a step and data wait of each rank. A training of one rank has nothing to compare."""
    if len(state.ranks) < 2:
        return []
    times = {number: step_time_s(rank) for number, rank in sorted(state.ranks.items())}
    shown = list(times)[: max(1, (width - LABEL) // CELL)]
    rows = [
        labelled("rank", Run("".join(right(str(number), CELL) for number in shown), "dim"), rank=3),
        _figures("s a step", [f.figure(times[number]) for number in shown]),
        _figures("data wait", [f.share(_waited(state.ranks[number])) for number in shown]),
    ]
    if len(shown) < len(times):
        rows.append(Row(line(Run(f"{len(times) - len(shown)} ranks not shown", "dim")), rank=3))
    return [*rows, *(Row(line(text), rank=3) for text in wrap_text(_sentence(times), max(8, width)))]


def _figures(label: str, values: list[str]) -> Row:
    return labelled(label, "".join(right(value, CELL) for value in values), rank=3)


def _sentence(times: Mapping[int, float | None]) -> str:
    known = {number: time for number, time in times.items() if time is not None}
    if not known:
        return f"{len(times)} ranks, no step times yet"
    slowest = max(known, key=lambda number: known[number])
    others = [time for number, time in known.items() if number != slowest]
    beside = f", the others {f.figure(sum(others) / len(others))}" if others else ""
    return f"slowest is rank {slowest}: {f.figure(known[slowest])} s a step{beside}"


def step_time_s(rank: RankState) -> float | None:
    """Seconds a step over the rank's recent counters."""
    if len(rank.recent) < 2 or rank.recent[-1].own_steps <= rank.recent[0].own_steps:
        return None
    first, last = rank.recent[0], rank.recent[-1]
    return (last.train_s - first.train_s) / (last.own_steps - first.own_steps)


def _waited(rank: RankState) -> float | None:
    """The share of the rank's recent step time that it waited for data, 0 to 1."""
    return data_wait_share(rank.recent[0], rank.recent[-1]) if rank.recent else None
