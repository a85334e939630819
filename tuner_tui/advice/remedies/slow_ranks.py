"""Remedies for a training whose ranks wait for one of them."""

from __future__ import annotations

from tuner_tui.advice.finding import Remedy
from tuner_tui.advice.situation import Situation


def own_data_of(rank: int) -> Remedy:
    """For a rank that waits for its data longer than the others."""
    return Remedy(
        title=f"check the data of rank {rank}",
        why="the other ranks do not wait for data: this rank's shard is larger, its storage slower or its "
        "samples take longer; shuffle before sharding and give every rank the same storage and workers",
        effect="at most the wait of that rank",
        rests_on="the wait measured on each rank",
        source="torch.utils.data.DistributedSampler",
    )


def slow_rank(situation: Situation, where: str | None) -> tuple[Remedy, ...]:
    """Less work on that rank, then a machine that is not shared; `where` names the rank."""
    return (
        Remedy(
            title=f"find what only {where or 'that rank'} does",
            why="code under `if rank == 0`, logging, metrics, a callback, or longer samples; `py-spy top --pid "
            "PID` shows where it spends its time",
            effect="at most the time the others wait",
            rests_on="the time of each rank outside of collectives",
            source="py-spy",
        ),
        Remedy(
            title="give every rank the same work",
            why="use batches of equal length on all ranks (group by length globally, or pack), and run rank-0 "
            "work every 10 or 100 steps",
            source="transformers: train_sampling_strategy, torch.utils.data.DistributedSampler",
        ),
        Remedy(
            title=f"compare the hardware of {where or 'that rank'}",
            why="another program on its cores or GPU, lower clocks, a throttling GPU: see `tuner-tui watch`",
            source="judgement",
        ),
    )
