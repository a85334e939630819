"""`tuner-tui tune`: finds the fastest settings that fit, by short real runs, and saves them as a preset."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from functools import partial
from importlib.util import find_spec
from typing import Annotated, cast, get_args

import typer
from msgspec import structs
from msgspec.structs import replace

from tuner_tui.cli.console import ExitCode, fail, print_folder, print_line, print_note, report_width, row_lines, wrapped
from tuner_tui.cli.machine import read_training_machine
from tuner_tui.cli.options import Detached
from tuner_tui.cli.training_options import TrainingOptions, launch_request, prepare_announced, taking
from tuner_tui.core.numbered_folders import FolderNotFoundError
from tuner_tui.core.signals import Signals
from tuner_tui.core.units import format_gib
from tuner_tui.runs.launch.command import check_script
from tuner_tui.runs.launch.prepare import build_request
from tuner_tui.runs.launch.start import ensure_no_duplicate
from tuner_tui.runs.queue.gpu_occupancy import occupancies_now
from tuner_tui.runs.store.record import RecordError
from tuner_tui.settings.errors import SettingsError
from tuner_tui.settings.presets import preset_path
from tuner_tui.settings.resolve import LaunchOptions, apply_job_options
from tuner_tui.tuning import store
from tuner_tui.tuning.create import TunerSpec, create_tuning, ensure_tunable, start_tuning, time_needed
from tuner_tui.tuning.trial import DEFAULT_MINUTES, Objective
from tuner_tui.tuning.trial_gpus import ensure_one_process, free_gpus
from tuner_tui.tuning.trial_log import (
    LogEntry,
    TrialCompleted,
    TrialStarted,
    TuningEnded,
    TuningReader,
    TuningStarted,
    TuningView,
    encode_entry,
)
from tuner_tui.view.tuning_rows import race_rows, result_rows, running_rows, skipped_rows

BUSY_NOTE = "trials continue, but no result is confirmed or saved meanwhile."


def entry_lines(entry: LogEntry, view: TuningView, width: int) -> Iterator[str]:
    """Yield what an entry adds to `view`, in the words of the tune screen."""
    match entry:
        case TuningStarted():
            if view.limit_bytes is not None and view.capacity_bytes is not None:
                yield f"memory  {format_gib(view.limit_bytes, 2)} of {format_gib(view.capacity_bytes, 2)} may be used"
            if entry.busy:
                yield f"busy    {entry.busy[0].upper()}{entry.busy[1:]}; {BUSY_NOTE}"
        case TrialStarted():
            yield from row_lines(running_rows(replace(view, status="running", running=(entry,)), None, width))
        case TrialCompleted():
            yield from row_lines([race_rows(replace(view, running=()), {}, width)[view.tried.index(entry.tried)]])
            measurement, number = entry.tried.measurement, entry.tried.trial.number
            earlier = (tried.measurement.sentence for tried in view.tried if tried.trial.number < number)
            if measurement.sentence and measurement.sentence not in earlier:
                yield f"        ({measurement.sentence})"
        case TuningEnded():
            yield from row_lines(result_rows(view, width))
            yield from row_lines(race_rows(view, {}, width) if view.tried else ())
            if view.skipped:
                yield from ("Not tried", *row_lines(skipped_rows(view, width)))


POLL_S = 0.5


def follow_tuning(folder: store.TuningFolder, as_json: bool, interrupts: Signals) -> int:
    """Print log entries until the tuning ends, and return the exit code.

    An interrupt ends the trial under way and the tuning; what was measured stays.
    """
    reader = TuningReader(folder)
    ended: TuningEnded | None = None
    last: TrialCompleted | None = None
    asked = False
    while True:
        live = folder.live  # before the entries: what an ended process wrote is then all there
        entries = reader.entries()
        view = reader.view(live) if entries and not as_json else None
        for entry in entries:
            lines = [encode_entry(entry).decode()] if view is None else entry_lines(entry, view, report_width())
            if text := "\n".join(line if as_json else wrapped(line, sys.stdout) for line in lines):
                print_line(text.rstrip())
            ended = entry if isinstance(entry, TuningEnded) else None
            last = entry if isinstance(entry, TrialCompleted) else last
        if not live:
            return _exit_code(folder, ended, last, interrupts)
        if not asked and (interrupts.interrupts or interrupts.terminated):
            asked = True
            print_note("Stopping the trial; all measurements are kept.")
            folder.abort()
        interrupts.wait(POLL_S)


def _exit_code(
    folder: store.TuningFolder, ended: TuningEnded | None, last: TrialCompleted | None, interrupts: Signals
) -> int:
    if ended is None or ended.status == "aborted":
        if ended is None:
            print_note(f"The tuner process died; see {folder.log}.")
        print_note(f"`tuner-tui tune --resume {folder.argument}` continues.")
        if ended is None:
            return ExitCode.FAILED
        return ExitCode.TERMINATED if interrupts.terminated and not interrupts.interrupts else ExitCode.INTERRUPTED
    verdict = ended.verdict
    if ended.early or (verdict is not None and verdict.disturbed):
        minutes = f" --most-minutes {ended.needed_minutes}" if ended.needed_minutes else ""
        print_note(f"`tuner-tui tune --resume {folder.argument}{minutes}` measures more.")
    if ended.status == "finished" and verdict is not None and verdict.best is not None:
        # With time for the initial settings only, there is no winner to continue with.
        return ExitCode.FAILED if ended.early and ended.preset is None else ExitCode.DONE
    out_of_memory = last is not None and last.tried.measurement.outcome == "out-of-memory"
    return ExitCode.OUT_OF_MEMORY if out_of_memory else ExitCode.FAILED


@taking(TrainingOptions)
def tune(
    training: TrainingOptions,
    free_batch: Annotated[
        bool, typer.Option("--free-batch", help="Let the effective batch change; prints the matching learning rate.")
    ] = False,
    objective: Annotated[
        str,
        typer.Option(
            metavar="GOAL",
            help="job: the shortest time for the whole training, start-up and compilation included; steady: the "
            "highest throughput.",
        ),
    ] = "job",
    parallel: Annotated[
        bool, typer.Option("--parallel", help="Run a trial on each free GPU of this machine at once.")
    ] = False,
    gpus: Annotated[
        int | None, typer.Option("--gpus", metavar="N", min=1, help="With --parallel or --on ray: use at most N GPUs.")
    ] = None,
    on: Annotated[
        str | None,
        typer.Option(
            "--on",
            metavar="ray",
            help="Run a trial on each free GPU, or node without GPUs, of a Ray cluster that shares this state folder.",
        ),
    ] = None,
    most_minutes: Annotated[
        float, typer.Option(metavar="M", min=0.1, help="Time limit of the tuning, in minutes.")
    ] = DEFAULT_MINUTES,
    save_as: Annotated[
        str | None, typer.Option(metavar="NAME", help="Save the winner as this preset; default: PRESET-tuned.")
    ] = None,
    resume: Annotated[str | None, typer.Option(metavar="TUNING", help="Resume a tuning that ended early.")] = None,
    detach: Detached = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print entries as JSON lines.")] = False,
) -> None:
    """Find the fastest settings that fit, with short real runs.

    The winner is saved as a preset; `tuner-tui recommend FILE --preset NAME --write` puts it into a tool's file. Trials
    run your command, so it writes the files that it always writes. Ctrl-C stops the trial; all measurements are kept.

    Exit codes: 0 done, 1 failed, 2 bad input, 3 out of memory, 4 already running, 130 and 143 stopped.
    """
    if resume is None:
        options = training.parse()
        if objective not in get_args(Objective):
            raise SettingsError(f"--objective: {objective!r} is not one of {', '.join(get_args(Objective))}.")
        if on not in (None, "ray"):
            raise SettingsError(f"--on: {on!r} is not ray.")
        if on == "ray" and find_spec("ray") is None:
            raise SettingsError(store.NO_RAY)
        wanted = store.TuningOptions(
            free_batch=free_batch,
            most_minutes=most_minutes,
            save_as=save_as,
            objective=cast("Objective", objective),
            on=None if on is None else "ray",
            most_gpus=gpus,
        )
        folder, orders = _new_tuning(options, wanted, parallel or gpus is not None)
    else:
        goals = (free_batch, save_as, objective != "job", parallel, gpus, on)
        if any((training.preset, training.values, training.memory_limit, training.interpreter, *goals)):
            raise SettingsError("--resume continues a tuning unchanged: give only --most-minutes or a command.")
        folder, orders = _resumed_tuning(resume, training.options, most_minutes)
    with Signals() as interrupts:
        start_tuning(folder, orders)
        print_note(f"Tuning {folder.id}, in {folder.path}")
        if detach:
            print_folder("tuning", folder, as_json)
            print_note("It continues in the background.")
            return
        code = follow_tuning(folder, as_json, interrupts)
    raise typer.Exit(code)


def _new_tuning(
    options: LaunchOptions, wanted: store.TuningOptions, parallel: bool
) -> tuple[store.TuningFolder, TunerSpec]:
    """Create a tuning. Raises `SettingsError` and `LaunchError`, leaving no folder behind."""
    if wanted.save_as is not None:
        preset_path(wanted.save_as)
    request = build_request(options) if wanted.on else launch_request(options, read_training_machine)
    ensure_tunable(request.job)
    if wanted.on:
        ensure_one_process(request.job)
    elif parallel:
        inventory = read_training_machine(options.interpreter).inventory
        gpus = free_gpus(request.job, inventory, None, partial(occupancies_now, request.runs_root))[: wanted.most_gpus]
        wanted = structs.replace(wanted, gpu_uuids=gpus)
    ensure_no_duplicate(request)
    prepared = prepare_announced(request, options.interpreter)
    if not wanted.on:  # which nodes have the script is not known here
        check_script(prepared.argv, prepared.cwd)
    time_needed(request).ensure(wanted.most_minutes)
    folder = create_tuning(request, wanted)
    return folder, TunerSpec(request.job, request.environ, wanted.most_minutes)


def _resumed_tuning(name: str, options: LaunchOptions, minutes: float) -> tuple[store.TuningFolder, TunerSpec]:
    """Return the folder of an earlier tuning and the spec to resume it. Raises `SettingsError` and `LaunchError`."""

    try:
        folder = store.find_tuning(name, store.tunings_dir(os.environ))
        record = store.read_tuning_record(folder)
    except (FolderNotFoundError, RecordError) as error:
        raise SettingsError(str(error)) from error
    if folder.live:
        fail(f"{folder.id} is already running.", ExitCode.ALREADY_RUNNING)
    job = apply_job_options(record.job, options) or record.job
    return folder, TunerSpec(job, dict(os.environ), minutes)
