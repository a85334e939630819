"""Remedies on the host: loader workers, slow ranks, full host memory, shared memory or disk."""

from __future__ import annotations

from collections.abc import Iterator

from tuner_tui.advice.finding import Remedy
from tuner_tui.advice.remedies.table import remedy
from tuner_tui.advice.situation import Situation
from tuner_tui.settings.model import Settings


def own_data_of(rank: int) -> Remedy:
    """For a rank that waits for its data longer than the others."""
    return remedy("own-data-of-rank", rank=rank)


def slow_rank(situation: Situation, where: str | None) -> tuple[Remedy, ...]:
    """Less work on that rank, then a machine that is not shared; `where` names the rank."""
    names = ("find-what-only-one-rank-does", "same-work-on-every-rank", "compare-hardware")
    return tuple(remedy(name, rank=where or "that rank") for name in names)


MAX_WORKERS = 16
PREFETCH = 4


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
    yield remedy(
        "more-workers",
        change,
        workers=workers,
        wanted=wanted,
        why="batches are prepared while the GPU computes" if workers == 0 else "more batches are prepared at once",
        effect="" if gain is None else f"at most {gain:.3g}× the steps per second",
        rests_on="" if gain is None else "the measured wait bounds the gain",
    )


def fewer_workers(situation: Situation, settings: Settings) -> Iterator[Remedy]:
    """A third fewer workers (6 → 4); at most one per core."""
    workers, cores = settings.dataloader_num_workers, situation.usable_cores
    most = workers if cores is None else max(1, cores - 1)
    wanted = min(most, max(1, workers * 2 // 3))
    if wanted < workers:
        yield remedy("fewer-workers", {"dataloader_num_workers": wanted}, workers=workers, wanted=wanted)


def more_prefetch(situation: Situation, settings: Settings) -> Iterator[Remedy]:
    batches = settings.dataloader_prefetch_factor or 2
    if settings.dataloader_num_workers > 0 and batches < PREFETCH:
        yield remedy("more-prefetch", {"dataloader_prefetch_factor": PREFETCH}, batches=batches, wanted=PREFETCH)


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


def contended_cores(situation: Situation, where: str | None) -> tuple[Remedy, ...]:
    """No more threads than the cores that other programs leave, whose number is `where`; or end those programs."""
    if situation.has_gpu is not False or where is None:
        return (remedy("end-others"),)
    return (remedy("fewer-threads", threads=where), remedy("end-others"))


def rarer_checkpoints(situation: Situation, settings: Settings) -> Iterator[Remedy]:
    if settings.save_strategy == "steps":
        steps = settings.save_steps * 2
        yield remedy("rarer-checkpoints", {"save_steps": steps}, before=settings.save_steps, wanted=steps)
