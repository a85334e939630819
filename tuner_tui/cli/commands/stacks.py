"""`tuner-tui stacks`: where each process of a running training is, and why it does not move."""

from __future__ import annotations

import time

from tuner_tui.cli.console import FAILED, fail, find_run_or_exit, print_json, print_rows, report_width
from tuner_tui.cli.options import AsJson, RunName
from tuner_tui.runs.read.reader import RunReader
from tuner_tui.runs.read.status import read_status
from tuner_tui.runs.store.supervisor_state import read_supervisor_state
from tuner_tui.runs.supervise.run_processes import find_processes
from tuner_tui.runs.supervise.stall import inspect_run
from tuner_tui.view.stack_rows import stack_rows


def stacks(run: RunName, as_json: AsJson = False) -> None:
    """Show where each process of a run is, and what a run that hangs waits for.

    Asks every rank and loader worker on this machine for the stacks of its threads, also while it is busy in C, and the
    ranks for the collectives that they wait in. Takes two seconds at most and changes nothing in the training.
    """
    folder = find_run_or_exit(run)
    status = read_status(folder)
    supervision = read_supervisor_state(folder.state)
    if not status.live or supervision is None or supervision.training is None:
        fail(f"{folder.id} has no process here that could answer. {status.sentence}", FAILED)
    processes = find_processes(folder.path, supervision.training, recorded=supervision.apart)
    everybody = (*processes.own, *processes.detached)
    inspection = inspect_run(everybody, RunReader(folder).poll().state, supervision.machine.host, time.time())
    if as_json:
        print_json(inspection)
    else:
        print_rows(stack_rows(inspection, report_width()))
