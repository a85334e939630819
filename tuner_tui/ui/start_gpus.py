"""The GPUs that a start takes: free ones where others are in use, and as many as the user chose."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from msgspec.structs import replace

from tuner_tui.advice.recommend.target import select_gpus, target_of
from tuner_tui.advice.thresholds import OTHER_PROCESS_BYTES
from tuner_tui.hardware.environment import VISIBLE_DEVICES, visible_gpus
from tuner_tui.hardware.interpreter import unused_gpus
from tuner_tui.hardware.sample import Sample
from tuner_tui.settings.distributed import process_count
from tuner_tui.settings.job import CommandJob
from tuner_tui.settings.model import Origin, OriginKind, Value
from tuner_tui.ui.state import UiState
from tuner_tui.view.gpu_rows import format_indices
from tuner_tui.view.settings_form import KNOBS

NONE = "none"
APART = " Each trains by itself unless the script connects them: init_process_group, or use_cpu of a Trainer."


class GpuChoice(NamedTuple):
    """The state of a start with its GPUs, which of them it takes in words, and how many there are to choose from.

    `batch` says what becomes of the effective batch on another number of GPUs, `change` is what keeps it.
    """

    state: UiState
    taken: str = ""
    most: int = 1
    batch: str = ""
    change: Mapping[str, Value] = MappingProxyType({})

    def with_batch_of(self, before: UiState) -> GpuChoice:
        """Keep the effective batch of `before` by another accumulation, where the job takes one and it divides."""
        first, current = before.current, self.state.current
        spread, replicas, unknown = before.data_parallel, self.state.data_parallel.replicas, self.state.unknown_values
        if first is None or current is None or spread.replicas == replicas:
            return self
        if KNOBS[0] in unknown:
            ratio = replicas / spread.replicas
            return self._replace(batch=f"{ratio:g} × as large as before, unless the script divides it")
        wanted, settings = first.resolved.settings.effective_batch(spread.replicas), current.resolved.settings
        accumulation, remainder = divmod(wanted, settings.per_device_train_batch_size * replicas)
        if (accumulation, remainder) == (settings.gradient_accumulation_steps, 0):
            return self
        if remainder or KNOBS[1] in unknown or getattr(current.job, "apply", "") == "none" or spread.perhaps > 1:
            return self._replace(batch=f"before {wanted}: the learning rate may need another value")
        change = {KNOBS[1]: accumulation}
        batch = f"as before: accumulation {settings.gradient_accumulation_steps} → {accumulation}"
        state = self.state.with_changes(change, Origin(OriginKind.EDITED, f"on {replicas} GPUs"))
        return self._replace(state=state, batch=batch, change=change)


def startable_gpus(state: UiState) -> int:
    """Return the number of GPUs that processes can be started on; 0 where the command starts its own."""
    if state.loaded is None or state.inventory is None:
        return 0
    job, many = state.loaded.job, len(visible_gpus(state.inventory))
    return 0 if job.launcher == "plain" and process_count(job, many, state.accelerate) > 1 else many


def processes_text(state: UiState) -> str:
    """Return `2 processes, one on each GPU`."""
    spread = state.data_parallel
    many = f"{spread.processes} process{'es' * (spread.processes > 1)}"
    if gpus_of_start(state, None).taken.startswith(NONE):
        return f"{many} on the CPU"
    return (
        f"{many}, one on each GPU"
        if spread.processes > 1
        else f"{many} on {spread.gpu_count or 1} GPU{'s' * (spread.gpu_count > 1)}"
    )


def gpus_of_start(state: UiState, sample: Sample | None, count: int | None = None) -> GpuChoice:
    """Return the start on `count` GPUs, or on as many as its job takes: on free ones where others are in use.

    Its words are `2, 3 · in use: 0, 1`; none for the only GPU while it is free.
    """
    loaded, editing, inventory = state.loaded, state.editing, state.inventory
    if loaded is None or editing is None or inventory is None or not inventory.gpus:
        return GpuChoice(state)
    job, visible = loaded.job, visible_gpus(inventory)
    target = target_of(inventory, state.interpreter, job, state.accelerate)
    if not target.trained_with(editing.current.settings).gpus:
        unused = unused_gpus(inventory, state.interpreter) or f"{target.gpu_label}."
        processes = f", {job.processes} processes on the CPU" if job.processes > 1 else ""
        unused += APART if processes and isinstance(job, CommandJob) else ""
        return GpuChoice(state, f"{NONE}{processes}: {unused}")
    most = startable_gpus(state) or 1
    if count is not None and count <= most:
        launcher = "torchrun" if job.launcher == "plain" and count > 1 else job.launcher
        job = replace(job, launcher=launcher, processes=count)
        state = replace(state, loaded=replace(loaded, job=job))
        target = target_of(inventory, state.interpreter, job, state.accelerate)
    taken = target.trained_with(editing.current.settings).gpus
    figures = () if sample is None else sample.gpus
    used = {gpu.index: sys.maxsize if gpu.lost else gpu.memory_used_bytes or 0 for gpu in figures}
    busy = [index for index, size in sorted(used.items()) if size > OTHER_PROCESS_BYTES]
    free = sum(gpu.index not in busy for gpu in visible)
    chosen, is_busy = taken, any(gpu.index in busy for gpu in taken)
    can_choose = VISIBLE_DEVICES not in job.env and not any(gpu.mig for gpu in visible)
    if can_choose and (count == 1 or is_busy):
        # Processes have to stay as many; one process that may use all of its GPUs gets the free ones.
        number = count or (len(taken) if target.processes > 1 or not free else min(len(taken), free))
        by_room = sorted(visible, key=lambda gpu: used[gpu.index] if gpu.index in busy else 0)
        chosen = tuple(sorted(by_room[:number], key=lambda gpu: gpu.index))
    if chosen != taken:
        sizes = {gpu.index: gpu.memory_used_bytes for gpu in figures}
        now = (replace(gpu, memory_used_bytes=sizes.get(gpu.index)) for gpu in inventory.gpus)
        named = select_gpus(chosen).partition("=")[2]
        machine = replace(inventory, gpus=tuple(now), cuda_visible_devices=named)
        state = replace(state, loaded=replace(loaded, job=job, visible_gpus=named), inventory=machine)
    words = "GPU " * (len(chosen) == 1) + format_indices([gpu.index for gpu in chosen])
    in_use = f" · in use: {format_indices(busy)}" if is_busy else ""
    return GpuChoice(state, words + in_use if is_busy or len(inventory.gpus) > 1 else "", most)
