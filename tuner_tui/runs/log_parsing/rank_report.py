"""Which ranks an output shows, and of a stall which of them wait and which one is missing.

An output is often that of one host of many, so a rank is not accused because it is the one that is seen.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from msgspec import Struct

from tuner_tui.core.text import name_ranks
from tuner_tui.runs.events.run_state import RunState
from tuner_tui.runs.log_parsing.failures import RANK
from tuner_tui.runs.log_parsing.lines import LogLine, search_any

LOST_PEER = re.compile(r"connection|broken ?pipe|\bpeer|remote|socket|nccl|gloo|rendezvous|timed out", re.IGNORECASE)
"""In an exception that a rank raises because another one is gone."""


class Collective(Struct, frozen=True):
    """The lowest collective in which a rank waited until the watchdog's limit: its number in its process group."""

    number: int
    operation: str
    group: str


class RankReport(Struct, frozen=True):
    """The ranks of which there is an event or a line in the output; `world_size` is None where it is not known.

    `waiting` are the collectives in which ranks waited, `absent` those that others missed at a barrier.
    """

    world_size: int | None
    seen: frozenset[int]
    waiting: Mapping[int, Collective]
    absent: frozenset[int]

    @property
    def all_seen(self) -> bool:
        """Whether no rank can have failed unseen."""
        return self.world_size is not None and self.seen.issuperset(range(self.world_size))

    def stall(self) -> tuple[str, ...]:
        """Who waits where, and who is missing, as evidence; nothing where no rank reported that it waited."""
        if self.absent:
            return (f"{name_ranks(self.absent)} did not reach the barrier",)
        if not self.waiting:
            return ()
        collectives = set(self.waiting.values())
        ranks = {waited: [rank for rank in self.waiting if self.waiting[rank] == waited] for waited in collectives}
        where = [
            f"{name_ranks(ranks[waited])} waited in collective {waited.number} ({waited.operation})"
            for waited in sorted(collectives, key=lambda waited: waited.number)
        ]
        others = frozenset(range(self.world_size or 0)) - self.waiting.keys()
        if self.are_out_of_step:
            condition = "" if collectives.pop().group else " if these are of one process group"
            return (*where[:4], f"ranks are out of step{condition}")
        if len(collectives) > 1 or self.world_size is None or not others <= self.seen:
            return (*where[:4], "which rank was waited for is unknown")
        if not others:
            return (*where, "no rank is missing: all waited in the same one")
        return (*where, f"{name_ranks(others)} did not join it")

    @property
    def are_out_of_step(self) -> bool:
        """Whether ranks waited in different collectives of one group, which each begins after the one before."""
        return len({*self.waiting.values()}) > len({collective.group for collective in self.waiting.values()})


def read_ranks(lines: Sequence[LogLine], state: RunState) -> RankReport:
    """The ranks by the output and the events of a run."""
    sizes = [] if state.world_size is None else [state.world_size]
    seen, absent = set(state.ranks), set[int]()
    waiting: dict[int, Collective] = {}
    for line in lines:
        if line.rank is not None:
            seen.add(line.rank)
        if listed := RANK.match(line.text):
            seen.add(int(listed["rank"]))
        if match := search_any("world-size", line.text):
            sizes.append(int(match["size"]))
        if match := search_any("absent-ranks", line.text):
            absent |= set(map(int, match["ranks"].split(", ")))
        if match := search_any("collective", line.text):
            # The rank before the line is that of the training, the one in brackets that of the process group.
            rank = int(match["rank"] or -1) if line.rank is None else line.rank
            group = search_any("process-group", line.text)
            collective = Collective(int(match["number"]), match["operation"], group["group"] if group else "")
            if rank >= 0:
                seen.add(rank)
                waiting[rank] = min(waiting.get(rank, collective), collective, key=lambda waited: waited.number)
    # A process group of some ranks prints a smaller size than the training.
    return RankReport(max(sizes, default=None), frozenset(seen), waiting, frozenset(absent))
