"""`tuner-tui tune`: finds the fastest settings that fit, by short real runs, and saves them as a preset."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from typing import Annotated, cast, get_args

import typer

from tuner_tui.cli.console import (
    ALREADY_RUNNING,
    DONE,
    FAILED,
    INTERRUPTED,
    OUT_OF_MEMORY,
    TERMINATED,
    USAGE,
    Interrupts,
    fail,
    print_line,
    print_note,
)
from tuner_tui.cli.machine import read_training_machine
from tuner_tui.cli.options import Detached
from tuner_tui.cli.training_options import (
    TrainingOptions,
    check_interpreter,
    launch_request,
    print_announcement,
    taking,
)
from tuner_tui.core.units import GIB, format_share, format_short_duration
from tuner_tui.runs.launch.command import LaunchError
from tuner_tui.runs.launch.prepare import build_request, prepare
from tuner_tui.runs.launch.start import find_duplicate_run
from tuner_tui.runs.store.record import RecordError
from tuner_tui.settings.errors import SettingsError
from tuner_tui.settings.model import FIELDS, Settings, format_value
from tuner_tui.settings.presets import preset_path
from tuner_tui.settings.resolve import LaunchOptions, apply_job_options
from tuner_tui.tuning.create import TunerSpec, create_tuning, ensure_tunable, start_tuning, time_needed
from tuner_tui.tuning.store import (
    NO_RAY,
    AlreadyTuningError,
    Cluster,
    TuningFolder,
    TuningNotFoundError,
    TuningOptions,
    find_tuning,
    read_tuning_record,
    tunings_dir,
)
from tuner_tui.tuning.trial import (
    DEFAULT_MINUTES,
    Measurement,
    Objective,
    SkippedChange,
    Trial,
    TuningConclusion,
    format_peak_memory,
    format_throughput,
    group_by_reason,
)
from tuner_tui.tuning.trial_cards import ensure_one_process, free_cards
from tuner_tui.tuning.trial_log import (
    LogEntry,
    TrialCompleted,
    TrialStarted,
    TuningEnded,
    TuningReader,
    TuningStarted,
    encode_entry,
)

BUSY_NOTE = "trials continue, but nothing is confirmed or saved meanwhile."
KNOBS_SHOWN = 4
REASONS_SHOWN = 8


class TuningLines:
    """Turns log entries into lines; remembers the initial settings, to name what differs from them."""

    def __init__(self) -> None:
        self._initial: Settings | None = None
        self._last_sentence = ""
        self._skipped: tuple[SkippedChange, ...] = ()

    def lines(self, entry: LogEntry) -> Iterator[str]:
        """Yield the lines of an entry."""
        match entry:
            case TuningStarted():
                yield from self._memory_lines(entry)
                if entry.busy:
                    yield f"busy      {entry.busy[0].upper()}{entry.busy[1:]}: {BUSY_NOTE}"
            case TrialStarted():
                takes = "" if entry.expected_s is None else f"takes about {format_short_duration(entry.expected_s)}"
                total = "" if entry.left_high_s is None else f"about {_time_left(entry)} left"
                left = f"  ({', '.join(filter(None, (takes, total)))})" if takes or total else ""
                where = f" on {entry.trial.card}" if entry.trial.card else ""
                yield f"trial {entry.trial.number:<3} {self._describe(entry.trial)}{where}: {entry.trial.reason}{left}"
            case TrialCompleted():
                if self._initial is None:
                    self._initial = entry.tried.trial.settings
                self._skipped = entry.skipped
                measured = entry.tried.measurement
                number = f"of {entry.tried.trial.number}" if entry.tried.trial.card else ""
                yield f"{number:<9} {format_measurement(measured)}"
                if measured.outcome == "measured" and measured.sentence not in ("", self._last_sentence):
                    self._last_sentence = measured.sentence
                    yield f"          ({measured.sentence})"
            case TuningEnded():
                yield from self._end_lines(entry)

    def _memory_lines(self, entry: TuningStarted) -> Iterator[str]:
        if entry.limit_bytes is not None and entry.capacity_bytes is not None:
            limit, capacity = entry.limit_bytes / GIB, entry.capacity_bytes / GIB
            yield f"memory    {limit:.2f} of {capacity:.2f} GiB may be used"

    def _describe(self, trial: Trial) -> str:
        changes = () if self._initial is None else differences(self._initial, trial.settings)
        return f"{trial.purpose:<8}" + (" " + ", ".join(changes[:KNOBS_SHOWN]) if changes else "")

    def _end_lines(self, entry: TuningEnded) -> Iterator[str]:
        if entry.verdict is not None:
            yield f"verdict   {entry.verdict.sentence}"
            yield from self._result_lines(entry.verdict)
            yield from skipped_lines(self._skipped)
        if entry.sentence:
            yield f"{entry.status:<9} {entry.sentence}"
        if entry.preset is not None:
            yield f"saved     {entry.preset}"

    def _result_lines(self, verdict: TuningConclusion) -> Iterator[str]:
        for label, measured in (("start", verdict.start), ("best", verdict.best)):
            if measured is not None and measured.throughput is not None:
                yield f"{label:<9} {format_measurement(measured)}"
        if verdict.job_times is not None and verdict.start_job_s != verdict.best_job_s:
            yield f"whole job {verdict.job_steps:,} steps: {verdict.job_times}, start-up included"
        if self._initial is not None and (changes := differences(self._initial, verdict.winner)):
            yield f"changed   {', '.join(changes)}"
        if verdict.learning_rate_note:
            yield f"rate      {verdict.learning_rate_note}"


def skipped_lines(skipped: Sequence[SkippedChange]) -> Iterator[str]:
    """Yield skipped changes grouped by reason; reasons beyond the largest groups are only counted."""
    groups = list(group_by_reason(skipped).items())
    shown = groups if len(groups) <= REASONS_SHOWN else groups[: REASONS_SHOWN - 1]
    for reason, labels in shown:
        more = f" and {len(labels) - KNOBS_SHOWN} more" if len(labels) > KNOBS_SHOWN else ""
        yield f"not tried {', '.join(labels[:KNOBS_SHOWN])}{more}: {reason}"
    if len(groups) > len(shown):
        yield f"not tried {sum(len(labels) for _, labels in groups[len(shown) :])} more, for other reasons (--json)"


def differences(start: Settings, settings: Settings) -> list[str]:
    """Return `workers 0 → 2` for every setting in which the two differ."""
    names = [name for name in Settings.model_fields if getattr(settings, name) != getattr(start, name)]
    return [f"{FIELDS[name].label} {_format_value(start, name)} → {_format_value(settings, name)}" for name in names]


def format_measurement(measured: Measurement) -> str:
    """Return `12,345 tokens/s ± 1.8 %, 1.72 GiB, 26 steps, 13 s`, or the outcome of a trial without a result."""
    if measured.outcome != "measured" or measured.throughput is None:
        return f"{measured.outcome}: {measured.sentence} ({format_short_duration(measured.seconds)})"
    spread = "" if measured.spread is None else f" ± {format_share(measured.spread, digits=1)}"
    parts = (format_throughput(measured) + spread, format_peak_memory(measured), f"{measured.steps} steps")
    return ", ".join(filter(None, (*parts, format_short_duration(measured.seconds))))


def _format_value(settings: Settings, name: str) -> str:
    return format_value(name, getattr(settings, name)) or "–"


def _time_left(entry: TrialStarted) -> str:
    low, high = (format_short_duration(seconds or 0.0) for seconds in (entry.left_low_s, entry.left_high_s))
    return high if low == high else f"{low} to {high}"


POLL_S = 0.5


def follow_tuning(folder: TuningFolder, as_json: bool, interrupts: Interrupts) -> int:
    """Print log entries until the tuning ends, and return the exit code.

    An interrupt ends the trial under way and the tuning; what was measured stays.
    """
    reader, lines = TuningReader(folder), TuningLines()
    ended: TuningEnded | None = None
    last: TrialCompleted | None = None
    asked = False
    while True:
        live = folder.live  # before the entries: what an ended process wrote is then all there
        for entry in reader.entries():
            _print_entry(entry, lines, as_json)
            ended = entry if isinstance(entry, TuningEnded) else None
            last = entry if isinstance(entry, TrialCompleted) else last
        if not live:
            return _exit_code(folder, ended, last, interrupts)
        if not asked and (interrupts.interrupts or interrupts.terminated):
            asked = True
            print_note("Stopping the trial; all measurements are kept.")
            folder.abort()
        interrupts.wait(POLL_S)


def _print_entry(entry: LogEntry, lines: TuningLines, as_json: bool) -> None:
    for text in [encode_entry(entry).decode().rstrip()] if as_json else lines.lines(entry):
        print_line(text)


def _exit_code(
    folder: TuningFolder, ended: TuningEnded | None, last: TrialCompleted | None, interrupts: Interrupts
) -> int:
    if ended is None or ended.status == "aborted":
        if ended is None:
            print_note(f"The tuner process died; see {folder.log}.")
        print_note(f"`tuner-tui tune --resume {folder.id}` continues.")
        if ended is None:
            return FAILED
        return TERMINATED if interrupts.terminated and not interrupts.interrupts else INTERRUPTED
    verdict = ended.verdict
    if ended.status == "finished" and verdict is not None and verdict.best is not None:
        # With time for the initial settings only, there is no winner to continue with.
        return FAILED if ended.early and ended.preset is None else DONE
    out_of_memory = last is not None and last.tried.measurement.outcome == "out-of-memory"
    return OUT_OF_MEMORY if out_of_memory else FAILED


@taking(TrainingOptions)
def tune(
    training: TrainingOptions,
    free_batch: Annotated[
        bool,
        typer.Option("--free-batch", help="Let the effective batch change; prints the matching learning rate."),
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
        float, typer.Option(metavar="M", min=0.1, help="Time limit of the tuning.")
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
    try:
        if resume is None:
            options = training.parse()
            wanted = TuningOptions(
                free_batch=free_batch,
                most_minutes=most_minutes,
                save_as=save_as,
                objective=parse_objective(objective),
                on=parse_cluster(on),
                most_gpus=gpus,
            )
            folder, orders = _new_tuning(options, wanted, parallel or gpus is not None)
        else:
            goals = (free_batch, save_as, objective != "job", parallel, gpus, on)
            if any((training.preset, training.values, training.memory_limit, training.interpreter, *goals)):
                raise SettingsError("--resume continues a tuning unchanged: give only --most-minutes or a command.")
            folder, orders = _resumed_tuning(resume, training.options, most_minutes)
        with Interrupts() as interrupts:
            start_tuning(folder, orders)
            print_note(f"Tuning {folder.id}, in {folder.path}")
            code = _print_detached(folder, as_json) if detach else follow_tuning(folder, as_json, interrupts)
    except AlreadyTuningError as error:
        fail(str(error), ALREADY_RUNNING)
    except (SettingsError, LaunchError) as error:
        fail(str(error), USAGE)
    raise typer.Exit(code)


def parse_objective(text: str) -> Objective:
    """Parse `--objective`. Raises `SettingsError`."""
    for goal in get_args(Objective):
        if text == goal:
            return cast("Objective", goal)
    raise SettingsError(f"--objective: {text!r} is not one of {', '.join(get_args(Objective))}.")


def parse_cluster(text: str | None) -> Cluster | None:
    """Parse `--on`. Raises `SettingsError`, also if the package that it needs is not installed."""

    if text is None:
        return None
    if text != "ray":
        raise SettingsError(f"--on: {text!r} is not ray.")
    if find_spec("ray") is None:
        raise SettingsError(NO_RAY)
    return "ray"


def _new_tuning(options: LaunchOptions, wanted: TuningOptions, parallel: bool) -> tuple[TuningFolder, TunerSpec]:
    """Create a tuning. Raises `SettingsError` and `LaunchError`, leaving no folder behind."""
    if wanted.save_as is not None:
        preset_path(wanted.save_as)
    request = build_request(options) if wanted.on else launch_request(options, read_training_machine)
    ensure_tunable(request.job)
    if wanted.on:
        ensure_one_process(request.job)
    elif parallel:
        inventory = read_training_machine(options.interpreter).inventory
        cards = free_cards(request.job, inventory, request.environ)[: wanted.most_gpus]
        wanted = wanted.model_copy(update={"cards": cards})
    twin = find_duplicate_run(request)
    if twin is not None:
        fail(f"This training is running as {twin.id}; trials at the same time would measure nothing.", ALREADY_RUNNING)
    prepared = prepare(request)
    check_interpreter(options.interpreter, request, prepared)
    print_announcement(prepared)
    time_needed(request).ensure(wanted.most_minutes)
    folder = create_tuning(request, wanted)
    return folder, TunerSpec(request.job, request.environ, wanted.most_minutes)


def _resumed_tuning(name: str, options: LaunchOptions, minutes: float) -> tuple[TuningFolder, TunerSpec]:
    """Return the folder of an earlier tuning and the spec to resume it. Raises `SettingsError` and `LaunchError`."""

    try:
        folder = find_tuning(name, tunings_dir(os.environ))
        record = read_tuning_record(folder)
    except (TuningNotFoundError, RecordError) as error:
        raise SettingsError(str(error)) from error
    if folder.live:
        fail(f"{folder.id} is already running.", ALREADY_RUNNING)
    job = apply_job_options(record.job, options) or record.job
    return folder, TunerSpec(job, dict(os.environ), minutes)


def _print_detached(folder: TuningFolder, as_json: bool) -> int:
    print_line(json.dumps({"tuning": folder.id, "path": str(folder.path)}) if as_json else folder.id)
    print_note("It continues in the background.")
    return DONE
