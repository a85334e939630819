"""`tuner-tui run`: starts a training under supervision and follows it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tuner_tui.cli.console import ALREADY_RUNNING, DONE, USAGE, fail, print_line, print_note
from tuner_tui.cli.options import (
    CommandWords,
    DataName,
    Detached,
    InterpreterPath,
    LauncherName,
    MemoryLimit,
    ModelName,
    PresetName,
    ProcessCount,
    SettingValues,
    TaskName,
    complete_run,
)
from tuner_tui.settings.job import MAX_FALLBACKS

if TYPE_CHECKING:
    from tuner_tui.runs.launch.prepare import LaunchRequest
    from tuner_tui.runs.store.folder import RunFolder
    from tuner_tui.scheduling.queueing import QueueOptions
    from tuner_tui.slurm.script import SlurmOptions
    from tuner_tui.tuning.launching import LaunchOptions


def run(
    command: CommandWords = None,
    preset: PresetName = None,
    values: SettingValues = None,
    apply: Annotated[
        str | None,
        typer.Option(metavar="MODE", help="How settings are passed: placeholders, hf-args, yaml, inject or none."),
    ] = None,
    launcher: LauncherName = None,
    processes: ProcessCount = None,
    model: ModelName = None,
    task: TaskName = None,
    data: DataName = None,
    resume: Annotated[
        str | None,
        typer.Option(
            metavar="RUN",
            autocompletion=complete_run,
            help="Resume from the newest complete checkpoint of RUN or its parents.",
        ),
    ] = None,
    detach: Detached = False,
    memory_limit: MemoryLimit = None,
    fallback: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            min=0,
            max=MAX_FALLBACKS,
            help="OOM retries: after out of memory, restart with a smaller micro batch and the same effective "
            "batch, at most N times. Default: TUNER_FALLBACK, then the preset's job.",
        ),
    ] = None,
    interpreter: InterpreterPath = None,
    notify: Annotated[
        str | None,
        typer.Option(
            metavar="COMMAND|URL",
            help="Notify when the run ends: a command, which gets the message as its last argument, or an Apprise "
            "URL. Default: TUNER_NOTIFY.",
        ),
    ] = None,
    when_free: Annotated[
        bool, typer.Option("--when-free", help="Queue the run until a GPU has room for its peak memory.")
    ] = False,
    gpus: Annotated[
        int | None,
        typer.Option(metavar="N", min=0, help="With --when-free: number of GPUs; default: one per process; 0: CPU."),
    ] = None,
    cores: Annotated[
        int | None,
        typer.Option(metavar="N", min=1, help="With --when-free on the CPU: cores (OMP_NUM_THREADS); default: all."),
    ] = None,
    after: Annotated[
        str | None,
        typer.Option(
            metavar="RUN",
            autocompletion=complete_run,
            help="With --when-free: start after this run or queue entry has ended.",
        ),
    ] = None,
    on: Annotated[
        str | None, typer.Option("--on", metavar="slurm", help="Submit the run to Slurm, and return.")
    ] = None,
    partition: Annotated[str | None, typer.Option(metavar="NAME", help="With --on slurm: partition.")] = None,
    gres: Annotated[str | None, typer.Option(metavar="LIST", help="With --on slurm: resources, such as gpu:2.")] = None,
    time: Annotated[
        str | None,
        typer.Option(
            metavar="LIMIT",
            help="With --on slurm: time limit, such as 4:00:00. Before it the run saves a checkpoint and is requeued.",
        ),
    ] = None,
    nodes: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="With --on slurm: nodes, joined by torchrun.")
    ] = None,
    sbatch_options: Annotated[
        list[str] | None,
        typer.Option(
            "--sbatch-option",
            metavar="KEY=VALUE",
            help="With --on slurm: any option of sbatch by its long name, such as account=nlp, exclusive or "
            "no-requeue; repeatable.",
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="With --on slurm: print the sbatch script, submit nothing.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print events as JSON lines.")] = False,
) -> None:
    """Train in the foreground, or with --detach in the background.

    Ctrl-C saves a checkpoint and stops, a second Ctrl-C terminates. The training continues if this command is killed.

    Exit codes: 0 done, 1 failed, 2 bad input, 3 out of memory, 4 already running, 130 and 143 stopped.
    """
    from tuner_tui.cli.launch_request import (
        check_interpreter,
        parse_launch_options,
        print_announcement,
        read_training_machine,
    )
    from tuner_tui.cli.run_follower import launch_and_follow
    from tuner_tui.runs.launch.command import LaunchError
    from tuner_tui.runs.launch.prepare import prepare
    from tuner_tui.runs.launch.start import DuplicateRunError, find_duplicate_run
    from tuner_tui.scheduling.queueing import QueueOptions
    from tuner_tui.settings.errors import SettingsError
    from tuner_tui.settings.resolve import JobOptions
    from tuner_tui.tuning.launching import build_request, start_run

    job = JobOptions(tuple(command or ()), apply, launcher, processes, model, task, data)
    try:
        options = parse_launch_options(job, preset, values, memory_limit, interpreter, fallback=fallback, resume=resume)
        if when_free and on is not None:
            fail("--when-free is for this machine; Slurm has a queue of its own.", USAGE)
        if when_free:
            raise typer.Exit(_queue(options, interpreter, notify, QueueOptions(gpus, cores, after), as_json))
        if (gpus, cores, after) != (None, None, None):
            fail("--gpus, --cores and --after go with --when-free.", USAGE)
        slurm = _slurm_options(
            on, {"partition": partition, "gres": gres, "time": time, "nodes": None if nodes is None else str(nodes)},
            sbatch_options or [], dry_run,
        )  # fmt: skip
        if slurm is not None:
            raise typer.Exit(_submit(options, interpreter, notify, slurm, dry_run, as_json))
        launched = _with_notify_target(build_request(options, read_training_machine), notify)
        launched = replace(launched, nodes=None)  # no nodes of a run that is resumed
        twin = find_duplicate_run(launched)
        if twin is not None:
            raise DuplicateRunError(twin)  # before the seconds of preparation; `launch` looks again
        prepared = prepare(launched)
        check_interpreter(interpreter, launched, prepared)
        print_announcement(prepared)
        _warn_of_logout()
        start = partial(start_run, prepared, refuse_duplicate=True)
        code = _launch_only(start, as_json) if detach else launch_and_follow(start, as_json)
    except DuplicateRunError as error:
        fail(str(error), ALREADY_RUNNING)
    except (SettingsError, LaunchError) as error:
        fail(str(error), USAGE)
    raise typer.Exit(code)


def _queue(
    options: LaunchOptions, interpreter: Path | None, notify: str | None, how: QueueOptions, as_json: bool
) -> int:
    """Check the launch, put it into the queue, and print its entry. Raises `SettingsError` and `LaunchError`."""
    from tuner_tui.cli.launch_request import check_interpreter, print_announcement, read_training_machine
    from tuner_tui.runs.launch.prepare import prepare
    from tuner_tui.scheduling.admission import describe_demand
    from tuner_tui.scheduling.queue_store import open_queue
    from tuner_tui.scheduling.queueing import IdleMachine, add_to_queue
    from tuner_tui.tuning.launching import build_request

    machine = read_training_machine(interpreter)
    request = build_request(options, lambda _: IdleMachine(machine, how.gpus))
    request = _with_notify_target(request, notify)
    prepared = prepare(request)
    check_interpreter(interpreter, request, prepared)
    print_announcement(prepared)
    _warn_of_logout()
    entry, demand = add_to_queue(open_queue(), request, how, machine.inventory)
    print_line(json.dumps({"entry": entry.id}) if as_json else entry.id)
    rests_on = f" ({demand.rests_on})" if demand.rests_on else ""
    print_note(f"Queued for {describe_demand(demand)}{rests_on}. `tuner-tui queue` says why it waits.")
    return DONE


def _slurm_options(
    on: str | None, named: Mapping[str, str | None], others: Sequence[str], dry_run: bool
) -> SlurmOptions | None:
    """The options of sbatch; None where the run starts here. Exits with 2 if they are not valid."""
    from tuner_tui.slurm.script import SlurmOptionError, parse_options

    if on is None:
        if dry_run or others or any(named.values()):
            fail(
                f"{', '.join(f'--{name}' for name in named)}, --sbatch-option and --dry-run go with --on slurm.", USAGE
            )
        return None
    if on != "slurm":
        fail(f"--on: {on!r} is not known; runs can be submitted to slurm.", USAGE)
    try:
        return parse_options(named, others)
    except SlurmOptionError as error:
        fail(str(error), USAGE)


def _submit(
    options: LaunchOptions,
    interpreter: Path | None,
    notify: str | None,
    slurm: SlurmOptions,
    dry_run: bool,
    as_json: bool,
) -> int:
    """Check the launch, show its script and submit it. Raises `SettingsError` and `LaunchError`."""
    from tuner_tui.cli.launch_request import check_interpreter, print_announcement
    from tuner_tui.runs.launch.prepare import prepare
    from tuner_tui.scheduling.slurm_submission import cluster_request, job_script, submit
    from tuner_tui.tuning.launching import build_request

    request = _with_notify_target(cluster_request(build_request(options, None), slurm), notify)
    prepared = prepare(request)
    check_interpreter(interpreter, request, prepared)
    print_announcement(prepared)
    script = job_script(slurm, prepared.folder)
    if dry_run:
        print_line(script.rstrip())
        return DONE
    print_note(script.rstrip())
    folder, job_id = submit(prepared, slurm)
    print_line(json.dumps({"run": folder.id, "path": str(folder.path), "job": job_id}) if as_json else folder.id)
    print_note(f"Submitted as Slurm job {job_id}. `tuner-tui logs -f --events {folder.id}` follows it.")
    return DONE


def _with_notify_target(request: LaunchRequest, target: str | None) -> LaunchRequest:
    """Return the request with its notification target; exit with 2 if the target is invalid."""
    from tuner_tui.runs.supervise.notify import NOTIFY_VARIABLE, target_problem

    target = request.environ.get(NOTIFY_VARIABLE) if target is None else target
    if not target:
        return request
    wrong = target_problem(target)
    if wrong is not None:
        fail(wrong, USAGE)
    return replace(request, environ={**request.environ, NOTIFY_VARIABLE: target})


def _warn_of_logout() -> None:
    """Print a warning if logging out would end the training."""
    from tuner_tui.hardware.environment import logout_warning

    warning = logout_warning()
    if warning is not None:
        print_note(warning)


def _launch_only(start: Callable[[], RunFolder], as_json: bool) -> int:
    folder = start()
    print_line(json.dumps({"run": folder.id, "path": str(folder.path)}) if as_json else folder.id)
    print_note(f"`tuner-tui logs -f --events {folder.id}` follows it, `tuner-tui stop {folder.id}` stops it.")
    return DONE
