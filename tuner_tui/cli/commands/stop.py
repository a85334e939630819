"""`tuner-tui stop`: stops a run after a checkpoint or at once, or only saves a checkpoint."""

from __future__ import annotations

import sys
from typing import Annotated

import typer
from msgspec.structs import asdict

from tuner_tui.cli.console import ExitCode, fail, find_run_or_exit, print_note, print_report
from tuner_tui.cli.options import AsJson, complete_run
from tuner_tui.runs.events.run_state import checkpoint_refusal
from tuner_tui.runs.launch.command import LaunchError
from tuner_tui.runs.launch.orders import end_leftovers, give_order, wait_ended
from tuner_tui.runs.read.reader import RunReader
from tuner_tui.runs.read.status import RunStatus, await_slurm, live_runs, read_status
from tuner_tui.runs.store.folder import Order, RunFolder, runs_dir


def stop(
    run: Annotated[
        str | None,
        typer.Argument(metavar="RUN", autocompletion=complete_run, help="Name of the run. Default: the active one."),
    ] = None,
    checkpoint_only: Annotated[
        bool, typer.Option("--checkpoint-only", help="Save a checkpoint now and continue training.")
    ] = False,
    now: Annotated[bool, typer.Option("--now", help="Send SIGTERM now and SIGKILL after ten seconds.")] = False,
    as_json: AsJson = False,
) -> None:
    """Save a checkpoint and stop a run, or remove one that waits from the queue.

    A training that cannot save on request gets SIGTERM at once; one that has not stopped after a minute, too. Waits
    until the run has ended.
    """
    if checkpoint_only and now:
        fail("--checkpoint-only and --now exclude each other.")
    folder = _live_run() if run is None else find_run_or_exit(run)
    await_slurm([folder])
    status = read_status(folder)
    if status.kind in ("foreign", "broken"):
        fail(status.sentence)
    if status.kind == "waiting" and checkpoint_only:
        fail("The run has not started yet.", ExitCode.FAILED)
    try:
        if status.kind == "waiting":
            give_order(folder, "stop")
        elif status.live:
            _stop(folder, status, checkpoint_only, now)
        else:
            print_note(f"Run {folder.id} is not running:")
            if not checkpoint_only:
                end_leftovers(folder, "kill" if now else "stop", print_note)
    except LaunchError as error:
        fail(str(error), ExitCode.FAILED)
    except OSError as error:
        fail(f"The request could not be sent: {error}", ExitCode.FAILED)
    status = read_status(folder)
    print_report({"run": folder.id, **asdict(status)}, as_json, [status.sentence])


def _stop(folder: RunFolder, status: RunStatus, checkpoint_only: bool, now: bool) -> None:
    """Give a live run its order, and wait until it has ended. Raises `LaunchError` and `OSError`."""
    why_not = checkpoint_refusal(RunReader(folder).poll().state)
    if checkpoint_only and why_not is not None:
        fail(why_not, ExitCode.FAILED)
    order: Order = "checkpoint" if checkpoint_only else "kill" if now else "stop"
    give_order(folder, order, print_note)
    if checkpoint_only:
        print_note(f"Run {folder.id} was asked to save a checkpoint.")
        return
    how = " It cannot save on request; SIGTERM ends it." if why_not and not now and status.kind != "pending" else ""
    kills = "" if now else f" `tuner-tui stop --now {folder.argument}` kills it."
    print_note(f"Stopping run {folder.id}.{how}{kills}")
    wait_ended(folder, order, print_note)


def _live_run() -> RunFolder:
    """Return the live run, which a terminal is asked for if there are several; otherwise exit with a sentence."""
    live = list(live_runs(runs_dir()))
    names = ", ".join(folder.id for folder in live)
    if not live:
        fail("No run is active.")
    if len(live) == 1:
        return live[0]
    if not sys.stdin.isatty():
        fail(f"Several runs are active; name one: {names}.")
    return find_run_or_exit(typer.prompt(f"Which run: {names}", err=True))
