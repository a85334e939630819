"""Estimates the memory of the settings shown, at once and then more exactly."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from queue import Empty, SimpleQueue
from threading import Thread
from typing import TYPE_CHECKING

from tuner_tui.core.units import format_size
from tuner_tui.ui.messages import EstimateArrived

if TYPE_CHECKING:
    from tuner_tui.advice.recommend.memory_estimator import JobMemoryEstimator
    from tuner_tui.advice.recommend.target import TrainingTarget
    from tuner_tui.hardware.interpreter.probe import Interpreter
    from tuner_tui.hardware.inventory import Inventory
    from tuner_tui.memory.calibration import MeasuredRun
    from tuner_tui.memory.device import Device
    from tuner_tui.memory.estimate import MemoryEstimate
    from tuner_tui.settings.job import BuiltinJob, CommandJob, Job
    from tuner_tui.settings.model import Settings
    from tuner_tui.ui.backend.feeds import Post


IDLE_S = 1.5
"""How long no value may have been edited before the better figure is worked out."""


@dataclass(frozen=True, slots=True)
class EstimateRequest:
    """What the memory is asked of.

    `memory_limit_bytes` is what a training may take at most. `worked_on`: somebody changed something here and nothing
    trains, so that a figure that takes some seconds of a processor is worth them. `chosen` are the settings that
    somebody chose; in the others a command has its own.
    """

    settings: Settings
    job: Job
    inventory: Inventory
    interpreter: Interpreter
    memory_limit_bytes: int | None = None
    worked_on: bool = False
    chosen: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class MemoryOutlook:
    """The memory expected, of the card or the host (`on_gpu`).

    `against` says whose memory it is held against, where that is not plain; `unknown` why there is no figure.
    `measured`: by runs of a command alone, and `measured_largest` is the largest batch by them, where they tell it.
    """

    estimate: MemoryEstimate | None = None
    on_gpu: bool = True
    against: str = ""
    unknown: str = ""
    measured: bool = False
    measured_largest: int | None = None

    @property
    def largest(self) -> int | None:
        """The largest micro batch that fits; None where that is not known."""
        return self.measured_largest if self.measured or self.estimate is None else self.estimate.largest_batch()


QuickEstimate = Callable[[EstimateRequest], MemoryOutlook]
RefinedEstimate = Callable[[EstimateRequest], "MemoryOutlook | None"]


class EstimateFeed:
    """Answers by `quick`, then by `refined` where that knows better; it may take half a minute."""

    def __init__(self, quick: QuickEstimate, refined: RefinedEstimate, post: Post, idle_s: float = IDLE_S) -> None:
        self._quick = quick
        self._refined = refined
        self._post = post
        self._idle_s = idle_s
        self._requests: SimpleQueue[EstimateRequest | None] = SimpleQueue()
        self._thread: Thread | None = None

    def ask(self, request: EstimateRequest) -> None:
        """Answer this instead of anything asked before."""
        if self._thread is None:
            self._thread = Thread(target=self._work, name="tuner-estimate", daemon=True)
            self._thread.start()
        self._requests.put(request)

    def stop(self) -> None:
        """Ask the thread to end; does not wait for it."""
        self._requests.put(None)

    def _work(self) -> None:
        request = self._newest(self._requests.get())
        while request is not None:
            self._post(EstimateArrived(self._quick(request)))
            try:
                following = self._requests.get(timeout=self._idle_s)
            except Empty:
                better = self._refined(request)
                if better is not None and self._requests.empty():
                    self._post(EstimateArrived(better))
                following = self._requests.get()
            request = self._newest(following)

    def _newest(self, request: EstimateRequest | None) -> EstimateRequest | None:
        while request is not None and not self._requests.empty():
            request = self._requests.get()
        return request


UNKNOWN_FOR_COMMAND = "not known for a command: its run measures it"
MICRO = "per_device_train_batch_size"


class MemoryEstimator:
    """Answers at once by what is remembered and the closed form; and traces what was not traced. For one thread.

    `memory_limit_bytes` is what a training may take at most, where its preset or run says nothing of it.
    """

    def __init__(self, memory_limit_bytes: int | None) -> None:
        self._limit_bytes = memory_limit_bytes
        self._untraceable: set[tuple[str, str]] = set()
        self._job: Job | None = None
        self._runs: tuple[MeasuredRun, ...] = ()

    def quick(self, request: EstimateRequest) -> MemoryOutlook:
        """The outlook for the settings asked for; for another job than before it reads the ends of earlier runs."""
        job = request.job
        if job != self._job:
            self._read_runs(job)
        if job.kind == "command":
            return self._measured(request, job)
        found, target, against = self._estimating(request, job)
        return _outlook(found.at_once(request.settings), target, against, job)

    def refined(self, request: EstimateRequest) -> MemoryOutlook | None:
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

    def _measured(self, request: EstimateRequest, job: CommandJob) -> MemoryOutlook:
        """What the command's own runs took; those are all that is known of it."""
        from tuner_tui.memory.calibration import UnmeasuredBatch, estimate_from_runs

        target, against = self._target(request)
        asked = request.settings.per_device_train_batch_size
        batch = asked if MICRO in request.chosen and job.apply != "none" else None
        found = estimate_from_runs(self._runs, request.settings, _device(request, target, against), batch)
        if found is None:
            return MemoryOutlook(unknown=UNKNOWN_FOR_COMMAND)
        if isinstance(found, UnmeasuredBatch):
            return MemoryOutlook(unknown=f"at micro batch {found.batch}: {format_size(found.peak_bytes)} ({found.run})")
        return MemoryOutlook(found.estimate, target.on_gpu, against, "", True, found.largest)

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


def _outlook(found: MemoryEstimate | None, target: TrainingTarget, against: str, job: BuiltinJob) -> MemoryOutlook:
    if found is None:
        return MemoryOutlook(unknown=f"not known for {job.model} yet")
    return MemoryOutlook(found, target.on_gpu, against)
