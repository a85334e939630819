"""`tuner-tui estimate`: the memory a training would take, before it runs."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Sequence
from functools import cache, partial
from typing import Annotated, Any, get_args

import typer
from msgspec import structs
from msgspec.structs import asdict

from tuner_tui.advice.estimate import (
    OTHER_TRAINING,
    DataOutlook,
    EstimateRequest,
    JobMemoryEstimator,
    MemoryEstimator,
    MemoryOutlook,
    is_other_training,
    training_device,
)
from tuner_tui.advice.preflight import offload_checks
from tuner_tui.advice.recommend.duration_estimate import UNMEASURED, EarlierRun, earlier_runs, estimate_duration
from tuner_tui.advice.recommend.gpu_plan import GpuPlan, plan_gpus
from tuner_tui.advice.recommend.memory_breakdown import KEYS
from tuner_tui.advice.recommend.recommendation import recommend, with_recommended
from tuner_tui.advice.recommend.sample_lengths import assumes_length, with_measured_length
from tuner_tui.advice.recommend.target import TrainingTarget, limit_gpu_memory, target_of
from tuner_tui.cli.commands.recommend import measured_lengths, print_tracing, time_document
from tuner_tui.cli.console import fail, print_note, print_report, print_result
from tuner_tui.cli.estimate_report import breakdown_report, estimate_report, measured_report, plan_report
from tuner_tui.cli.machine import LocalMachine, ReadMachine, parse_gpus, parse_memory_limit, read_local_machine
from tuner_tui.cli.options import AsJson, MemoryLimit
from tuner_tui.cli.training_options import PlanOptions, taking
from tuner_tui.core.redaction import redact_argv
from tuner_tui.memory.estimate import MemoryEstimate
from tuner_tui.memory.job_task import assumes_task, modelled_job, unknown_task
from tuner_tui.memory.trace import TraceError
from tuner_tui.runs.read.measured_memory import measured_runs
from tuner_tui.runs.store.folder import runs_dir
from tuner_tui.settings.errors import SettingsError
from tuner_tui.settings.job import BuiltinJob, CommandJob, Job, Task, named_model
from tuner_tui.settings.model import FIELDS, Origin, OriginKind, Resolved, Settings
from tuner_tui.settings.resolve import LaunchOptions, Training, parse_flags, resolve_planned
from tuner_tui.view.estimate_rows import figures_of


@taking(PlanOptions)
def estimate(
    plan: PlanOptions,
    context: typer.Context,
    by: Annotated[
        str | None, typer.Option(metavar="PART", help="Break memory down by kind, module, line, or part of the step.")
    ] = None,
    memory_limit: MemoryLimit = None,
    as_json: AsJson = False,
) -> None:
    """Estimate the peak memory of a training run.

    The peak is split into weights, gradients, optimizer, activations, context and allocator. On a terminal
    an estimate by formula is shown at once; a trace of the model, which takes seconds the first time, refines it. Both
    are corrected by earlier runs of the same job.
    """
    read_machine: ReadMachine = context.obj or read_local_machine
    if by is not None and by not in KEYS:
        raise SettingsError(f"--by: {by!r} is not one of {', '.join(KEYS)}.")
    words = plan.words or []
    preset = words[0] if len(words) == 1 and plan.preset is None else plan.preset
    command_words = tuple(words) if len(words) > 1 else ()
    training = resolve_planned(LaunchOptions(preset, parse_flags(plan.values or []), os.environ, command=command_words))
    limit = parse_memory_limit(memory_limit)
    command = training.job
    unmodelled = plan.model is None and plan.gpus is None and modelled_job(command) is None
    if isinstance(command, CommandJob) and unmodelled:  # only its own runs can tell its memory
        machine = read_machine(plan.interpreter)
        request = EstimateRequest(training.resolved, command, machine.inventory, machine.interpreter, limit)
        if print_measured(command, request, as_json):
            return
    built_in = resolve_builtin_job(training.job, plan.model, plan.task)
    if plan.task is None and command is not None and assumes_task(command):
        print_note(f"No task is given for {built_in.model}: computed as {built_in.task} (--task).")
    machine = read_machine(plan.interpreter)
    lengths = measured_lengths(training.job or built_in, machine) if plan.gpus is None else None
    if isinstance(command, CommandJob):
        is_assumed = built_in.task != "image-classification" and assumes_length(command, training.resolved.origins)
        training = structs.replace(training, resolved=with_measured_length(training.resolved, command, lengths))
        settings, origins = training.resolved.settings, training.resolved.origins
        if is_assumed:
            source = origins["max_length"].detail if "max_length" in origins else "assumed"
            print_note(f"No max_length is given: computed with {settings.max_length:,} tokens, {source}.")
        for name in (setting for setting in FIELDS if setting in command.stated):
            computed, stated = getattr(settings, name), command.stated[name]
            print_note(f"Computed with {name} {computed}: {stated} is not modelled.")
        if "per_device_train_batch_size" not in origins:
            print_note(f"No micro batch is given: {settings.per_device_train_batch_size} is assumed.")
    resolved, job = plan.assume(settings_to_keep(training), built_in)
    if plan.gpus is not None and limit is not None:
        raise SettingsError("--gpu already sets the memory; leave out --memory-limit.")
    if plan.gpus is not None:
        print_plans(plan.gpus, machine, resolved, job, training.job or job, as_json)
        return
    # Of a command only the model may be known: its launcher decides what is recommended, and its runs correct the
    # estimate; `job` is the built-in job that computes as much.
    launched = training.job if isinstance(training.job, CommandJob) else job
    earlier = earlier_runs(launched, runs_dir())
    estimator, settings, target = prepare(machine, resolved, launched, job, limit, earlier)
    if (sharding := estimator.sharding) is not None and estimator.is_not_modelled:
        print_note(
            f"Computed without sharding: {sharding.name} divides weights, gradients or optimizer states among "
            "processes, or moves them to the host, so that it may fit where this does not."
        )
    for check in offload_checks(machine.inventory, settings, launched):
        print_note(f"{check.sentence} {check.advice}".strip())
    if by is not None:
        print_breakdown(estimator, settings, by, as_json)
        return
    gpus = [gpu.name for gpu in target.gpus]
    expected = estimate_duration(launched, settings, target.replicas, earlier, gpus)
    data = None if lengths is None else DataOutlook.of(lengths, settings)
    outlook = MemoryOutlook(on_gpu=target.on_gpu, duration=expected, data=data)
    print_estimate(estimator, settings, outlook, as_json)


def settings_to_keep(training: Training) -> Resolved:
    """Return the settings of a training; a command keeps its own defaults, so that all of its count as chosen.

    What its tool chooses by the machine, as axolotl with `bf16: auto`, is recommended here.
    """
    resolved = training.resolved
    if not isinstance(training.job, CommandJob):
        return resolved
    fixed = [name for name in FIELDS if name not in training.left_open]
    from_command = dict.fromkeys(fixed, Origin(OriginKind.PRESET, "the command"))
    chosen = {name: resolved.origins[name] for name in resolved.given}
    return Resolved(resolved.settings, {**from_command, **chosen})


def print_measured(job: CommandJob, request: EstimateRequest, as_json: bool) -> bool:
    """Print the memory that runs of a command took, trials of a tuning included; return whether there were any.

    Raises `SettingsError` if they took other micro batches, too few to interpolate.
    """
    outlook = MemoryEstimator().quick(request)
    best = outlook.estimate
    if best is None and outlook.unknown != UNMEASURED:
        raise SettingsError(
            f"The memory of this command was measured {outlook.unknown}; one size does not show how it grows."
        )
    if best is None:
        return False
    document = {"job": job, "batch": best.batch, **_figures(best), "largest_batch": outlook.largest}
    print_result(document, as_json, partial(measured_report, job, outlook, best))
    return True


def resolve_builtin_job(job: Job | None, model: str | None, task: str | None) -> BuiltinJob:
    """Return the job whose memory is estimated. Raises `SettingsError` if its model is not known."""

    modelled = modelled_job(job)
    if model is None and job is not None and is_other_training(job):
        raise SettingsError(OTHER_TRAINING)
    job = modelled or job
    if model is None and isinstance(job, CommandJob):
        if (unclear := named_model(job)) is not None:
            raise SettingsError(unknown_task(unclear))
        if (architecture := job.stated.get("architecture")) is not None:
            raise SettingsError(
                f"The file names an architecture, {architecture}, and no model of Transformers, which the memory model "
                "covers. Name one of that size (--model ID --task causal-lm), or run it for a few steps."
            )
        named = "the file" if job.is_unnamed else f"`{shlex.join(redact_argv(job.command))}`"
        raise SettingsError(
            f"Cannot tell which model {named} trains: no argument (such as --model_name_or_path), configuration file "
            "or from_pretrained(...) call names one that is recognized. Name it (--model ID --task causal-lm), or run "
            "the command for a few steps to measure its memory."
        )
    if model is None and job is None:
        raise SettingsError("Name a model (--model gpt2 --task causal-lm) or a preset that has a job.")
    base = job if isinstance(job, BuiltinJob) else BuiltinJob()
    if task not in (None, *get_args(Task)):
        raise SettingsError(f"--task: {task!r} is not one of {', '.join(get_args(Task))}.")
    return structs.replace(base, model=model or base.model, task=task or base.task)


def prepare(
    machine: LocalMachine,
    resolved: Resolved,
    launched: BuiltinJob | CommandJob,
    job: BuiltinJob,
    limit: int | None,
    earlier: Sequence[EarlierRun],
) -> tuple[JobMemoryEstimator, Settings, TrainingTarget]:
    """Return the estimator for `job`, corrected by runs of `launched`, the settings completed as `run` would, and what
    trains with them."""
    inventory = limit_gpu_memory(machine.inventory, limit)
    settings = with_recommended(resolved, inventory, machine.interpreter, launched, earlier=earlier).settings
    left_open = [name for name in FIELDS if name not in resolved.origins] if isinstance(launched, CommandJob) else []
    if left_open:
        advised = recommend(inventory, machine.interpreter, job, resolved.given).values
        settings = settings.changed(**{name: advised[name] for name in left_open if name in advised})
    target = target_of(inventory, machine.interpreter, launched).trained_with(settings)
    device = training_device(target, limit)
    runs = measured_runs(launched, runs_dir())
    return JobMemoryEstimator.of(target, job, device, runs), settings, target


def print_estimate(estimator: JobMemoryEstimator, settings: Settings, outlook: MemoryOutlook, as_json: bool) -> None:
    """Print the best estimate next to the `outlook` on time and data; on a terminal the closed form is shown first."""
    first = estimator.at_once(settings)
    watched = sys.stderr.isatty() and not as_json
    if watched and first is not None and first.rests_on.startswith(("by formula", "formula")):
        print_note(f"{figures_of(first)} by formula; tracing the model …")
    problem = None
    best: MemoryEstimate | None
    try:
        best = estimator.traced(settings)
    except TraceError as error:
        best, problem = first, str(error)
    if best is None:
        fail(f"The model {estimator.job.model} cannot be estimated. {problem} A short run measures its memory.")
    if problem is not None and not as_json:
        print_note(f"! Less exact, not traced: {problem}")
    data = None if outlook.data is None else data_document(outlook.data, settings)
    document = as_document(estimator, settings, best, problem)
    document |= {"expected_time": time_document(outlook.duration), "data": data}
    rows = partial(estimate_report, estimator, settings, structs.replace(outlook, estimate=best), best)
    print_result(document, as_json, rows)


def data_document(data: DataOutlook, settings: Settings) -> dict[str, Any]:
    """Return the JSON document of the data: lengths, what is cut, and the padding of a batch."""
    lengths = data.lengths
    padding = lengths.padding(settings.per_device_train_batch_size, settings.max_length)
    return {
        "samples": lengths.total,
        "measured": len(lengths.lengths),
        "unit": lengths.unit,
        "percentiles": {str(share): lengths.percentile(share / 100) for share in (50, 90, 95, 99)},
        "longest": lengths.longest,
        "cut_share": data.cut_share,
        "packed": lengths.packed,
        "padding_share": {"random": padding.random, "group_by_length": padding.grouped},
    }


def print_breakdown(estimator: JobMemoryEstimator, settings: Settings, by: str, as_json: bool) -> None:
    """Print where the memory of the peak goes, and the setting that removes each kind; exit with 2 if not traceable."""
    try:
        traced, remedies = estimator.breakdown(settings)
    except TraceError as error:
        fail(f"--by needs a trace of the model. {error}")
    document = {
        "job": estimator.job,
        "settings": settings,
        "peak_at": traced.phase,
        "tensor_bytes": traced.total,
        "dtypes": traced.by(lambda part: part.dtype),
        "parts": traced.parts,
        "kinds": [
            {"kind": kind, "size": size, "remedy": remedies.get(kind)}
            for kind, size in traced.by(lambda part: part.kind).items()
        ],
    }
    print_report(document, as_json, breakdown_report(estimator, settings, traced, remedies, by))


def print_plans(
    gpus: str, machine: LocalMachine, resolved: Resolved, job: BuiltinJob, launched: Job, as_json: bool
) -> None:
    """Print a table of the GPUs in `gpus`, or one document with `--json`. Raises `SettingsError` for an unknown GPU."""
    planned = parse_gpus(gpus)

    @cache
    def say(traces: int) -> None:
        print_tracing(job.model, traces)

    plans = plan_gpus(planned, machine.inventory, machine.interpreter, resolved, job, launched, say)
    if all(plan.best is None for plan in plans):
        fail(f"The model {job.model} cannot be estimated. {plans[0].not_traced} A short run measures its memory.")
    document = {"job": job, "gpus": [_plan_document(plan) for plan in plans]}
    print_report(document, as_json, plan_report(plans))


def _plan_document(plan: GpuPlan) -> dict[str, Any]:
    time = None if plan.duration is None else plan.duration.range_s
    best, why_not = plan.best, plan.not_traced
    return {
        "gpu": plan.gpus.label,
        "estimate": None if best is None else as_document(plan.estimator, plan.settings, best, why_not),
        "not_estimated": why_not if best is None else None,
        "to_fit": plan.fitting,
        "time_s": None if time is None else list(time),
        "time_rests_on": None if plan.duration is None else plan.duration.rests_on,
    }


def as_document(
    estimator: JobMemoryEstimator, settings: Settings, best: MemoryEstimate, problem: str | None
) -> dict[str, Any]:
    """Return the JSON document; sizes in bytes."""
    peak, device = best.peak, estimator.device
    device_fields = asdict(device)
    # The key is part of the interface of `--json`; it is older than the name of the field.
    device_fields["started"] = device_fields.pop("import_footprint")
    return {
        "job": estimator.job,
        "settings": settings,
        "device": device_fields,
        "parts": best.parts,
        **_figures(best),
        "peak_at": best.peak_phase,
        "largest_batch": best.largest_batch(),
        "model": {"floor_bytes": peak.floor_bytes, "base_bytes": peak.base_bytes, "slope_bytes": peak.slope_bytes},
        "counts": "device" if device.on_gpu else "private" if device.limited else "resident",
        "not_traced": problem,
    }


def _figures(best: MemoryEstimate) -> dict[str, Any]:
    return {name: getattr(best, name) for name in ("total_bytes", "low_bytes", "high_bytes", "verdict", "rests_on")}
