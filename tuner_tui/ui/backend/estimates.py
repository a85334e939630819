"""Estimates memory and time of the settings shown: at once by the closed form, later by a trace or by earlier runs."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from tuner_tui.core.units import format_size
from tuner_tui.ui.backend.records import BackendError, DataOutlook, EstimateRequest, MemoryOutlook, PeakMemory

if TYPE_CHECKING:
    from tuner_tui.advice.recommend.duration_estimate import DurationEstimate, EarlierRun
    from tuner_tui.advice.recommend.target import TrainingTarget
    from tuner_tui.advice.recommend.workload import JobMemoryEstimator
    from tuner_tui.memory.calibration import MeasuredRun
    from tuner_tui.memory.device import Device
    from tuner_tui.memory.estimate import MemoryEstimate
    from tuner_tui.settings.job import BuiltinJob, CommandJob, Job
    from tuner_tui.settings.model import Value

UNKNOWN_FOR_COMMAND = "unknown for a command until a run measures it"
UNMEASURED_IMPORTS = "not known yet: import memory is not measured"
MICRO = "per_device_train_batch_size"


class MemoryEstimator:
    """Estimates for one thread.

    It remembers earlier runs of the job, models that cannot be traced, and data that cannot be read.
    """

    def __init__(self) -> None:
        self._untraceable: set[tuple[str, str]] = set()
        self._unreadable: set[str] = set()
        self._job: Job | None = None
        self._runs: tuple[MeasuredRun, ...] = ()
        self._timed: tuple[EarlierRun, ...] = ()

    def quick(self, request: EstimateRequest) -> MemoryOutlook:
        """Return the estimate known without a trace. For a new job it reads what earlier runs measured."""
        if request.job != self._job:
            self._read_runs(request.job)
        return replace(self._memory(request), duration=self._duration(request), data=self._data(request))

    def refined(self, request: EstimateRequest) -> MemoryOutlook:
        """Return the estimate by the newest runs, and by a trace where that is worth it. It may take 30 s."""
        self._read_runs(request.job)
        found = replace(self._memory(request, refine=True), duration=self._duration(request))
        return replace(found, data=self._data(request, measure=not request.training))

    def parts(self, request: EstimateRequest) -> PeakMemory:
        """Return where the memory of the peak goes, by a trace that takes seconds. Raises `BackendError`."""
        from tuner_tui.advice.recommend.memory_breakdown import breakdown_rows, memory_remedies
        from tuner_tui.memory.trace import TraceError, trace_breakdown

        modelled = _modelled(request)
        if modelled is None:
            raise BackendError("The command does not name its model, so its memory cannot be traced.")
        request, job = modelled
        settings = request.resolved.settings
        estimator, _, _ = self._estimator(request, job)
        try:
            traced = trace_breakdown(request.interpreter, job, settings, estimator.device)
        except TraceError as error:
            raise BackendError(str(error)) from error
        remedies = memory_remedies(estimator, settings, traced.by(lambda part: part.kind))
        by_kind, by_module = (tuple(breakdown_rows(traced, remedies, by_module)) for by_module in (False, True))
        title = f"{job.model} · micro batch {settings.per_device_train_batch_size}"
        return PeakMemory(title, traced.phase, traced.total, by_kind, by_module)

    def _duration(self, request: EstimateRequest) -> DurationEstimate | None:
        from tuner_tui.advice.recommend.duration_estimate import estimate_duration

        target = _target(request)[0]
        cards = [card.name for card in target.cards]
        return estimate_duration(request.job, request.resolved.settings, target.replicas, self._timed, cards)

    def _data(self, request: EstimateRequest, measure: bool = False) -> DataOutlook | None:
        """The lengths of the job's samples if they are cached; `measure` may take seconds."""
        from tuner_tui.advice.recommend.sample_lengths import measure_lengths
        from tuner_tui.memory.trace import TraceError

        job, settings = request.job, request.resolved.settings
        if job.data is None or job.data in self._unreadable:
            return None
        try:
            found = measure_lengths(job, Path(request.interpreter.path), cached_only=not measure)
        except TraceError:
            self._unreadable.add(job.data)
            return None
        if found is None:
            return None
        return DataOutlook(found, found.cut_share(settings.max_length), found.padding_share(settings))

    def _memory(self, request: EstimateRequest, refine: bool = False) -> MemoryOutlook:
        from tuner_tui.memory.trace import TraceError

        modelled = _modelled(request)
        if request.job.kind == "command":
            outlook = self._from_runs(request, request.job)
            if outlook.estimate is not None or modelled is None:
                return outlook
        assert modelled is not None  # a built-in job has a model
        request, job = modelled
        # Two stages: the closed form is a calculation and answers at once; a trace builds the model in another process,
        # takes up to 30 s, and is right for models that the closed form does not know.
        may_trace = refine and self._may_trace(request, job)
        estimator, target, against = self._estimator(request, job, measure=may_trace)
        settings = request.resolved.settings
        estimate = estimator.at_once(settings)
        if may_trace:
            try:
                estimate = estimator.traced(settings)
            except TraceError:
                self._untraceable.add((job.model, job.task))
        return _outlook(estimate, target, against, estimator)

    def _may_trace(self, request: EstimateRequest, job: BuiltinJob) -> bool:
        """Trace only settings that the user works on, and only while the CPU is idle."""
        idle = os.getloadavg()[0] < request.inventory.cpu.usable_cores
        return request.worked_on and idle and (job.model, job.task) not in self._untraceable

    def _from_runs(self, request: EstimateRequest, job: CommandJob) -> MemoryOutlook:
        """The memory of a command is known from its own runs only."""
        from tuner_tui.memory.calibration import UnmeasuredBatch, estimate_from_runs

        target, against = _target(request)
        settings = request.resolved.settings
        # A command has a micro batch of its own, which is not known. The one of the form counts only where the user has
        # chosen it and the command gets it; otherwise the estimate is for the batch of the last run.
        chosen = MICRO in request.resolved.given and job.apply != "none"
        batch = settings.per_device_train_batch_size if chosen else None
        found = estimate_from_runs(self._runs, settings, _device(request, target, against), batch)
        if found is None:
            return MemoryOutlook(unknown=UNKNOWN_FOR_COMMAND)
        if isinstance(found, UnmeasuredBatch):
            return MemoryOutlook(unknown=f"at micro batch {found.batch}: {format_size(found.peak_bytes)} ({found.run})")
        return MemoryOutlook(found.estimate, target.on_gpu, against, "", True, found.largest)

    def _read_runs(self, job: Job) -> None:
        from tuner_tui.advice.recommend.duration_estimate import earlier_runs
        from tuner_tui.runs.read.measured_memory import measured_runs
        from tuner_tui.runs.store.folder import runs_dir

        self._job, self._runs = job, measured_runs(job, runs_dir())
        self._timed = earlier_runs(job, runs_dir())

    def _estimator(
        self, request: EstimateRequest, job: BuiltinJob, measure: bool = False
    ) -> tuple[JobMemoryEstimator, TrainingTarget, str]:
        from tuner_tui.advice.recommend.workload import JobMemoryEstimator

        target, against = _target(request)
        device = _device(request, target, against, measure)
        estimator = JobMemoryEstimator(job, device, target.processes, request.interpreter, self._runs)
        return estimator, target, against


def _modelled(request: EstimateRequest) -> tuple[EstimateRequest, BuiltinJob] | None:
    """The request with the settings that a command's own files give, and the job with its model; None if unknown."""
    from tuner_tui.settings.job import modelled_job

    job, modelled = request.job, modelled_job(request.job)
    if modelled is None or job.kind != "command":
        return None if modelled is None else (request, modelled)
    own = _own_settings(job.command, job.cwd or "")
    return replace(request, resolved=request.resolved.with_own(own)), modelled


@lru_cache(maxsize=8)
def _own_settings(command: tuple[str, ...], folder: str) -> Mapping[str, Value]:
    from tuner_tui.settings.command_training import read_command

    return read_command(command, Path(folder)).settings


def _target(request: EstimateRequest) -> tuple[TrainingTarget, str]:
    """Return the training target, and the name of its capacity where it is not the memory of the GPU."""
    from tuner_tui.advice.recommend.target import limit_gpu_memory, target_of

    limit, machine = request.memory_limit_bytes, request.inventory
    target = target_of(limit_gpu_memory(machine, limit), request.interpreter, request.job)
    if target.on_gpu:
        return target, "" if limit is None or target.memory_bytes != limit else "limit"
    if limit is None or limit >= machine.memory.usable_bytes:
        return target, "host memory"
    return replace(target, inventory=replace(machine, memory=replace(machine.memory, limit_bytes=limit))), "limit"


def _device(request: EstimateRequest, target: TrainingTarget, against: str, measure: bool = False) -> Device:
    """Return the device that trains.

    A memory limit without a GPU includes what importing the libraries takes; `measure` may start a process for that.
    """
    device = target.device
    if device.on_gpu or against != "limit" or device.capacity_bytes is None:
        return device
    from tuner_tui.advice.recommend.workload import limit_device_memory
    from tuner_tui.memory.trace import cached_import_footprint, import_footprint

    read = import_footprint if measure else cached_import_footprint
    footprint = read(request.interpreter, request.inventory.cpu.usable_cores)
    return limit_device_memory(device, device.capacity_bytes, footprint)


def _outlook(
    estimate: MemoryEstimate | None, target: TrainingTarget, against: str, estimator: JobMemoryEstimator
) -> MemoryOutlook:
    device = estimator.device
    if estimate is None:
        return MemoryOutlook(unknown=f"not known yet for {estimator.job.model}")
    if device.limited and device.import_footprint is None and estimate.verdict != "fits":
        # The limit counts what the imports reserve, a gigabyte and more: a guess of it must not say "does not fit".
        return MemoryOutlook(unknown=UNMEASURED_IMPORTS)
    return MemoryOutlook(estimate, target.on_gpu, against)
