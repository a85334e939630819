"""What one of several trials gets of the machine: one card, and the same part of the cores for each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from tuner_tui.hardware.environment import CARDS_VARIABLE
from tuner_tui.hardware.inventory import Gpu, Inventory
from tuner_tui.runs.launch.prepare import LaunchRequest
from tuner_tui.settings.job import CommandJob

THREADS_VARIABLE = "OMP_NUM_THREADS"


def inventory_of_trial(inventory: Inventory, cards: Sequence[str]) -> Inventory:
    """Return the machine as each of the trials on `cards` sees it: the card with the least memory, and its cores."""
    found = [gpu for gpu in inventory.gpus if gpu.uuid in cards]
    least = min(found, key=lambda gpu: (gpu.memory_total_bytes or 0) - (gpu.memory_used_bytes or 0), default=None)
    return share_of(inventory, least, inventory.cpu.usable_cores / len(cards))


def share_of(inventory: Inventory, gpu: Gpu | None, cores: float) -> Inventory:
    """Return the machine as a trial on one GPU, or on none, sees it that may use so many cores."""
    cpu = replace(inventory.cpu, quota_cores=max(1.0, min(cores, inventory.cpu.usable_cores)))
    return replace(inventory, gpus=() if gpu is None else (gpu,), cpu=cpu, cuda_visible_devices=None)


def bind(request: LaunchRequest, card: str | None, cores: int) -> LaunchRequest:
    """Return the launch on one card with threads for `cores` cores; None: on a machine without cards."""
    return with_environment(request, {THREADS_VARIABLE: str(cores)} | ({} if card is None else {CARDS_VARIABLE: card}))


def with_environment(request: LaunchRequest, bound: Mapping[str, str]) -> LaunchRequest:
    """Return the launch with the variables `bound`, whatever the environment of the job says."""
    job = request.job
    if isinstance(job, CommandJob) and job.env:
        job = job.model_copy(update={"env": {**job.env, **{name: bound[name] for name in bound if name in job.env}}})
    return replace(request, job=job, environ={**request.environ, **bound})
