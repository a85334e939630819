"""Findings on the ranks of one training: the one that the others wait for, and what it spends its time on."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median

from tuner_tui.advice import thresholds
from tuner_tui.advice.finding import Finding
from tuner_tui.advice.findings.run_metrics import is_warmed_up, training_share
from tuner_tui.advice.remedies.catalog import remedies_for
from tuner_tui.advice.situation import Situation
from tuner_tui.core.units import format_share
from tuner_tui.runs.events.progress import RankTimes, rank_times


@dataclass(frozen=True, slots=True)
class SlowRank:
    """The rank that the others wait for, `lost_s` of each step of `step_s` seconds.

    `by_data`: it waits longer for its batches than the others do; else its own work takes longer. `others` are the
    medians of the other ranks.
    """

    slow: RankTimes
    others: RankTimes
    lost_s: float
    by_data: bool

    @property
    def lost_share(self) -> float:
        """The share of each step in which the other ranks wait."""
        return min(1.0, self.lost_s / self.others.step_s)

    @property
    def evidence(self) -> tuple[str, ...]:
        """The two sides in figures."""
        slow, others = self.slow, self.others
        return (
            f"rank {slow.rank}: waits {_ms(slow.data_wait_s)} for data and works {_ms(slow.own_s)} a step; "
            f"the others: {_ms(others.data_wait_s)} and {_ms(others.own_s)}",
            f"in calls that wait for other ranks (backward, collectives): rank {slow.rank} {_ms(slow.rank_wait_s)} "
            f"a step, the others {_ms(others.rank_wait_s)}",
        )


def find_slow_rank(situation: Situation) -> SlowRank | None:
    """The rank that is last at the collectives, by the least time in them, if the others lose much by it."""
    times = rank_times(situation.state.ranks.values())
    if not times or not is_warmed_up(situation):
        return None
    slow = min(times, key=lambda one: one.rank_wait_s)
    rest = [one for one in times if one is not slow]
    others = RankTimes(
        -1,
        step_s=median(one.step_s for one in rest),
        data_wait_s=median(one.data_wait_s for one in rest),
        rank_wait_s=median(one.rank_wait_s for one in rest),
        between_s=median(one.between_s for one in rest),
    )
    more_data_s, more_work_s = slow.data_wait_s - others.data_wait_s, slow.own_s - others.own_s
    # Late by what it does longer than the others, as far as they are seen to wait for it.
    lost_s = min(others.rank_wait_s - slow.rank_wait_s, max(0.0, more_data_s) + max(0.0, more_work_s))
    found = SlowRank(slow, others, lost_s, by_data=more_data_s > more_work_s)
    serious = found.lost_share >= thresholds.SLOW_RANK_SHARE.value and lost_s >= thresholds.SLOW_RANK_S.value
    return found if serious else None


def slow_rank(situation: Situation) -> Finding | None:
    """One rank computes longer than the others, which wait for it. One that waits for data is `data_wait`'s."""
    found = find_slow_rank(situation)
    if found is None or found.by_data:
        return None
    slow, others = found.slow, found.others
    after_step = slow.between_s - others.between_s > found.lost_s / 2
    what = "in the loop's own code after the optimizer step" if after_step else "in its forward pass or optimizer"
    return Finding(
        cause="slow-rank",
        severity="warning",
        sentence=f"Rank {slow.rank} is slow {what}: the other ranks wait for it for "
        f"{format_share(found.lost_share)} of each step",
        evidence=found.evidence,
        confidence="likely",
        where=f"rank {slow.rank}",
        remedies=remedies_for("slow-rank", situation, f"rank {slow.rank}"),
        lost_share=found.lost_share * training_share(situation),
    )


def _ms(seconds: float) -> str:
    return f"{seconds * 1000:.3g} ms"
