"""The memory estimate: of one job on one device, and of the settings that the screen shows.

The closed form answers at once. A trace takes seconds, and is right for models that the closed form does not know.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from threading import Lock
from time import monotonic
from typing import NamedTuple, Self, get_args

from msgspec import Struct
from msgspec.structs import replace

from tuner_tui.advice.recommend.duration_estimate import (
    UNMEASURED,
    DurationEstimate,
    EarlierRun,
    earlier_runs,
    estimate_duration,
)
from tuner_tui.advice.recommend.memory_breakdown import BreakdownRow, MemoryRemedy, breakdown_rows, memory_remedies
from tuner_tui.advice.recommend.sample_lengths import SampleLengths, measure_lengths, with_measured_length
from tuner_tui.advice.recommend.target import (
    OLDER_TRANSFORMERS,
    TrainingTarget,
    limit_gpu_memory,
    other_processes_bytes,
    target_of,
    training_code_of,
)
from tuner_tui.core.units import format_size
from tuner_tui.hardware.interpreter import Interpreter
from tuner_tui.hardware.inventory import Inventory
from tuner_tui.inspection.peak_memory import MemoryBreakdown
from tuner_tui.memory.calibration import MeasuredRun, UnmeasuredBatch, calibrate, estimate_from_runs
from tuner_tui.memory.device import Device, ImportFootprint
from tuner_tui.memory.estimate import MemoryEstimate, estimate
from tuner_tui.memory.job_task import download_hint, modelled_job, trains_other_task, unknown_task
from tuner_tui.memory.known_shapes import known_shape
from tuner_tui.memory.model_config import read_config
from tuner_tui.memory.trace import (
    TIMEOUT_S,
    MemoryTrace,
    TraceError,
    cached_trace,
    estimate_from_trace,
    import_footprint,
    trace_breakdown,
    trace_memory,
)
from tuner_tui.memory.training_code import BUILT_IN, TrainingCode, training_code
from tuner_tui.runs.read.measured_memory import measured_runs
from tuner_tui.runs.store.folder import runs_dir
from tuner_tui.settings.command_training import own_settings, uses_pytorch
from tuner_tui.settings.distributed import Sharding
from tuner_tui.settings.job import BuiltinJob, CommandJob, Job, Task, named_model
from tuner_tui.settings.model import Resolved, Settings

UNNAMED_MODEL = "An estimate needs the model and task of the command: name them (e on the screen, --model and --task)."
OTHER_TRAINING = (
    f"The memory model does not know this training: it covers {', '.join(get_args(Task))} with models of "
    "Transformers in PyTorch. Run it for a few steps to measure its memory."
)
UNMEASURED_IMPORTS = "unknown until the memory of importing torch is measured"
MICRO = "per_device_train_batch_size"


def limit_device_memory(device: Device, limit_bytes: int, import_footprint: ImportFootprint | None) -> Device:
    """The CPU device under `--memory-limit`, which limits private memory to `limit_bytes`.

    `import_footprint` is the measured memory of the imports alone; None if unknown.
    """
    least = limit_bytes if device.capacity_bytes is None else min(limit_bytes, device.capacity_bytes)
    return replace(device, capacity_bytes=least, limited=True, import_footprint=import_footprint)


def limited_target(
    inventory: Inventory, interpreter: Interpreter | None, job: Job, limit_bytes: int | None = None
) -> TrainingTarget:
    """The target of a training whose GPUs are limited to `limit_bytes`."""
    return target_of(limit_gpu_memory(inventory, limit_bytes), interpreter, job)


def training_device(target: TrainingTarget, limit_bytes: int | None, *, cached_only: bool = False) -> Device:
    """The device of `target`; under a memory limit on a CPU the imports are measured unless `cached_only`."""
    if limit_bytes is None or target.device.on_gpu or target.interpreter is None:
        return target.device
    imports = import_footprint(target.interpreter, target.inventory.cpu.usable_cores, cached_only=cached_only)
    return limit_device_memory(target.device, limit_bytes, imports)


class JobMemoryEstimator(Struct, frozen=True):
    """Estimates the memory of one job on one device, corrected by measured runs (newest first).

    Each of `processes` has a device, or a share of the host, of its own. `interpreter` runs traces, if any. Where
    `sharding` divides the job in a way that is not modelled, it is computed as if it were not divided: more than is
    taken, which only says what certainly fits.
    """

    job: BuiltinJob
    device: Device
    processes: int = 1
    interpreter: Interpreter | None = None
    runs: Sequence[MeasuredRun] = ()
    code: TrainingCode = BUILT_IN
    sharding: Sharding | None = None

    @classmethod
    def of(cls, target: TrainingTarget, job: BuiltinJob, device: Device, runs: Sequence[MeasuredRun]) -> Self:
        """That of what `target` trains on a process's `device`; `job` computes as much."""
        code = training_code_of(target.job, target.interpreter)
        return cls(job, device, target.processes, target.interpreter, runs, code, target.sharding)

    def at_once(self, settings: Settings) -> MemoryEstimate | None:
        """The estimate from a cached trace, else the closed form; None if there is neither. Reads one small file."""
        python = None if self.untraceable else self.interpreter
        trace = None if python is None else cached_trace(python, self.job, settings, self.device)
        return self.closed_form(settings) if trace is None else self._traced_estimate(trace, settings)

    def closed_form(self, settings: Settings) -> MemoryEstimate | None:
        """The closed-form estimate; None without a shape."""
        shape = known_shape(self.job.model, self.job.task)
        if shape is None:
            return None
        sharding = None if self.is_not_modelled else self.sharding
        rest = self.device, self.processes, self.code, sharding
        return self._calibrate(settings, lambda tried: estimate(shape, tried, *rest))

    def traced(self, settings: Settings, timeout_s: float = TIMEOUT_S) -> MemoryEstimate:
        """The traced estimate; takes seconds unless the trace is cached. Raises `TraceError`."""
        if problem := self.untraceable:
            raise TraceError(problem)
        return self._traced_estimate(trace_memory(self._python, self.job, settings, self.device, timeout_s), settings)

    def best(self, settings: Settings) -> MemoryEstimate | None:
        """What is known at once, else the traced estimate, which takes seconds; None if the job cannot be traced."""
        try:
            return self.at_once(settings) or self.traced(settings)
        except TraceError:
            return None

    def breakdown(self, settings: Settings) -> tuple[MemoryBreakdown, dict[str, MemoryRemedy]]:
        """The traced tensors at the peak, and the remedy of each kind that has one. Raises `TraceError`."""
        traced = trace_breakdown(self._python, self.job, settings, self.device)
        return traced, memory_remedies(self.closed_form, settings, traced.by(lambda part: part.kind), traced.phase)

    @property
    def is_not_modelled(self) -> bool:
        """Whether the job is divided among processes in a way of which the memory of one is not known."""
        return self.sharding is not None and not self.sharding.is_modelled(self.processes)

    @property
    def untraceable(self) -> str:
        """Why a trace, which runs the built-in job's code, says nothing of this training; empty where it does."""
        shape = known_shape(self.job.model, self.job.task)
        if self.sharding is not None and not self.is_not_modelled and shape is not None:
            return "A trace covers one process; this training is divided among several."
        if shape is not None and shape.quantized_bytes is not None:
            return "The model is saved with quantized weights, which cannot be traced."
        if self.code not in (BUILT_IN, *map(training_code, OLDER_TRANSFORMERS.values())):
            return "A trace does not cover what the tool of this command computes."
        named = read_config(self.job.model) is not None or download_hint(self.job.model)
        return "" if named else f"{self.job.model} is not on this machine."

    @property
    def _python(self) -> Interpreter:
        if self.interpreter is None:
            raise TraceError("No interpreter to trace with: pass --interpreter.")
        return self.interpreter

    def _traced_estimate(self, trace: MemoryTrace, settings: Settings) -> MemoryEstimate:
        return self._calibrate(settings, lambda tried: estimate_from_trace(trace, tried, self.device, self.processes))

    def _calibrate(self, settings: Settings, way: Callable[[Settings], MemoryEstimate]) -> MemoryEstimate:
        on_gpu = self.device.on_gpu  # where each process has a GPU, their number says little
        runs = [run for run in self.runs if on_gpu or run.processes == self.processes]
        calibrated = calibrate(way(settings), settings, on_gpu, runs, way)
        if self.is_not_modelled and calibrated.verdict != "fits":
            calibrated = replace(calibrated, capacity_bytes=None)
        most = self.job.max_samples
        return calibrated if most is None else replace(calibrated, samples=max(1, most // self.processes))


def is_other_training(job: Job) -> bool:
    """Whether the memory model does not cover what is trained: another task, or without PyTorch."""
    uses_another = isinstance(job, CommandJob) and not uses_pytorch(job.command, Path(job.cwd or ""))
    return uses_another or (modelled_job(job) is None and trains_other_task(job))


def _unmodelled(job: Job) -> TraceError:
    """Why nothing is estimated: another training, or one of an unknown task or model."""
    model = named_model(job)
    return TraceError(OTHER_TRAINING if is_other_training(job) else unknown_task(model) if model else UNNAMED_MODEL)


def estimate_by_trace(
    target: TrainingTarget, settings: Settings, before: Callable[[], float | None] = lambda: None
) -> MemoryEstimate:
    """The estimate, by a trace where nothing else is known, which `before` gives an end. Raises `TraceError`."""
    if (job := modelled_job(target.job)) is None:
        raise _unmodelled(target.job)
    code = training_code_of(target.job, target.interpreter)
    estimator = JobMemoryEstimator(job, target.device, target.processes, target.interpreter, code=code)
    if (best := estimator.at_once(settings)) is not None:
        return best
    left = TIMEOUT_S if (end := before()) is None else end - monotonic()
    if left <= 0:
        raise TraceError(f"Traces of several settings took longer than {TIMEOUT_S:.0f} s together.")
    return estimator.traced(settings, left)


class EstimateRequest(Struct, frozen=True):
    """Settings whose memory is to be estimated.

    `worked_on`: the user changed something and no training runs, so that an estimate may take seconds of CPU time.
    A command has its own values for what no source gives. While `training`, data is not measured.
    """

    resolved: Resolved
    job: Job
    inventory: Inventory
    interpreter: Interpreter
    memory_limit_bytes: int | None = None
    worked_on: bool = False
    training: bool = False


class PeakMemory(NamedTuple):
    """The tensors at the peak in the phase `phase`, by kind, and by module (none by formula); `context` is extra."""

    title: str
    phase: str
    total_bytes: int
    by_kind: tuple[BreakdownRow, ...]
    by_module: tuple[BreakdownRow, ...]
    context: str


class DataOutlook(NamedTuple):
    """How long the samples of the data are, and the share of them that is cut and of a batch that is padding."""

    lengths: SampleLengths
    cut_share: float
    padding_share: float

    @classmethod
    def of(cls, lengths: SampleLengths, settings: Settings) -> Self:
        return cls(lengths, lengths.cut_share(settings.max_length), lengths.padding_share(settings))


class MemoryOutlook(Struct, frozen=True):
    """The expected memory of a GPU, or of the host where `on_gpu` is False.

    `against` names the capacity if it is not that of the device; `unknown` says why there is no estimate.
    `measured`: the estimate comes from runs of a command only, and `measured_largest` is the largest batch they imply.
    `duration` is the expected time, `data` the lengths of the samples; each None if unknown. `unused_gpus`: the
    machine has GPUs that the training does not use.
    """

    estimate: MemoryEstimate | None = None
    on_gpu: bool = True
    against: str = ""
    unknown: str = ""
    measured: bool = False
    measured_largest: int | None = None
    duration: DurationEstimate | None = None
    data: DataOutlook | None = None
    unused_gpus: bool = False

    @property
    def largest(self) -> int | None:
        """The largest micro batch that fits, or None if unknown."""
        return self.measured_largest if self.measured or self.estimate is None else self.estimate.largest_batch()

    @property
    def nothing_fits(self) -> bool:
        """Whether not even a micro batch of 1 may fit."""
        return self.largest == 0 and (self.estimate is None or replace(self.estimate, batch=1).verdict == "too large")


class MemoryEstimator:
    """Estimates of the settings shown, one at a time.

    It remembers earlier runs of the job, models that cannot be traced, and data that cannot be read.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._untraceable: set[tuple[str, str]] = set()
        self._unreadable: set[str] = set()
        self._job: Job | None = None
        self._runs: tuple[MeasuredRun, ...] = ()
        self._timed: tuple[EarlierRun, ...] = ()

    def earlier_runs(self, job: Job) -> tuple[EarlierRun, ...]:
        """The speeds of the runs of a job that are there now."""
        with self._lock:
            self._read_runs(job)
            return self._timed

    def quick(self, request: EstimateRequest) -> MemoryOutlook:
        """The estimate known without a trace. For a new job it reads what earlier runs measured."""
        with self._lock:
            if request.job != self._job:
                self._read_runs(request.job)
            return self._outlook(request, refine=False)

    def refined(self, request: EstimateRequest) -> MemoryOutlook:
        """The estimate by the newest runs, and by a trace where that is worth it. It may take 30 s."""
        with self._lock:
            self._read_runs(request.job)
            return self._outlook(request, refine=True)

    def parts(self, request: EstimateRequest) -> PeakMemory:
        """Where the memory of the peak goes, by a trace that takes seconds, else by formula. Raises `TraceError`."""
        job = modelled_job(request.job)
        if job is None:
            raise _unmodelled(request.job)
        settings, target = _settings(request), _target(request)
        device = training_device(target, _host_limit(request, target), cached_only=True)
        title = f"{job.model} · micro batch {settings.per_device_train_batch_size}"
        estimator, ways = JobMemoryEstimator.of(target, job, device, self._runs), ["kind", "module"]
        try:
            parts, remedies = estimator.breakdown(settings)
        except TraceError:
            if (best := estimator.closed_form(settings)) is None:
                raise
            parts, title, ways = best.breakdown, f"{title} · {best.rests_on}", ["kind"]
            remedies = memory_remedies(estimator.closed_form, settings, parts.by(lambda part: part.kind), parts.phase)
        tables = [tuple(breakdown_rows(parts, remedies, by)) for by in ways]
        return PeakMemory(title, parts.phase, parts.total, tables[0], (*tables, ())[1], device.context_name)

    def _read_runs(self, job: Job) -> None:
        self._job, self._runs = job, measured_runs(job, runs_dir())
        self._timed = earlier_runs(job, runs_dir())

    def _outlook(self, request: EstimateRequest, refine: bool) -> MemoryOutlook:
        target = _target(request)
        gpus = [gpu.name for gpu in target.gpus]
        settings, remedies = request.resolved.settings, request.resolved.last_remedies
        duration = estimate_duration(request.job, settings, target.replicas, self._timed, gpus, remedies)
        lengths = self._lengths(request, measure=refine and not request.training)
        resolved = with_measured_length(request.resolved, request.job, lengths)
        data = None if lengths is None else DataOutlook.of(lengths, resolved.settings)
        request = replace(request, resolved=resolved)
        unused = bool(request.inventory.gpus) and not target.on_gpu
        memory = replace(self._memory(request, target, refine), on_gpu=target.on_gpu)
        return replace(memory, duration=duration, data=data, unused_gpus=unused)

    def _lengths(self, request: EstimateRequest, measure: bool) -> SampleLengths | None:
        """The lengths of the job's samples if they are cached; `measure` may take seconds."""
        job = request.job
        if job.data is None or job.data in self._unreadable:
            return None
        try:
            return measure_lengths(job, Path(request.interpreter.path), cached_only=not measure)
        except TraceError:
            self._unreadable.add(job.data)
            return None

    def _memory(self, request: EstimateRequest, target: TrainingTarget, refine: bool) -> MemoryOutlook:
        job, limit = modelled_job(request.job), _host_limit(request, target)
        against = _capacity_name(request, target)
        if isinstance(request.job, CommandJob):
            device = training_device(target, limit, cached_only=True)
            outlook = self._from_runs(request, request.job, device, against)
            if outlook.estimate is not None or job is None:
                return outlook
        assert job is not None  # a built-in job has a model
        traceable = refine and request.worked_on and (job.model, job.task) not in self._untraceable
        may_trace = traceable and os.getloadavg()[0] < request.inventory.cpu.usable_cores
        device = training_device(target, limit, cached_only=not may_trace)
        estimator, settings = JobMemoryEstimator.of(target, job, device, self._runs), _settings(request)
        best = estimator.at_once(settings)
        if may_trace:
            try:
                best = estimator.traced(settings)
            except TraceError:
                self._untraceable.add((job.model, job.task))
        if best is None:
            return MemoryOutlook(unknown=f"unknown for {job.model}: a short run measures it")
        if device.limited and device.import_footprint is None and best.verdict != "fits":
            # The limit counts what the imports reserve, a gigabyte and more: a guess of it must not say "does not fit".
            return MemoryOutlook(unknown=UNMEASURED_IMPORTS)
        return MemoryOutlook(best, against=against)

    def _from_runs(self, request: EstimateRequest, job: CommandJob, device: Device, against: str) -> MemoryOutlook:
        """The memory of a command is known from its own runs only."""
        settings = request.resolved.passed(own_settings(job))
        # A command has a micro batch of its own, which is not known. The one of the form counts only where the user has
        # chosen it and the command gets it; otherwise the estimate is for the batch of the last run.
        chosen = MICRO in request.resolved.given and job.apply != "none"
        batch = settings.per_device_train_batch_size if chosen else None
        measured = estimate_from_runs(self._runs, settings, device, batch)
        if measured is None:
            return MemoryOutlook(unknown=UNMEASURED)
        if isinstance(measured, UnmeasuredBatch):
            size = format_size(measured.peak_bytes)
            return MemoryOutlook(unknown=f"at micro batch {measured.batch}: {size} ({measured.run})")
        return MemoryOutlook(measured.estimate, against=against, measured=True, measured_largest=measured.largest)


def _target(request: EstimateRequest) -> TrainingTarget:
    target = limited_target(request.inventory, request.interpreter, request.job, request.memory_limit_bytes)
    return target.trained_with(request.resolved.settings)


def _settings(request: EstimateRequest) -> Settings:
    """The settings of the request, with those that a command's own files give."""
    return request.resolved.with_own(own_settings(request.job)).settings


def _host_limit(request: EstimateRequest, target: TrainingTarget) -> int | None:
    """The limit of each process without a GPU; None without one that is below its share of the host's memory."""
    limit = request.memory_limit_bytes
    return None if target.on_gpu or limit is None or limit >= (target.device.capacity_bytes or 0) else limit


def _capacity_name(request: EstimateRequest, target: TrainingTarget) -> str:
    """The name of the capacity where it is not all the memory of the host or of the only GPU."""
    limit, count = request.memory_limit_bytes, len(target.gpus)
    if target.on_gpu and (limit is None or target.memory_bytes != limit):
        alone = f"on GPU {target.gpus[0].index}" if len(request.inventory.gpus) > 1 else ""
        free = "free " if any(map(other_processes_bytes, target.gpus)) else ""
        return (free + (f"on each of {count} GPUs" if count > 1 else alone)).strip()
    if target.on_gpu or _host_limit(request, target) is not None:
        return "limit"
    return f"for each of {target.processes} processes" if target.processes > 1 else ""
