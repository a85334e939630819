"""Puts a prepared launch into the queue, and back into it after a reboot."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Mapping

from msgspec.structs import replace

from tuner_tui.core.file_locks import WITHOUT_LOCKS, lacks_locks
from tuner_tui.core.json_struct import to_json
from tuner_tui.core.numbered_folders import FolderNotFoundError
from tuner_tui.core.redaction import HIDDEN
from tuner_tui.hardware.environment import VISIBLE_DEVICES, visible_gpus
from tuner_tui.hardware.inventory import Gpu, Inventory
from tuner_tui.runs.launch.command import LaunchError
from tuner_tui.runs.launch.prepare import LaunchRequest, PreparedLaunch, prepare
from tuner_tui.runs.launch.start import ProcessSpec, launch, launch_spec
from tuner_tui.runs.queue.queued_run import QueuedRun, QueueError, keep_start, write_queued
from tuner_tui.runs.store.folder import RunFolder, find_run
from tuner_tui.runs.store.record import read_record
from tuner_tui.runs.supervise.training_process import LaunchSpec
from tuner_tui.settings.distributed import best_kind, process_count
from tuner_tui.settings.job import CommandJob


def usable_gpus(inventory: Inventory, gpus: int | None) -> tuple[Gpu, ...]:
    """The GPUs that a queued run may get: visible ones of the best kind, or all where those are too few."""
    usable = tuple(gpu for gpu in visible_gpus(inventory) if gpu.uuid is not None and gpu.uuid.startswith("GPU-"))
    best = best_kind(usable)
    return best if gpus is None or len(best) >= gpus else usable


def idle_inventory(inventory: Inventory, gpus: int | None) -> Inventory:
    """The machine as a queued run on `gpus` GPUs will find it: with the best GPUs, unused."""
    usable = tuple(replace(gpu, memory_used_bytes=None, processes=()) for gpu in usable_gpus(inventory, gpus))
    return replace(inventory, gpus=usable[:gpus], cuda_visible_devices=None)


def queue_need(
    request: LaunchRequest,
    inventory: Inventory,
    gpus: int | None = None,
    after: str | None = None,
    after_success: str | None = None,
) -> QueuedRun:
    """What the launch has to wait for: `gpus` GPUs (None: one for each process), and the end of a run.

    Raises `LaunchError` where it could never start here.
    """
    usable = usable_gpus(inventory, gpus)
    count = min(process_count(request.job, 1), len(usable)) if gpus is None else gpus
    if count > len(usable):
        raise LaunchError(f"{count} GPUs are asked for; the queue can use {len(usable)} here.")
    name = after or after_success
    try:
        before = None if name is None else find_run(name, request.runs_root)
    except FolderNotFoundError as error:
        raise LaunchError(f"--after: {error}") from error
    if before is not None and not before.path.samefile(request.runs_root / before.id):
        raise LaunchError(f"--after: {before.path} is not in {request.runs_root}.")
    return QueuedRun(
        time.time(),
        count,
        tuple(gpu.uuid for gpu in usable if count and gpu.uuid is not None),
        None if before is None else before.id,
        after_success is not None,
    )


def enqueue(prepared: PreparedLaunch, need: QueuedRun) -> RunFolder:
    """Create the run, which waits for `need`. The caller wakes the waiter.

    Raises `LaunchError`.
    """
    root = prepared.request.runs_root
    if not need.gpus:  # whatever the shell says, it will see no GPU
        request = replace(prepared.request, environ={**prepared.request.environ, VISIBLE_DEVICES: ""})
        prepared = replace(prepared, request=request)

    def keep(folder: RunFolder, spec: LaunchSpec) -> None:
        try:
            _keep(folder, prepared.request, spec, need)
        except LaunchError:
            shutil.rmtree(folder.path, ignore_errors=True)
            raise

    if lacks_locks(root):  # two programs could start the same run
        raise LaunchError(f"The queue cannot be changed: {WITHOUT_LOCKS}.")
    return launch(prepared, start=keep)


def waiting_request(folder: RunFolder, environ: Mapping[str, str]) -> LaunchRequest:
    """The launch of a waiting run by its record, with the environment of this shell. Raises `LaunchError` and
    `RecordError`.
    """
    record = read_record(folder)
    job = record.job
    if isinstance(job, CommandJob) and any(HIDDEN in text for text in (*job.command, *job.env.values())):
        raise LaunchError("Its command contains a secret, which was kept in memory only: queue it again.")
    request = LaunchRequest.resume(folder, record, environ)
    parent = None if record.parent is None else RunFolder(folder.path.with_name(record.parent))
    return replace(
        request, parent=parent, from_scratch=parent is not None and not record.resumed_from, root=folder.path.parent
    )


def queue_again(folder: RunFolder, request: LaunchRequest) -> None:
    """Let a run that was waiting wait again, for `request`. Raises `LaunchError`."""
    _keep(folder, request, launch_spec(prepare(request).in_folder(folder)))


def _keep(folder: RunFolder, request: LaunchRequest, spec: LaunchSpec, need: QueuedRun | None = None) -> None:
    """Keep what the start needs, the input of its OOM retries included, and then, if it is new, what it waits for."""
    fallback = ProcessSpec(request.job, request.environ).dump().decode("ascii") if request.job.fallback else None
    try:
        keep_start(folder, json.dumps(to_json(spec)), fallback)
        if need is not None:
            write_queued(folder, need)  # the last: from now on it is waiting
    except (OSError, QueueError) as error:
        raise LaunchError(f"The run cannot be queued: {error}") from error
