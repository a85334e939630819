"""Remedies for slow data loading, and for ranks that wait for one of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tuner_tui.advice.finding import Remedy
from tuner_tui.advice.situation import Situation
from tuner_tui.advice.thresholds import NOTES_3070, NOTES_3070_8BIT, NOTES_3090, NOTES_UTILISATION
from tuner_tui.settings.model import Settings, Value


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


MAX_WORKERS = 16
PREFETCH = 4


def data_wait(situation: Situation, where: str | None) -> tuple[Remedy, ...]:
    """Remedies by `where`: workers (too few), one-worker, storage, main-process, cpu, others (other programs).

    `where` is None if the loader's load is unknown.
    """
    settings = situation.settings
    if settings is None:
        return (TOKENISE_AHEAD,)
    if where == "one-worker":
        return (SHARD_DATASET, *fewer_workers(situation, settings), TOKENISE_AHEAD)
    if where == "storage":
        return (FASTER_STORAGE, *more_prefetch(situation, settings), TOKENISE_AHEAD)
    if where == "others":
        return (END_OTHERS, TOKENISE_AHEAD)
    if where == "cpu":
        return (TOKENISE_AHEAD, *fewer_workers(situation, settings))
    return (
        *more_workers(situation, settings), *more_prefetch(situation, settings), *persistent(situation, settings),
        *pinned(situation, settings), TOKENISE_AHEAD, FASTER_STORAGE,
    )  # fmt: skip


def too_many_workers(situation: Situation, where: str | None) -> tuple[Remedy, ...]:
    settings = situation.settings
    if settings is None:
        return (WORKERS_AS_CORES, TOKENISE_AHEAD)
    return (*fewer_workers(situation, settings), *less_prefetch(settings), TOKENISE_AHEAD)


def more_workers(situation: Situation, settings: Settings) -> Iterator[Remedy]:
    """Two more workers (4 → 6), or up to four from none; at most one per core."""
    workers, cores = settings.dataloader_num_workers, situation.usable_cores
    spare = max(1, (cores - 1) if cores is not None else workers + 2) // situation.processes
    wanted = min(workers + 2 if workers else 4, max(1, spare), MAX_WORKERS)
    if wanted <= workers:
        return
    change: dict[str, int | bool] = {"dataloader_num_workers": wanted}
    if workers == 0:
        change["dataloader_persistent_workers"] = True
    gain = possible_gain(situation.state.rates.data_wait_share, workers, wanted)
    if gain is not None and gain < LEAST_GAIN:
        return
    yield Remedy(
        title=f"workers {workers} → {wanted}",
        why="batches are prepared while the GPU computes" if workers == 0 else "more batches are prepared at once",
        change=change,
        effect="" if gain is None else f"at most {gain:.3g}× the steps per second",
        rests_on="" if gain is None else "the measured wait bounds the gain",
        source=f"{NOTES_3070_8BIT}, {NOTES_3090}",
    )


def fewer_workers(situation: Situation, settings: Settings) -> Iterator[Remedy]:
    """A third fewer workers (6 → 4); at most one per core."""
    workers, cores = settings.dataloader_num_workers, situation.usable_cores
    most = workers if cores is None else max(1, cores - 1)
    wanted = min(most, max(1, workers * 2 // 3))
    if wanted < workers:
        yield Remedy(
            title=f"workers {workers} → {wanted}",
            why="the workers compete for cores with each other and with the training process",
            change={"dataloader_num_workers": wanted},
            effect="less context switching, less host memory",
            rests_on="RTX 3070 as noted there; not measured here",
            source=NOTES_3070,
        )


def more_prefetch(situation: Situation, settings: Settings) -> Iterator[Remedy]:
    if settings.dataloader_num_workers > 0 and (settings.dataloader_prefetch_factor or 2) < PREFETCH:
        yield Remedy(
            title=f"prefetch {settings.dataloader_prefetch_factor or 2} → {PREFETCH}",
            why="more batches are ready when one is slow",
            change={"dataloader_prefetch_factor": PREFETCH},
            effect="evens out slow batches; needs host memory",
            rests_on="as noted there; not measured here",
            source=f"{NOTES_3090}, {NOTES_UTILISATION}",
        )


def less_prefetch(settings: Settings) -> Iterator[Remedy]:
    if (settings.dataloader_prefetch_factor or 2) > 2:
        yield Remedy(
            title=f"prefetch {settings.dataloader_prefetch_factor} → 2",
            why="two batches ahead are enough when cores are the limit",
            change={"dataloader_prefetch_factor": 2},
            effect="less host memory",
            rests_on="RTX 3070 as noted there",
            source=NOTES_3070,
        )


def persistent(situation: Situation, settings: Settings) -> Iterator[Remedy]:
    if settings.dataloader_num_workers > 0 and not settings.dataloader_persistent_workers:
        yield Remedy(
            title="keep workers between epochs",
            why="each epoch restarts its workers and waits for the first batch",
            change={"dataloader_persistent_workers": True},
            effect="no pause at the start of an epoch",
            rests_on="as noted there; not measured here",
            source=f"{NOTES_3090}, {NOTES_UTILISATION}",
        )


def pinned(situation: Situation, settings: Settings) -> Iterator[Remedy]:
    if not settings.dataloader_pin_memory and situation.has_gpu is not False:
        yield Remedy(
            title="pin memory on",
            why="copies from page-locked memory are faster and overlap with computation",
            change={"dataloader_pin_memory": True},
            effect="faster copies to the GPU",
            rests_on="as noted there; not measured here",
            source=f"{NOTES_3090}, {NOTES_UTILISATION}",
        )


LEAST_GAIN = 1.02
"""A remedy that cannot gain as much is not offered."""


def possible_gain(share: float | None, workers: int, wanted: int) -> float | None:
    """The upper bound of the speed-up by more workers, None if the share of the wait is unknown.

    A step takes as long as the slower of computing and loading. Without workers, loading is the wait itself; with
    workers that are waited for, it takes the whole step.
    """
    if not share:
        return None
    loading = workers / wanted if workers else share / wanted
    return 1 / max(1 - share, loading)


NO_WORKERS_CHANGE: Mapping[str, Value] = {
    "dataloader_num_workers": 0, "dataloader_prefetch_factor": None, "dataloader_persistent_workers": False,
}  # fmt: skip
END_OTHERS = Remedy(
    title="end or move the other jobs on this machine",
    why="`tuner-tui watch` names the jobs on the machine; `nice` or `taskset` keeps them off the training's cores",
    source=f"{NOTES_UTILISATION}: a core at 100 % is a bottleneck",
)
TOKENISE_AHEAD = Remedy(
    title="tokenize once, before training",
    why="do repeated work once and cache it: `datasets.map` with several processes",
    source=NOTES_UTILISATION,
)
WORKERS_AS_CORES = Remedy(
    title="use at most as many workers as cores (dataloader_num_workers, num_workers)",
    why="the workers compete for cores with each other and with the training process, which needs one core",
    effect="less context switching, less host memory",
    source=NOTES_3070,
)
FASTER_STORAGE = Remedy(
    title="move the data to faster storage",
    why="the loader waits for reads: use a local SSD or memory instead of a network folder",
    source=NOTES_UTILISATION,
)
SHARD_DATASET = Remedy(
    title="shard the dataset among the workers",
    why="one worker reads each shard of a streamed dataset: create at least as many shards as workers",
    source="datasets: an IterableDataset gives each worker whole shards",
)
