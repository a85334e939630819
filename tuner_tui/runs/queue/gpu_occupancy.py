"""The GPUs of this machine as the queue sees them: free, or who has them, by the driver and by the live runs."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from contextlib import closing, suppress
from pathlib import Path

from msgspec import Struct

from tuner_tui.core.file_locks import is_locked
from tuner_tui.core.ownership import user_name
from tuner_tui.core.procfs import ProcessId, descendants_in, started_with, this_machine
from tuner_tui.hardware.environment import VISIBLE_DEVICES, visible_indexes
from tuner_tui.hardware.inventory import Gpu, GpuProcess
from tuner_tui.hardware.sample import GpuSample, Sample
from tuner_tui.hardware.sampler import open_sampler
from tuner_tui.runs.queue.queued_run import QueuedRun, QueueError, read_queued
from tuner_tui.runs.queue.turns import Applicant, GpuOccupancy, take_turns
from tuner_tui.runs.store.folder import RunFolder, list_runs, read_supervisor_state
from tuner_tui.runs.supervise.run_processes import ProcessSnapshot, find_processes

READY_TIMEOUT_S = 15.0
"""Seconds to wait for the first answer of the GPUs; a sleeping one needs a second or two."""
SMALL_PROCESS_BYTES = 500e6
"""A process that holds less is a desktop's; one that trains holds more."""
DRIVER_BYTES = 2**30
"""More used memory than this, of no process that the driver lists, is that of a process in another container."""
ARRIVAL_S = 600.0
"""Seconds in which a run that was started directly may still come to a GPU: models are loaded on the processor."""


class ActiveRun(Struct, frozen=True):
    """A run that may hold GPUs: those that the queue gave it (`gpu_uuids`), or any that it can see (None)."""

    id: str
    gpu_uuids: tuple[str, ...] | None = None
    training: ProcessId | None = None
    started_t: float = math.inf


def read_active(folder: RunFolder, snapshot: ProcessSnapshot) -> ActiveRun | None:
    """The run in `folder` if it is alive: by its locks, or by processes that outlived its supervisor. Raises
    `OSError`."""
    state = read_supervisor_state(folder.state)
    if not is_locked(folder.lock) and not is_locked(folder.fallback_lock):
        if state is None or state.training is None or state.outcome is not None or state.machine != this_machine():
            return None
        processes = find_processes(folder.path, state.training, snapshot=snapshot, recorded=state.apart)
        if not (processes.members or processes.detached):
            return None
    try:
        queued = read_queued(folder)
    except QueueError:  # it may hold any GPU that it can see
        queued = None
    gpu_uuids = None if queued is None else queued.gpu_uuids or ()
    if state is None:
        return ActiveRun(folder.id, gpu_uuids)
    return ActiveRun(folder.id, gpu_uuids, state.training, state.started_t)


def occupancies_of(
    described: Sequence[Gpu | None], sample: Sample, runs: Sequence[ActiveRun], snapshot: ProcessSnapshot
) -> list[GpuOccupancy]:
    """All GPUs that a run can be bound to, with who has them by a sample."""
    by_index = {gpu.index: gpu for gpu in described if gpu is not None and gpu.uuid is not None}
    pairs = [(by_index[figures.index], figures) for figures in sample.gpus if figures.index in by_index]
    gpus = [gpu for gpu, _ in pairs]
    pids = {process.pid for _, figures in pairs for process in figures.processes or ()}
    held: dict[str, str] = {}
    for run in runs:
        uuids = run.gpu_uuids if run.gpu_uuids is not None else _arriving_on(run, gpus, pids, sample.time_s, snapshot)
        held |= dict.fromkeys(uuids, f"run {run.id}")
    return [
        GpuOccupancy(gpu.uuid, f"GPU {gpu.index}", held.get(gpu.uuid) or _holder(gpu, figures))
        for gpu, figures in pairs
        if gpu.uuid is not None
    ]


def _arriving_on(
    run: ActiveRun, gpus: Sequence[Gpu], busy_pids: set[int], now: float, snapshot: ProcessSnapshot
) -> tuple[str, ...]:
    """The GPUs that a run which was started directly may still come to; none once the driver shows it on one."""
    pid = 0 if run.training is None else run.training.pid
    pids = {pid, *(process.pid for process in descendants_in(snapshot.processes, [pid]))}
    if now - run.started_t > ARRIVAL_S or pids & busy_pids:
        return ()
    shown = visible_indexes(gpus, started_with(pid).get(VISIBLE_DEVICES))
    return tuple(gpu.uuid for gpu in gpus if gpu.index in shown and gpu.uuid is not None)


def _holder(gpu: Gpu, figures: GpuSample) -> str | None:
    """Who has the GPU by the driver, or why it cannot be used."""
    if figures.lost or figures.age_s is not None:
        return "lost" if figures.lost else "it does not answer"
    if gpu.mig:
        return "it is in MIG mode"
    processes = figures.processes or ()
    large = [
        process for process in processes if process.memory_bytes is None or process.memory_bytes >= SMALL_PROCESS_BYTES
    ]
    if large:
        return ", ".join(map(_name, large))
    unlisted = (figures.memory_used_bytes or 0) - sum(process.memory_bytes or 0 for process in processes)
    return "processes that are not visible from here" if unlisted >= DRIVER_BYTES else None


def _name(process: GpuProcess) -> str:
    command = process.command or f"process {process.pid}"
    return command if process.user in (None, user_name(os.getuid())) else f"{process.user}: {command}"


def occupancies_by(root: Path, gpus: Sequence[Gpu | None], sample: Sample) -> list[GpuOccupancy]:
    """All GPUs of this machine by a sample of them; `root` is the folder of all runs."""
    snapshot = ProcessSnapshot()
    return occupancies_of(gpus, sample, _read_all_active(root, snapshot), snapshot)


def occupancies_now(root: Path) -> list[GpuOccupancy]:
    """All GPUs of this machine, sampled for it: waits for a driver that does not answer."""
    with closing(open_sampler(next(folder for folder in (root, *root.parents) if folder.exists()))) as sampler:
        sampler.wait_ready(READY_TIMEOUT_S)
        return occupancies_by(root, sampler.gpus(), sampler.sample())


def shortage_by(root: Path, need: QueuedRun, gpus: Sequence[Gpu], sample: Sample | None) -> str:
    """Why a run with this `need` would wait by a sample of all `gpus` for those that train in `root`.

    Empty if it would not, none trains, or nothing was sampled yet.
    """
    snapshot = ProcessSnapshot()
    runs = [] if sample is None else _read_all_active(root, snapshot)
    if not runs or sample is None:
        return ""
    occupancies = occupancies_of(gpus, sample, runs, snapshot)
    [turn] = take_turns([Applicant("", need.gpus, need.allowed)], occupancies, processor_user(runs, occupancies))
    return turn.reason


def processor_user(runs: Sequence[ActiveRun], occupancies: Sequence[GpuOccupancy]) -> str | None:
    """The first of the live runs that trains on the processor."""
    return next((f"run {run.id}" for run in runs if run.gpu_uuids == () or not occupancies), None)


def _read_all_active(root: Path, snapshot: ProcessSnapshot) -> list[ActiveRun]:
    runs = []
    for folder in list_runs(root):
        with suppress(OSError):
            runs.append(read_active(folder, snapshot))
    return [run for run in runs if run is not None]
