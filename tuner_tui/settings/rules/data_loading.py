"""Rules on data loading and batch sizes."""

from __future__ import annotations

from collections.abc import Iterator

from tuner_tui.settings.distributed import process_count
from tuner_tui.settings.fields import Value
from tuner_tui.settings.job import BuiltinJob
from tuner_tui.settings.model import Settings
from tuner_tui.settings.rules.problem import Problem, RuleContext

MAX_WORKERS, SPARE_CORES = 8, 2
"""Loader workers of one training: at most 8, and two cores are left to the training itself (field notes 004)."""


def workers(settings: Settings, context: RuleContext) -> Iterator[Problem]:
    """Options that need workers with none set, and more workers than cores."""
    if settings.dataloader_num_workers == 0:
        if settings.dataloader_prefetch_factor is not None:
            sentence = "Prefetch needs at least one worker: DataLoader raises with 0. Leave it empty, or add workers."
            fix = {"dataloader_prefetch_factor": None}
            yield Problem(("dataloader_prefetch_factor", "dataloader_num_workers"), "error", sentence, fix)
        if settings.dataloader_persistent_workers:
            sentence = (
                "Persistent workers need at least one worker: DataLoader raises with 0. Turn them off, or add workers."
            )
            off = {"dataloader_persistent_workers": False}
            yield Problem(("dataloader_persistent_workers", "dataloader_num_workers"), "error", sentence, off)
    elif context.cores is not None and settings.dataloader_num_workers > context.cores:
        many = f"{settings.dataloader_num_workers} workers on {_cores(context.cores)}"
        sentence = f"{many} compete with each other and with the training."
        fewer: dict[str, Value] = {"dataloader_num_workers": max(1, min(MAX_WORKERS, context.cores - SPARE_CORES))}
        yield Problem(("dataloader_num_workers",), "warning", sentence, fewer)


def _cores(count: int) -> str:
    return "1 usable core" if count == 1 else f"{count} usable cores"


def batch(settings: Settings, context: RuleContext) -> Iterator[Problem]:
    """A batch larger than the data."""
    if not isinstance(context.job, BuiltinJob) or context.job.max_samples is None:
        return
    samples, effective = context.job.max_samples, settings.effective_batch(process_count(context.job))
    if effective > samples:
        sentence = f"The effective batch of {effective:,} is larger than the job's {samples:,} samples."
        yield Problem(("gradient_accumulation_steps", "per_device_train_batch_size"), "warning", sentence)


RULES = (workers, batch)
