"""Memory that a training keeps with every step: a loss summed with its graph, outputs collected, a cache that grows."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from tuner_tui.advice import thresholds
from tuner_tui.advice.measure import gigabytes
from tuner_tui.advice.situation import Situation
from tuner_tui.runs.lows import Growth, growth
from tuner_tui.runs.state import RankState

Place = Literal["gpu", "host"]


@dataclass(frozen=True, slots=True)
class Kept:
    """What one rank keeps on its card, or the ranks together in the host's memory."""

    place: Place
    growth: Growth
    ranks: tuple[RankState, ...]

    @property
    def evidence(self) -> str:
        """From what to what it rose, over how many steps."""
        rise = self.growth
        last = rise.from_bytes + rise.total_bytes
        return f"{gigabytes(rise.from_bytes)} → {gigabytes(last)} held between steps, over {rise.steps:,} steps"


def kept_memory(situation: Situation, least: int) -> tuple[Kept, ...]:
    """What rises steadily and is worth telling, seen in at least `least` stretches of the run: cards, then the host."""
    ranks = situation.state.ranks.values()
    on_cards = [Kept("gpu", rise, (rank,)) for rank in ranks if (rise := growth(rank.allocated, least)) is not None]
    on_host = [(rank, rise) for rank in ranks if (rise := growth(rank.anonymous, least)) is not None]
    together = Kept("host", _together(rise for _, rise in on_host), tuple(rank for rank, _ in on_host))
    found = [*on_cards, together] if on_host else on_cards
    return tuple(one for one in found if _matters(one.growth))


def kept_before_the_end(situation: Situation, place: Place) -> Kept | None:
    """What had risen at `place` when memory ran out: fewer looks are enough then, and it has to be much of it."""
    kept = kept_memory(situation, int(thresholds.KEPT_STRETCHES_AT_END.value))
    much = (one for one in kept if one.growth.total_bytes >= thresholds.KEPT_SHARE_AT_END.value * one.growth.from_bytes)
    return next((one for one in much if one.place == place), None)


def _together(rises: Iterable[Growth]) -> Growth:
    every = tuple(rises)
    return Growth(
        sum(rise.bytes_a_step for rise in every),
        sum(rise.total_bytes for rise in every),
        max((rise.steps for rise in every), default=0),
        sum(rise.from_bytes for rise in every),
    )


def _matters(rise: Growth) -> bool:
    least_bytes = max(thresholds.KEPT_BYTES.value, thresholds.KEPT_SHARE.value * rise.from_bytes)
    return rise.total_bytes >= least_bytes
