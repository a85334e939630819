"""What a queued run will need: the predicted peak of each place, corrected by what its kind took here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tuner_tui.advice.recommend.workload import JobMemoryEstimator
from tuner_tui.memory.calibration import MeasuredEstimate, MeasuredRun, estimate_from_runs
from tuner_tui.memory.device import CONTEXT_BYTES, Device
from tuner_tui.runs.launch.prepare import LaunchRequest, working_folder
from tuner_tui.runs.read.measured_memory import MICRO, measured_runs
from tuner_tui.scheduling.admission import Demand
from tuner_tui.settings.command_training import read_command
from tuner_tui.settings.distributed import devices_per_process, process_count
from tuner_tui.settings.job import BuiltinJob, CommandJob, modelled_job
from tuner_tui.settings.model import Settings
from tuner_tui.tuning.parallel.trial_share import THREADS_VARIABLE

LIMIT = "--memory-limit"


@dataclass(frozen=True, slots=True)
class Peak:
    """The memory that a run takes of one place at its peak: the upper and the lower end of the estimate, and what that
    rests on; None where it is not known."""

    peak_bytes: int | None = None
    low_bytes: int | None = None
    rests_on: str = ""


def demand_of(request: LaunchRequest, gpus: int, cores: int | None = None, least_bytes: int | None = None) -> Demand:
    """The demand of a launch on `gpus` cards, or on the host with `cores` of its processor (0 cards).

    `least_bytes` is what the run is known to need of each place, whatever the prediction says. Reads the files of
    earlier runs.
    """
    found = predicted_peak(request, gpus)
    each = 1 if gpus else process_count(request.job)
    peak, low = (None if size is None else size * each for size in (found.peak_bytes, found.low_bytes))
    if peak is not None and least_bytes is not None:
        peak = max(peak, least_bytes)
    if gpus:
        return Demand("gpu", gpus, peak, low, rests_on=found.rests_on)
    return Demand("host", 1, peak, low, cores or chosen_threads(request), found.rests_on)


def predicted_peak(request: LaunchRequest, gpus: int) -> Peak:
    """The upper end of the estimate, by the runs of the job here, else by its model; else the user's own limit."""
    job, limit = request.job, request.memory_limit_bytes
    device = _device(job, gpus)
    found = _estimated(request, device, measured_runs(job, request.runs_root))
    if limit is None:
        return found
    most = limit + (CONTEXT_BYTES if device.on_gpu else 0)
    return Peak(most, most, LIMIT) if found.peak_bytes is None or found.peak_bytes > most else found


def _estimated(request: LaunchRequest, device: Device, runs: tuple[MeasuredRun, ...]) -> Peak:
    job, settings = request.job, request.resolved.settings
    if isinstance(job, BuiltinJob):
        return _by_model(job, settings, device, process_count(job), runs)
    batch = settings.per_device_train_batch_size if MICRO in request.resolved.given and job.apply != "none" else None
    measured = estimate_from_runs(runs, settings, device, batch)
    if isinstance(measured, MeasuredEstimate):
        best = measured.estimate
        return Peak(best.high_bytes, best.low_bytes, best.rests_on)
    own = read_command(job.command, working_folder(request))
    model = modelled_job(own.complete(job))
    if model is None or (MICRO not in own.settings and MICRO not in request.resolved.given):
        return Peak()  # the micro batch decides, and a guess at it says nothing about the memory
    return _by_model(model, request.resolved.with_own(own.settings).settings, device, process_count(job), runs)


def _by_model(
    job: BuiltinJob, settings: Settings, device: Device, processes: int, runs: tuple[MeasuredRun, ...]
) -> Peak:
    found = JobMemoryEstimator(job, device, processes, runs=runs).closed_form(settings)
    return Peak() if found is None else Peak(found.high_bytes, found.low_bytes, found.rests_on)


def _device(job: BuiltinJob | CommandJob, gpus: int) -> Device:
    if not gpus:
        return Device(on_gpu=False)
    spread = devices_per_process(job, process_count(job, gpus), gpus)
    return Device(on_gpu=True, cards=spread or 1)


def chosen_threads(request: LaunchRequest) -> int | None:
    """The cores that the job's processes use by `OMP_NUM_THREADS`; None where they use all."""
    job = request.job
    own = job.env if isinstance(job, CommandJob) else {}
    return parse_threads({**request.environ, **own}, process_count(job))


def parse_threads(environ: Mapping[str, str], processes: int) -> int | None:
    """The threads of `processes` processes by their environment; None where it does not limit them."""
    text = environ.get(THREADS_VARIABLE, "").partition(",")[0].strip()
    return int(text) * processes if text.isdecimal() and 0 < int(text) < 10_000 else None


def default_gpus(request: LaunchRequest, cards: int) -> int:
    """The cards that a launch takes where the user does not say: one for each process."""
    return min(max(1, process_count(request.job, 1)), max(1, cards)) if cards else 0
