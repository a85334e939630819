"""Where trials run: on this machine, one at a time or one on each of its free GPUs, or on the workers of a cluster.

One of several trials gets one GPU, and the same part of the cores as each of the others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

from msgspec import Struct, structs
from msgspec.structs import replace

from tuner_tui.hardware.detect import read_inventory
from tuner_tui.hardware.environment import VISIBLE_DEVICES, visible_gpus
from tuner_tui.hardware.interpreter import Interpreter, unused_gpus
from tuner_tui.hardware.inventory import Gpu, Inventory
from tuner_tui.runs.launch.prepare import LaunchRequest
from tuner_tui.runs.queue.turns import GpuOccupancy
from tuner_tui.settings.distributed import best_kind, process_count
from tuner_tui.settings.errors import SettingsError
from tuner_tui.settings.job import Job
from tuner_tui.tuning.trial import Trial
from tuner_tui.tuning.trial_runner import TrialCallbacks, TrialReport, TrialRunner

NO_GPUS = (
    "Parallel trials need GPUs: trials that share the cores and memory bus of one processor slow each other down, so "
    "their figures would not be comparable."
)
NO_GPU_LEFT = "All GPUs or workers that trials ran on are gone."
THREADS_VARIABLE = "OMP_NUM_THREADS"


class GpuLostError(Exception):
    """The GPU or the worker of a trial is gone."""


class TrialGpus(Protocol):
    """Runs trials, at most one at a time on each of `gpus`; several threads call it."""

    @property
    def gpus(self) -> tuple[str | None, ...]:
        """The names of the GPUs or workers; (None,) if trials run one at a time on the whole machine."""

    @property
    def inventory(self) -> Inventory:
        """The machine as each of the trials sees it."""

    def run(self, gpu: str | None, runner: TrialRunner, trial: Trial, callbacks: TrialCallbacks) -> TrialReport:
        """Run a trial to its end. Raises `GpuLostError` if its GPU is gone, `LaunchError`."""


class LocalGpus(Struct, frozen=True):
    """The GPUs of this machine. `inventory` is what each trial sees of it."""

    inventory: Inventory
    gpus: tuple[str | None, ...] = (None,)

    def run(self, gpu: str | None, runner: TrialRunner, trial: Trial, callbacks: TrialCallbacks) -> TrialReport:
        """See `TrialGpus.run`."""
        if gpu is None:
            return runner.run(trial, callbacks)
        bound = bind(runner.base, gpu, self.inventory.cpu.usable_cores)
        report = replace(runner, base=bound).run(trial, callbacks)
        if report.measurement.outcome not in ("measured", "aborted"):
            shown = {gpu.uuid for gpu in read_inventory(Path("/")).gpus}
            if shown and gpu not in shown:  # a driver that does not answer shows none
                raise GpuLostError(gpu)
        return report


def inventory_of_trial(inventory: Inventory, uuids: Sequence[str]) -> Inventory:
    """Return the machine as each of the trials on `uuids` sees it: the GPU with the least memory, and its cores."""
    gpus = [gpu for gpu in inventory.gpus if gpu.uuid in uuids]
    least = min(gpus, key=lambda gpu: (gpu.memory_total_bytes or 0) - (gpu.memory_used_bytes or 0), default=None)
    return machine_of_trial(inventory, least, inventory.cpu.usable_cores / len(uuids))


def machine_of_trial(inventory: Inventory, gpu: Gpu | None, cores: float) -> Inventory:
    """Return the machine as a trial with `cores` cores and one GPU, or none, sees it."""
    cpu = replace(inventory.cpu, quota_cores=max(1.0, min(cores, inventory.cpu.usable_cores)))
    return replace(inventory, gpus=() if gpu is None else (gpu,), cpu=cpu, cuda_visible_devices=None)


def bind(request: LaunchRequest, gpu: str | None, cores: int) -> LaunchRequest:
    """Return the launch on one GPU with threads for `cores` cores; None: on a machine without GPUs."""
    bound = {THREADS_VARIABLE: str(cores)} | ({} if gpu is None else {VISIBLE_DEVICES: gpu})
    job = request.job  # whose own variables may say otherwise
    if job.env:
        job = structs.replace(job, env={**job.env, **{name: bound[name] for name in bound if name in job.env}})
    return replace(request, job=job, environ={**request.environ, **bound})


def free_gpus(
    job: Job, inventory: Inventory, interpreter: Interpreter | None, occupancies: Callable[[], Sequence[GpuOccupancy]]
) -> tuple[str, ...]:
    """Return the UUIDs of the GPUs that trials of `job` may use and that are free by `occupancies`.

    Raises `SettingsError` if there are none, a trial takes several, or the torch of `interpreter` uses none. Where that
    is None, whoever asks for them by name gets them.
    """
    ensure_one_process(job)
    if not inventory.gpus:
        raise SettingsError(NO_GPUS)
    if unused := unused_gpus(inventory, interpreter):
        raise SettingsError(unused)
    return choose_gpus(inventory, occupancies())


def ensure_one_process(job: Job) -> None:
    """Raise `SettingsError` if a trial of `job` takes several GPUs."""
    processes = process_count(job, 1)
    if processes > 1:
        raise SettingsError(f"Parallel trials get one GPU each, but this training starts {processes} processes.")


def choose_gpus(inventory: Inventory, occupancies: Sequence[GpuOccupancy]) -> tuple[str, ...]:
    """Return the UUIDs of the free GPUs of the best kind. Raises `SettingsError` if there are none."""
    free = {occupancy.uuid for occupancy in occupancies if occupancy.holder is None}
    gpus = tuple(gpu for gpu in visible_gpus(inventory) if gpu.uuid in free)
    if not gpus:
        holders = [f"{gpu.label}: {gpu.holder}" for gpu in occupancies if gpu.holder is not None]
        raise SettingsError(f"No GPU is free for trials ({'; '.join(holders) or 'none is visible here'}).")
    return tuple(gpu.uuid for gpu in best_kind(gpus) if gpu.uuid is not None)
