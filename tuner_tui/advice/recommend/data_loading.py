"""Recommended loader workers, prefetch and pinned memory, from usable cores, host memory and /dev/shm."""

from __future__ import annotations

from tuner_tui.advice.recommend.draft import RecommendationDraft
from tuner_tui.advice.recommend.target import TrainingTarget
from tuner_tui.advice.thresholds import JUDGEMENT, NOTES_3070, NOTES_3090, NOTES_T4, NOTES_UTILISATION
from tuner_tui.core.units import GIB
from tuner_tui.settings.job import CommandJob
from tuner_tui.settings.rules.data_loading import MAX_WORKERS, SPARE_CORES

MAX_WORKERS_HEAVY, SPARE_CORES_HEAVY = 16, 1
MANY_WORKERS = 8
PREFETCH, PREFETCH_LITTLE = 4, 2
WORKER_BYTES = 1 * GIB
SHORT_HOST_BYTES = 8 * GIB
SMALL_SHM_BYTES = 512 * 2**20
SMALL_SHM_WORKERS = 2
SHM_SHARE = 0.25
BYTES_PER_TOKEN = 3 * 8
"""input_ids, attention_mask, and token_type_ids or labels, 64 bits each."""
SOURCE = f"{NOTES_UTILISATION}, {NOTES_3090}"


def recommend_data_loading(draft: RecommendationDraft) -> None:
    """Recommends workers, prefetch, persistent workers and pinned memory."""
    prefetch = _prefetch(draft)
    _workers(draft, prefetch[0])
    if draft.settings.dataloader_num_workers > 0:
        draft.advise("dataloader_prefetch_factor", *prefetch)
        kept = "workers are not restarted each epoch"
        draft.advise("dataloader_persistent_workers", True, kept, SOURCE)
    _pinning(draft)


def _workers(draft: RecommendationDraft, prefetch: int) -> None:
    target = draft.target
    count, reason, source = workers_by_cores(target)
    for limited, why, its_source in (workers_by_memory(target), workers_by_shm(draft, prefetch)):
        if limited < count:
            count, reason, source = limited, why, its_source
    needed = any(draft.given.get(name) for name in ("dataloader_prefetch_factor", "dataloader_persistent_workers"))
    if count == 0 and needed:
        count, reason, source = 1, f"prefetch and persistent workers need at least one; otherwise 0: {reason}", source
    draft.advise("dataloader_num_workers", count, reason, source)
    _heavy_preprocessing(draft, count)


def workers_by_cores(target: TrainingTarget) -> tuple[int, str, str]:
    """Workers by the notes' rule, from the cores available to one training process; with reason and source."""
    if not target.on_gpu:
        return 0, "on the CPU, the training itself uses all cores", JUDGEMENT
    cores = target.inventory.cpu.usable_cores // target.processes
    count = min(MAX_WORKERS, cores - SPARE_CORES)
    each = f" for each of {target.processes} processes" if target.processes > 1 else ""
    if count < 1:
        return _few_cores(cores, each)
    left = ", two left to the training" if cores < MAX_WORKERS + SPARE_CORES else f": {MAX_WORKERS} feed one training"
    return count, f"{cores} usable cores{each}{left}", NOTES_UTILISATION


def _few_cores(cores: int, each: str) -> tuple[int, str, str]:
    """Workers on fewer cores than the rule needs: on two, one worker still loads while the GPU computes."""
    if cores < 2:
        return 0, f"{cores} usable core{each}: a worker would compete with training", NOTES_UTILISATION
    reason = f"{cores} usable cores{each}: the rule leaves none, but one worker loads while the GPU computes"
    return 1, reason, f"{NOTES_UTILISATION}, {NOTES_T4}"


def workers_by_memory(target: TrainingTarget) -> tuple[int, str, str]:
    """The most workers that host memory allows, at 1 GiB each; with reason and source."""
    usable = target.inventory.memory.usable_bytes
    return usable // WORKER_BYTES // target.processes, f"{usable / GIB:.1f} GiB of memory, 1 GiB per worker", JUDGEMENT


def workers_by_shm(draft: RecommendationDraft, prefetch: int) -> tuple[int, str, str]:
    """The most workers that /dev/shm allows; with reason and source. A full /dev/shm kills workers with a bus error."""
    target, shm = draft.target, draft.target.inventory.shm
    source = "PyTorch, multiprocessing in containers"
    if shm is None or shm.free_bytes >= SMALL_SHM_BYTES:
        return MAX_WORKERS_HEAVY, "", source
    free = f"only {shm.free_bytes / 2**20:.0f} MiB are free in /dev/shm, which workers use to pass batches"
    larger = "docker run --shm-size=8g gives more"
    if isinstance(target.job, CommandJob):
        return 0, f"{free}; the size of this command's batches is unknown ({larger})", source
    settings = draft.settings
    batch_bytes = settings.per_device_train_batch_size * target.replicas * settings.max_length * BYTES_PER_TOKEN
    fitting = int(SHM_SHARE * shm.free_bytes / (batch_bytes * prefetch * target.processes))
    count = min(SMALL_SHM_WORKERS, fitting)
    return count, f"{free}: {prefetch} × {batch_bytes / 2**20:.2f} MiB a worker ({larger})", source


def _heavy_preprocessing(draft: RecommendationDraft, count: int) -> None:
    cores = draft.target.inventory.cpu.usable_cores // draft.target.processes
    heavy = min(MAX_WORKERS_HEAVY, cores - SPARE_CORES_HEAVY)
    if draft.target.on_gpu and heavy > count >= MAX_WORKERS:
        why = "only if preparing a sample is expensive (images, tokenizing on the fly); the data wait shows it"
        draft.reject("dataloader_num_workers", heavy, why, NOTES_UTILISATION)


def _prefetch(draft: RecommendationDraft) -> tuple[int, str, str]:
    target, shm = draft.target, draft.target.inventory.shm
    if target.inventory.memory.usable_bytes < SHORT_HOST_BYTES:
        return PREFETCH_LITTLE, "host memory is short", NOTES_3070
    if shm is not None and shm.free_bytes < SMALL_SHM_BYTES:
        return PREFETCH_LITTLE, "little space in /dev/shm", NOTES_3070
    if draft.settings.dataloader_num_workers > MANY_WORKERS:
        return PREFETCH_LITTLE, "many workers keep enough batches ready", NOTES_3070
    return PREFETCH, "batches are ready before the GPU needs them", SOURCE


def _pinning(draft: RecommendationDraft) -> None:
    if draft.target.on_gpu:
        reason = "page-locked memory: faster copies to the GPU, which overlap with its work"
        draft.advise("dataloader_pin_memory", True, reason, f"{NOTES_T4}, {SOURCE}")
    else:
        draft.advise("dataloader_pin_memory", False, "pinned memory has no effect on the CPU", "PyTorch")
