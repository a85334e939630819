"""Remedies on the host: loader workers, slow ranks, full host memory, shared memory or disk."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tuner_tui.advice.crash.oom_analysis import host_memory_limit, raise_limit
from tuner_tui.advice.finding import Remedy
from tuner_tui.advice.remedies import out_of_memory
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
            why="copies from page-locked memory are faster, and with `non_blocking=True` overlap with computation",
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


COMPUTE_LOCATIONS = frozenset({"training", "evaluation", "optimizer-step"})
"""Where a training without a GPU runs out of memory that a GPU would hold otherwise."""
PYTORCH_LOADER = "PyTorch: each worker has its own copy of the dataset object and its prefetched batches"
PYTORCH_SHM = "PyTorch: workers pass batches through shared memory"


def memory(situation: Situation, where: str | None) -> tuple[Remedy, ...]:
    """Fewer loader processes, which multiply host memory. Without a GPU, the GPU memory remedies apply as well."""
    settings, more = situation.settings, more_memory(situation)
    if where in COMPUTE_LOCATIONS and situation.has_gpu is False:
        return (*out_of_memory.ladder(situation, where), more)
    if where in {"loading", "checkpoint"}:
        return (more, LOW_MEMORY_LOADING)
    if settings is None:
        return (FEWER_WORKERS, more)
    return (
        *fewer_workers(situation, settings), *less_prefetch(settings), *not_persistent(settings),
        *not_pinned(situation, settings), more,
    )  # fmt: skip


def contended_cores(situation: Situation, where: str | None) -> tuple[Remedy, ...]:
    """No more threads than the cores that other programs leave, whose number is `where`; or end those programs."""
    if situation.has_gpu is not False or where is None:
        return (END_OTHERS,)
    threads = Remedy(
        title=f"compute with fewer threads: OMP_NUM_THREADS={where}",
        why="PyTorch computes with a thread per core, and at each operation all wait for the one that has no core; "
        "set the variable in the shell, or as the job's environment",
        effect="several times as many steps per second where most cores are taken",
        rests_on="the demo on 4 cores at a load of 10: 0.2 steps/s with 4 threads, 2.2 with one",
        source="PyTorch: CPU threading",
    )
    return (threads, END_OTHERS)


def more_memory(situation: Situation) -> Remedy:
    """A higher limit: the run's own if that was reached, else the host's."""
    limit = host_memory_limit(situation)
    return MORE_MEMORY if limit is None else raise_limit(limit)


def shared_memory(situation: Situation, where: str | None) -> tuple[Remedy, ...]:
    """A larger /dev/shm, or fewer batches in it."""
    settings = situation.settings
    if settings is None:
        return (LARGER_SHM, NO_WORKERS)
    no_workers = (NO_WORKERS,) if settings.dataloader_num_workers else ()
    return (LARGER_SHM, *less_prefetch(settings), *fewer_workers(situation, settings), *no_workers)


def disk(situation: Situation, where: str | None) -> tuple[Remedy, ...]:
    """Fewer and rarer checkpoints."""
    settings = situation.settings
    return (
        (FREE_SPACE,)
        if settings is None
        else (FREE_SPACE, *fewer_checkpoints(settings), *less_frequent_checkpoints(settings))
    )


def checkpoint(situation: Situation, where: str | None) -> tuple[Remedy, ...]:
    return (FREE_SPACE, OLDER_CHECKPOINT)


def not_persistent(settings: Settings) -> Iterator[Remedy]:
    if settings.dataloader_persistent_workers:
        yield Remedy(
            title="restart workers each epoch (persistent workers off)",
            why="their memory is freed after each epoch",
            change={"dataloader_persistent_workers": False},
            effect="less host memory, a pause at the start of each epoch",
            rests_on="as noted there; not measured here",
            source=NOTES_3070_8BIT,
        )


def not_pinned(situation: Situation, settings: Settings) -> Iterator[Remedy]:
    if settings.dataloader_pin_memory and situation.has_gpu is not False:
        yield Remedy(
            title="pin memory off",
            why="page-locked batches cannot be swapped out",
            change={"dataloader_pin_memory": False},
            effect="a little less host memory, slower copies to the GPU",
            source="PyTorch: pinned memory",
        )


def fewer_checkpoints(settings: Settings) -> Iterator[Remedy]:
    if settings.save_total_limit is None or settings.save_total_limit > 1:
        yield Remedy(
            title="keep 1 checkpoint",
            why="each checkpoint contains the weights and two optimizer states",
            change={"save_total_limit": 1},
            effect="needs space for two: the old one is deleted when the new one is complete",
            rests_on="12 bytes per trained parameter with AdamW in fp32",
            source=NOTES_UTILISATION,
        )


def less_frequent_checkpoints(settings: Settings) -> Iterator[Remedy]:
    if settings.save_strategy == "steps":
        yield Remedy(
            title=f"save every {settings.save_steps} → {settings.save_steps * 2} steps",
            why="fewer checkpoints are written",
            change={"save_steps": settings.save_steps * 2},
            effect="half the time spent saving; more steps are lost in a crash",
            source=NOTES_UTILISATION,
        )


FEWER_WORKERS = Remedy(
    title="use fewer loader workers",
    why="each has its own copy of the dataset object, and the kernel kills them first when memory runs out",
    source=f"{NOTES_3070}, {PYTORCH_LOADER}",
)
MORE_MEMORY = Remedy(
    title="give the run more host memory",
    why="raise the limit of the container, the cgroup or the job (`--mem`), or close other programs",
    source="cgroup: memory.max is what the kernel enforces",
)
LOW_MEMORY_LOADING = Remedy(
    title="load the weights without a second copy",
    why="Transformers 5 loads safetensors straight into the model; older releases do so with `low_cpu_mem_usage=True`",
    source="transformers: from_pretrained",
)
LARGER_SHM = Remedy(
    title="make /dev/shm larger",
    why="containers get 64 MB unless started with `--shm-size=8g` or `--ipc=host`",
    source=PYTORCH_SHM,
)
NO_WORKERS = Remedy(
    title="prepare batches in the training process: workers 0",
    why="batches then do not go through shared memory",
    change=NO_WORKERS_CHANGE,
    effect="works with any /dev/shm; training waits for data",
    source=PYTORCH_SHM,
)
FREE_SPACE = Remedy(
    title="free space, or save elsewhere",
    why="a new checkpoint needs its full size before the old one is deleted",
    source="a checkpoint is written before the last one is deleted",
)
OLDER_CHECKPOINT = Remedy(
    title="resume from the previous checkpoint",
    why="a partly written checkpoint cannot be read; the one before it is complete",
    source="transformers: resume_from_checkpoint",
)
