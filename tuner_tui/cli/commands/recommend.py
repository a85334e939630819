"""`tuner-tui recommend`: settings for this machine, this Python and this job, each with its reason and source."""

from __future__ import annotations

import os
from collections.abc import Collection
from functools import cache, partial
from pathlib import Path
from time import monotonic
from typing import Annotated, Any

import typer
from msgspec import to_builtins
from msgspec.structs import asdict, replace

from tuner_tui.advice.batch_scaling import BatchChange, batch_change
from tuner_tui.advice.estimate import estimate_by_trace
from tuner_tui.advice.recommend.duration_estimate import DurationEstimate, earlier_runs, estimate_duration
from tuner_tui.advice.recommend.recommendation import DEFAULT_JOB, Recommendation
from tuner_tui.advice.recommend.recommendation import recommend as recommend_settings
from tuner_tui.advice.recommend.sample_lengths import SampleLengths, measure_lengths, with_measured_length
from tuner_tui.cli.console import fail, print_json, print_line, print_note
from tuner_tui.cli.machine import LocalMachine, ReadMachine, parse_gpus, read_local_machine
from tuner_tui.cli.options import AsJson
from tuner_tui.cli.recommend_report import recommend_report
from tuner_tui.cli.training_options import PlanOptions, taking
from tuner_tui.core.files import write_durable
from tuner_tui.hardware.environment import visible_gpus
from tuner_tui.hardware.known_gpus import PROCESSOR, planned_interpreter, planned_inventory
from tuner_tui.memory.job_task import download_hint
from tuner_tui.memory.model_config import read_config
from tuner_tui.memory.trace import TIMEOUT_S, TraceError
from tuner_tui.runs.store.folder import runs_dir
from tuner_tui.runs.store.record import redact_job
from tuner_tui.settings.dialects.file_formats import SCRIPT_FORMS
from tuner_tui.settings.distributed import read_accelerate_config
from tuner_tui.settings.file_update import update_tool_file
from tuner_tui.settings.job import BuiltinJob, CommandJob, named_model
from tuner_tui.settings.model import OriginKind, Resolved, Settings
from tuner_tui.settings.presets import find_preset
from tuner_tui.settings.resolve import LaunchOptions, parse_flags, resolve_planned
from tuner_tui.settings.rules import Problem, find_problems
from tuner_tui.settings.yaml_reader import CONFIGURATIONS

ASSUMED_CAPABILITY = (8, 0)
MINUTES = round(TIMEOUT_S / 60)


@taking(PlanOptions)
def recommend(
    plan: PlanOptions,
    context: typer.Context,
    patch: Annotated[bool, typer.Option("--patch", help="Print only a diff of FILE.")] = False,
    write: Annotated[
        bool,
        typer.Option(
            "--write",
            help="Write the changes into FILE; everything else in it stays. Without a GPU here, --gpu says which "
            "GPU the file is for.",
        ),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Recommend settings for this machine, with reasons.

    Also lists what was considered and not recommended. `--gpu cpu` plans for a machine without a GPU. The values and
    the job of a preset, and those of --set, are kept; --write puts them into FILE.

    Without a preset, a model or a command, the default job is classification of 128 tokens with a model of BERT's
    size.
    """
    words = plan.words or []
    runs = bool(words) and "/" in words[0] and os.access(words[0], os.X_OK) and Path(words[0]).is_file()
    # A single word that can be run is a command, unless it is a script or a configuration, which say more as files.
    is_script = bool(words) and Path(words[0]).suffix in (*SCRIPT_FORMS, *CONFIGURATIONS)
    is_file = len(words) == 1 and (patch or write or is_script or not runs)
    file, command = (words[0], ()) if is_file else (None, tuple(words))
    preset = file if plan.preset is None else plan.preset
    flags = parse_flags(plan.values or [])
    options = LaunchOptions(preset, flags, os.environ, command=command, model=plan.model, task=plan.task)
    training = resolve_planned(replace(options, default_job=DEFAULT_JOB))
    resolved, job = plan.assume(training.resolved, training.job or DEFAULT_JOB)
    read_machine: ReadMachine = context.obj or read_local_machine
    machines = planned_machines(read_machine(plan.interpreter), plan.gpus)
    if patch or write:
        if file is None:
            fail("--patch and --write need a training tool's configuration file: `tuner-tui recommend FILE --write`.")
        if len(machines) > 1:
            fail("--patch and --write need one kind of GPU after --gpu: a file has one value for each key.")
        print_patch(
            machines[0][1], resolved, job, Path(file), None if preset == file else preset, write, plan.gpus is None
        )
        return
    print_recommendations(machines, resolved, job, preset, as_json, training.notes if is_file else None)


def planned_machines(machine: LocalMachine, gpus: str | None) -> list[tuple[str | None, LocalMachine]]:
    """Return the machines to recommend for, each with its label: this one, or one for each GPU in `gpus`.

    A GPU known by its memory alone is taken as one of today. Raises `SettingsError`.
    """
    if gpus is None:
        return [(None, machine)]
    python = planned_interpreter(machine.interpreter)
    machines: list[tuple[str | None, LocalMachine]] = []
    for planned in parse_gpus(gpus):
        label = planned.label
        if any(gpu.capability is None for gpu in planned.gpus):
            label = f"{label}, assumed to be Ampere or newer"
            today = (replace(gpu, capability=ASSUMED_CAPABILITY, architecture="Ampere") for gpu in planned.gpus)
            planned = replace(planned, gpus=tuple(today))
        machines.append((label, LocalMachine(planned_inventory(machine.inventory, planned), python)))
    return machines


SPEED_SETTINGS = (
    "precision", "tf32", "dataloader_num_workers", "dataloader_prefetch_factor", "dataloader_pin_memory",
    "dataloader_persistent_workers",
)  # fmt: skip
"""Settings that `--write` changes: what is learned does not depend on them. `tune` measures the micro batch."""


def print_patch(
    machine: LocalMachine,
    resolved: Resolved,
    job: BuiltinJob | CommandJob,
    path: Path,
    preset: str | None,
    write: bool,
    for_this_machine: bool,
) -> None:
    """Print the changes of the file as a unified diff and, with `write`, make them.

    With a `preset`, such as the tuner's, the file gets its values. Where nobody says which GPUs the file is for, those
    of this machine count; if it has none, only values that were given are written.

    Exit with 2 if that cannot be.
    """
    flags = {name for name in resolved.chosen if resolved.origins[name].kind == OriginKind.FLAG}
    if preset is not None:  # made for this training, perhaps by the tuner: its values are wanted in the file
        flags |= resolved.given.keys()
    # What the file says itself is kept, except for speed settings: those are to be improved. Values of flags and of a
    # preset are decisions for this file, so they are written even where they slow it down.
    given = {name: getattr(resolved.settings, name) for name in resolved.chosen if name not in SPEED_SETTINGS}
    given |= {name: getattr(resolved.settings, name) for name in flags}
    recommendation = recommend_settings(machine.inventory, machine.interpreter, job, given)
    on_cpu = isinstance(job, CommandJob) and job.on_cpu
    if for_this_machine and not on_cpu and not visible_gpus(machine.inventory):
        if not flags:
            fail(
                f"This machine has no GPU, and {path} may be for one that has: name the GPU (--gpu A100-80GB), or "
                f"--gpu {PROCESSOR} for a machine without one."
            )
        names = flags
    else:
        names = flags | {setting.name for setting in recommendation.advised if setting.name in SPEED_SETTINGS}
    targets = None if machine.interpreter is None else machine.interpreter.training_arguments
    settings = recommendation.settings
    # What the file says may not go with the new values: persistent workers with none.
    for problem in conflicts(resolved.settings, settings, names):
        if not flags & problem.fix.keys():
            names, settings = names | problem.fix.keys(), replace(settings, **problem.fix)
    update = update_tool_file(path, settings, names, targets, flags)
    left_out = list(update.left_out)
    while tied := conflicts(resolved.settings, settings, names - update.missing - flags):
        names -= {name for problem in tied for name in problem.fields} - flags
        left_out += [f"{' and '.join(problem.fields)} stay as they are: {problem.sentence}" for problem in tied]
        update = update_tool_file(path, settings, names, targets, flags)
    try:
        if write and update.diff:
            write_durable(path, update.content, overwrite=True)
    except OSError as error:
        fail(f"{path} cannot be written: {error.strerror or error}")
    typer.echo(update.diff, nl=False)
    for setting in (setting for setting in recommendation.advised if setting.name in names - flags):
        print_note(f"{setting.name}: {setting.reason}")
    for note in left_out:
        print_note(f"Left out: {note}")
    if not update.diff:
        print_note(f"{path} needs no change.")


def conflicts(settings: Settings, changed: Settings, names: Collection[str]) -> list[Problem]:
    """Return the errors of `settings` with the values that `changed` has for `names`, in which one of these is."""
    after = replace(settings, **{name: getattr(changed, name) for name in names})
    problems = find_problems(after, gpus=None, interpreter=None)
    return [problem for problem in problems if problem.severity == "error" and {*names} & {*problem.fields}]


def preset_batch_change(
    machine: LocalMachine, job: BuiltinJob | CommandJob, preset: str, recommendation: Recommendation
) -> BatchChange | None:
    """Return how the recommendation changes the effective batch of the preset; None if it does not."""
    if "per_device_train_batch_size" not in (values := find_preset(preset).preset.settings):
        return None
    before = recommend_settings(machine.inventory, machine.interpreter, job, values).settings
    return batch_change(before, recommendation.settings, recommendation.replicas)


def print_recommendations(
    machines: list[tuple[str | None, LocalMachine]],
    resolved: Resolved,
    job: BuiltinJob | CommandJob,
    preset: str | None,
    as_json: bool,
    file_notes: tuple[str, ...] | None = None,
) -> None:
    """Print the recommendation for each machine, as text or as one JSON document, with the notes on an opened file."""
    accelerate = read_accelerate_config(job, os.environ, Path.cwd())
    trace = partial(estimate_by_trace, before=cache(partial(print_tracing, named_model(job))))
    documents, runs = [], earlier_runs(job, runs_dir())
    for label, machine in machines:
        earlier = runs if label is None else ()
        lengths = measured_lengths(job, machine)
        resolved = with_measured_length(resolved, job, lengths)
        # What a command's own files say is not open either; of a tool's defaults the length decides the batch.
        written = {name for name, origin in resolved.origins.items() if not origin.detail.startswith("default of")}
        names = written - {"eval_strategy"} | resolved.chosen | ({"max_length"} & resolved.origins.keys())
        given = {name: getattr(resolved.settings, name) for name in names}
        advice = recommend_settings(
            machine.inventory, machine.interpreter, job, given, accelerate, lengths, trace, earlier
        )
        change = None if preset is None else preset_batch_change(machine, job, preset, advice)
        expected = estimate_duration(job, advice.settings, advice.replicas, runs, advice.gpus)
        if as_json:
            times = {"expected_time": time_document(expected), "batch_change": change}
            head = {} if label is None else {"gpu": label}
            noted = replace(advice, notes=(*(file_notes or ()), *advice.notes))
            documents.append({**head, **as_document(noted, resolved, job), **times})
        else:
            lines = recommend_report(advice, resolved, job, expected, change, file_notes)
            print_line("\n".join(lines if label is None else [f"On {label}", "", *lines, ""]))
    if as_json:
        print_json(documents[0] if machines[0][0] is None else {"gpus": documents})


def print_tracing(model: str | None, traces: int = 1) -> float:
    """Print what takes seconds now, traces or asking the Hub, and return the time at which it ends."""
    if model is None or "model_type" in (read_config(model) or {}):
        work = "once" if traces == 1 else f"with {traces} different settings"
        print_note(f"Tracing {model} {work} on the CPU (at most {MINUTES} minutes; the result is cached) …")
    elif download_hint(model):
        print_note(f"Asking the Hub for the configuration of {model} …")
    return monotonic() + TIMEOUT_S


def measured_lengths(job: BuiltinJob | CommandJob, machine: LocalMachine) -> SampleLengths | None:
    """Return the lengths of the job's samples; None where its data is not here, or with a note cannot be read."""
    if machine.interpreter is None or machine.interpreter.problem is not None:
        return None
    note = f"Measuring the samples of {job.data} (at most {MINUTES} minutes) …"
    try:
        return measure_lengths(job, Path(machine.interpreter.path), before=partial(print_note, note))
    except TraceError as error:
        print_note(f"The lengths of the samples are unknown. {error}")
        return None


def as_document(recommendation: Recommendation, resolved: Resolved, job: BuiltinJob | CommandJob) -> dict[str, Any]:
    origins = {name: resolved.origins[name] for name in sorted(resolved.chosen)}
    unknown = {"command": None} if isinstance(job, CommandJob) and job.is_unnamed else {}
    return {
        "job": {**to_builtins(redact_job(job)), **unknown},
        "recommended": recommendation.advised,
        "rejected": recommendation.rejected,
        "given": {
            name: {"value": getattr(resolved.settings, name), "origin": origin.kind, "detail": origin.detail}
            for name, origin in origins.items()
        },
        "effective_batch": recommendation.effective_batch,
        "replicas": recommendation.replicas,
        "notes": list(recommendation.notes),
    }


def time_document(expected: DurationEstimate | None) -> dict[str, Any] | None:
    """Return the expected time for JSON; seconds are None if the number of samples is not known."""
    if expected is None:
        return None
    low, high = expected.range_s or (None, None)
    return {**asdict(expected), "low_s": low, "high_s": high}
