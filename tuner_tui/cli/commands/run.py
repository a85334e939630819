"""`tuner-tui run`: starts a training under supervision and follows it."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import product
from math import prod
from pathlib import Path
from typing import Annotated

import typer
from msgspec.structs import replace

from tuner_tui.cli.commands.diagnose import resume_document
from tuner_tui.cli.commands.queue import wake_waiter
from tuner_tui.cli.console import ExitCode, fail, print_folder, print_note, print_report
from tuner_tui.cli.machine import LocalMachine, read_training_machine
from tuner_tui.cli.options import Detached, complete_run, complete_setting
from tuner_tui.cli.run_follower import follow
from tuner_tui.cli.training_options import RunOptions, launch_request, prepare_announced, taking, with_notify_target
from tuner_tui.core.signals import Signals
from tuner_tui.core.units import parse_duration
from tuner_tui.hardware.detect import read_inventory
from tuner_tui.hardware.environment import logout_warning
from tuner_tui.inspection.faithful_resume import STEPS
from tuner_tui.runs.launch.prepare import PreparedLaunch, prepare
from tuner_tui.runs.launch.start import ensure_no_duplicate, launch
from tuner_tui.runs.queue.submission import enqueue, idle_inventory, queue_need
from tuner_tui.runs.read.reader import RunReader
from tuner_tui.runs.read.recorded_batches import read_resume_check
from tuner_tui.runs.store.folder import state_dir, wait_supervisor_ended
from tuner_tui.settings.errors import SettingsError
from tuner_tui.settings.resolve import LaunchOptions
from tuner_tui.tuning.trial_runner import end_run


@taking(RunOptions)
def run(
    training: RunOptions,
    detach: Detached = False,
    when_free: Annotated[
        bool, typer.Option("--when-free", help="Queue the run until its GPUs are free. First come, first served.")
    ] = False,
    gpus: Annotated[
        int | None,
        typer.Option(metavar="N", min=0, help="With --when-free: number of GPUs; default: one per process; 0: CPU."),
    ] = None,
    sweep: Annotated[
        list[str] | None,
        typer.Option(
            metavar="K=V,V",
            autocompletion=complete_setting,
            help="With --when-free: queue a run for each value; several: for each combination.",
        ),
    ] = None,
    after: Annotated[
        str | None,
        typer.Option(metavar="RUN", autocompletion=complete_run, help="With --when-free: start after RUN has ended."),
    ] = None,
    after_success: Annotated[
        str | None,
        typer.Option(
            metavar="RUN",
            autocompletion=complete_run,
            help="With --when-free: start after RUN has completed; not at all if it fails.",
        ),
    ] = None,
    stop_after: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Save a checkpoint and stop after this time, such as 4h or 90min."),
    ] = None,
    prove: Annotated[
        bool,
        typer.Option("--prove", help="With --resume: train a few steps and report whether the run resumed faithfully."),
    ] = False,
    steps: Annotated[int, typer.Option(metavar="N", min=1, help="With --prove: number of steps to train.")] = STEPS,
    as_json: Annotated[bool, typer.Option("--json", help="Print events as JSON lines.")] = False,
) -> None:
    """Train in the foreground, or with --detach in the background.

    Ctrl-C saves a checkpoint and stops, a second Ctrl-C terminates. The training continues if this command is killed.

    Exit codes: 0 done, 1 failed, 2 bad input, 3 out of memory, 4 already running, 130 and 143 stopped.
    """
    if after is not None and after_success is not None:
        fail("--after and --after-success exclude each other.")
    stop_after_s = None if stop_after is None else parse_duration(stop_after)
    if stop_after is not None and not stop_after_s:
        raise SettingsError(f"--stop-after: {stop_after!r} is not a time (try 4h, 90min or 1h30min).")
    if prove and (training.resume is None or when_free or detach):
        fail("--prove goes with --resume, and not with --detach or --when-free.")
    if when_free:
        combinations = [training.parse(*words) for words in expand_sweep(sweep or ())]
        raise typer.Exit(
            _queue(combinations, training.notify, stop_after_s, gpus=gpus, after=after,
                   after_success=after_success, as_json=as_json)
        )  # fmt: skip
    if (gpus, sweep, after, after_success) != (None, None, None, None):
        fail("--gpus, --sweep, --after and --after-success go with --when-free.")
    request = with_notify_target(launch_request(training.parse(), read_training_machine), training.notify)
    # Neither the nodes nor the time of a run that is resumed.
    request = replace(request, stop_after_s=stop_after_s, nodes=None)
    if prove:
        request = replace(request, environ={**request.environ, PROVE_VARIABLE: "1"})
    ensure_no_duplicate(request)  # before the seconds of preparation; `launch` looks again
    prepared = prepare_announced(request, training.interpreter)
    if prove:
        raise typer.Exit(_prove(prepared, steps, as_json))
    _warn_of_logout()
    if detach:
        folder = launch(prepared, refuse_duplicate=True)
        print_folder("run", folder, as_json)
        name = folder.argument
        print_note(f"`tuner-tui logs -f --events {name}` follows it, `tuner-tui stop {name}` stops it.")
        return
    with Signals() as interrupts:  # one that comes during the launch stops the run
        folder = launch(prepared, refuse_duplicate=True)
        print_note(f"Run {folder.id}, output in {folder.output_log}")
        raise typer.Exit(follow(folder, as_json, interrupts))


TRIAL_POLL_S = 0.5
PROVE_VARIABLE = "TUNER_PROVE"
"""Has the observer keep the training from saving: the checkpoints of its parent are not to be replaced."""


def _prove(prepared: PreparedLaunch, steps: int, as_json: bool) -> int:
    """Resume for some steps, stop, print whether they follow those of the parent, and return the exit code.

    Raises `LaunchError`.
    """
    with Signals() as interrupts:
        folder = launch(prepared, refuse_duplicate=True)
        print_note(f"Run {folder.id} trains {steps} steps and saves nothing; output in {folder.output_log}")
        reader = RunReader(folder)
        while not (interrupts.interrupts or interrupts.terminated or wait_supervisor_ended(folder, TRIAL_POLL_S)):
            state = reader.poll().state
            if state.unobserved is not None or any(counters.own_steps >= steps for counters in state.counters):
                break
        end_run(folder)
    check = read_resume_check(folder, reader.poll().state)
    if check is None:
        fail(
            f"{folder.id} finished no step that could be compared; `tuner-tui diagnose {folder.argument}` says more.",
            ExitCode.FAILED,
        )
    others = (f"- {mismatch.sentence}" for mismatch in check.mismatches[1:])
    print_report(resume_document(check), as_json, [f"{check.sentence}.", *others])
    return ExitCode.DONE if check.verdict == "faithful" else ExitCode.FAILED


LARGEST_SWEEP = 1_000


def expand_sweep(words: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """Return the `name=value` words of each combination; one without words where nothing varies.

    Raises `SettingsError`.
    """
    axes = []
    for word in words:
        name, _, values = word.partition("=")
        if not all(values.split(",")):
            raise SettingsError(f"--sweep {word}: use name=value,value, such as learning_rate=1e-5,3e-5")
        axes.append([f"{name}={value}" for value in values.split(",")])
    if (runs := prod(map(len, axes))) > LARGEST_SWEEP:
        raise SettingsError(f"--sweep: these are {runs:,} runs; at most {LARGEST_SWEEP:,} can be queued at once")
    return product(*axes)


def _queue(
    combinations: Sequence[LaunchOptions],
    notify: str | None,
    stop_after_s: float | None,
    *,
    gpus: int | None,
    after: str | None,
    after_success: str | None,
    as_json: bool,
) -> int:
    """Check the launches, put them into the queue, and print their runs. Raises `SettingsError` and `LaunchError`."""

    @cache
    def idle_machine(interpreter: Path | None) -> LocalMachine:
        machine = read_training_machine(interpreter)
        return replace(machine, inventory=idle_inventory(machine.inventory, gpus))

    requests = [with_notify_target(launch_request(options, idle_machine), notify) for options in combinations]
    requests = [replace(request, stop_after_s=stop_after_s, nodes=None) for request in requests]
    need = queue_need(requests[0], read_inventory(state_dir()), gpus, after, after_success)
    # All are checked before the first is queued. The interpreter, whose answer takes longest, is asked once.
    first = prepare_announced(requests[0], combinations[0].interpreter)
    launches = [first, *(prepare(request, first.interpreter) for request in requests[1:])]
    _warn_of_logout()
    for prepared in launches:
        folder = enqueue(prepared, replace(need, submitted_t=time.time()))
        print_folder("run", folder, as_json)
    wake_waiter(first.request.runs_root)
    wanted = "the CPU" if not need.gpus else "1 GPU" if need.gpus == 1 else f"{need.gpus} GPUs"
    print_note(f"Queued for {wanted}. `tuner-tui queue` says why a run waits, `tuner-tui stop RUN` removes it.")
    return ExitCode.DONE


def _warn_of_logout() -> None:
    """Print a warning if logging out would end the training."""
    warning = logout_warning()
    if warning is not None:
        print_note(warning)
