"""`tuner-tui run`: starts a training under supervision and follows it."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tuner_tui.cli.console import ALREADY_RUNNING, DONE, USAGE, fail, print_line, print_note
from tuner_tui.cli.options import (
    ApplyMode,
    CommandWords,
    DataName,
    Detached,
    InterpreterPath,
    LauncherName,
    MemoryLimit,
    ModelName,
    NotifyTarget,
    PresetName,
    ProcessCount,
    ResumedRun,
    RetryCount,
    SettingValues,
    TaskName,
    complete_run,
)

if TYPE_CHECKING:
    from tuner_tui.runs.store.folder import RunFolder
    from tuner_tui.scheduling.queueing import QueueOptions
    from tuner_tui.tuning.launching import LaunchOptions


def run(
    command: CommandWords = None,
    preset: PresetName = None,
    values: SettingValues = None,
    apply: ApplyMode = None,
    launcher: LauncherName = None,
    processes: ProcessCount = None,
    model: ModelName = None,
    task: TaskName = None,
    data: DataName = None,
    resume: ResumedRun = None,
    detach: Detached = False,
    memory_limit: MemoryLimit = None,
    fallback: RetryCount = None,
    interpreter: InterpreterPath = None,
    notify: NotifyTarget = None,
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
        with_notify_target,
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
        if when_free:
            raise typer.Exit(_queue(options, interpreter, notify, QueueOptions(gpus, cores, after), as_json))
        if (gpus, cores, after) != (None, None, None):
            fail("--gpus, --cores and --after go with --when-free.", USAGE)
        launched = with_notify_target(build_request(options, read_training_machine), notify)
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
    from tuner_tui.cli.launch_request import (
        check_interpreter,
        print_announcement,
        read_training_machine,
        with_notify_target,
    )
    from tuner_tui.runs.launch.prepare import prepare
    from tuner_tui.scheduling.admission import describe_demand
    from tuner_tui.scheduling.queue_store import open_queue
    from tuner_tui.scheduling.queueing import IdleMachine, add_to_queue
    from tuner_tui.tuning.launching import build_request

    machine = read_training_machine(interpreter)
    request = build_request(options, lambda _: IdleMachine(machine, how.gpus))
    request = with_notify_target(request, notify)
    prepared = prepare(request)
    check_interpreter(interpreter, request, prepared)
    print_announcement(prepared)
    _warn_of_logout()
    entry, demand = add_to_queue(open_queue(), request, how, machine.inventory)
    print_line(json.dumps({"entry": entry.id}) if as_json else entry.id)
    rests_on = f" ({demand.rests_on})" if demand.rests_on else ""
    print_note(f"Queued for {describe_demand(demand)}{rests_on}. `tuner-tui queue` says why it waits.")
    return DONE


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
