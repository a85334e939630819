"""The memory of the settings shown, as the real program works it out. Imports of weight stand inside the calls."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING

from tuner_tui.ui.estimating import EstimateRequest, Outlook
from tuner_tui.ui.format import size

if TYPE_CHECKING:
    from tuner_tui.advice.recommend.memory_estimator import JobMemoryEstimator
    from tuner_tui.advice.recommend.target import TrainingTarget
    from tuner_tui.memory.calibration import MeasuredRun
    from tuner_tui.memory.device import Device
    from tuner_tui.memory.estimate import MemoryEstimate
    from tuner_tui.settings.job import BuiltinJob, CommandJob, Job

OF_A_COMMAND = "not known for a command: its run measures it"
MICRO = "per_device_train_batch_size"


class EstimatingHere:
    """Answers at once by what is remembered and the closed form; and traces what was not traced. For one thread.

    `memory_limit_bytes` is what a training may take at most, where its preset or run says nothing of it.
    """

    def __init__(self, memory_limit_bytes: int | None) -> None:
        self._limit_bytes = memory_limit_bytes
        self._untraceable: set[tuple[str, str]] = set()
        self._job: Job | None = None
        self._runs: tuple[MeasuredRun, ...] = ()

    def quick(self, request: EstimateRequest) -> Outlook:
        """The outlook for the settings asked for; for another job than before it reads the ends of earlier runs."""
        job = request.job
        if job != self._job:
            self._read_runs(job)
        if job.kind == "command":
            return self._measured(request, job)
        found, target, against = self._estimating(request, job)
        return _outlook(found.at_once(request.settings), target, against, job)

    def refined(self, request: EstimateRequest) -> Outlook | None:
        """The outlook by the newest runs, and traced where that is worth it; may take half a minute."""
        from tuner_tui.memory.trace import TraceError

        job = request.job
        self._read_runs(job)
        if job.kind == "command":
            return self._measured(request, job)
        tracing = self._may_trace(request, job)
        found, target, against = self._estimating(request, job, tracing)
        best = found.at_once(request.settings)
        if tracing:
            try:
                best = found.traced(request.settings)
            except TraceError:
                self._untraceable.add((job.model, job.task))
        return _outlook(best, target, against, job)

    def _may_trace(self, request: EstimateRequest, job: BuiltinJob) -> bool:
        """Whether somebody works on these settings, and the processors have nothing better to do."""
        idle = os.getloadavg()[0] < request.inventory.cpu.usable_cores
        return request.worked_on and idle and (job.model, job.task) not in self._untraceable

    def _measured(self, request: EstimateRequest, job: CommandJob) -> Outlook:
        """What the command's own runs took; those are all that is known of it."""
        from tuner_tui.memory.calibration import UnmeasuredBatch, estimate_from_runs

        target, against = self._target(request)
        asked = request.settings.per_device_train_batch_size
        batch = asked if MICRO in request.chosen and job.apply != "none" else None
        found = estimate_from_runs(self._runs, request.settings, _device(request, target, against), batch)
        if found is None:
            return Outlook(unknown=OF_A_COMMAND)
        if isinstance(found, UnmeasuredBatch):
            return Outlook(unknown=f"at micro batch {found.batch}: {size(found.peak_bytes)} ({found.run})")
        return Outlook(found.estimate, target.on_gpu, against, "", True, found.largest)

    def _read_runs(self, job: Job) -> None:
        from tuner_tui.runs.read.measured_memory import measured_runs
        from tuner_tui.runs.store.folder import runs_dir

        self._job, self._runs = job, measured_runs(job, runs_dir())

    def _estimating(
        self, request: EstimateRequest, job: BuiltinJob, asking: bool = False
    ) -> tuple[JobMemoryEstimator, TrainingTarget, str]:
        """What is known of the job here, what it would have, and whose memory that is."""
        from tuner_tui.advice.recommend.memory_estimator import JobMemoryEstimator

        target, against = self._target(request)
        device = _device(request, target, against, asking)
        found = JobMemoryEstimator(job, device, target.processes, request.interpreter, self._runs)
        return found, target, against

    def _target(self, request: EstimateRequest) -> tuple[TrainingTarget, str]:
        from tuner_tui.advice.recommend.target import limit_gpu_memory, target_of

        limit, box = request.memory_limit_bytes or self._limit_bytes, request.inventory
        target = target_of(limit_gpu_memory(box, limit), request.interpreter, request.job)
        if target.on_gpu:
            return target, "" if limit is None or target.memory_bytes != limit else "limit"
        if limit is None or limit >= box.memory.usable_bytes:
            return target, "host memory"
        return replace(target, inventory=replace(box, memory=replace(box.memory, limit_bytes=limit))), "limit"


def _device(request: EstimateRequest, target: TrainingTarget, against: str, asking: bool = False) -> Device:
    """What the training computes on. A limit without a GPU counts what its Python reserves: `asking` takes seconds."""
    device = target.device
    if device.on_gpu or against != "limit" or device.capacity_bytes is None:
        return device
    from tuner_tui.advice.recommend.memory_estimator import limit_device_memory
    from tuner_tui.memory.import_footprint import cached_import_footprint, import_footprint

    measured = (import_footprint if asking else cached_import_footprint)(
        request.interpreter, request.inventory.cpu.usable_cores
    )
    return limit_device_memory(device, device.capacity_bytes, measured)


def _outlook(found: MemoryEstimate | None, target: TrainingTarget, against: str, job: BuiltinJob) -> Outlook:
    if found is None:
        return Outlook(unknown=f"not known for {job.model} yet")
    return Outlook(found, target.on_gpu, against)
