"""`tuner-tui stacks`: where each process of a running training is, and why it does not move."""

from __future__ import annotations

from functools import partial

from tuner_tui.cli.console import ExitCode, fail, find_run_or_exit, print_result
from tuner_tui.cli.options import AsJson, RunName
from tuner_tui.runs.read.live_inspection import inspect_folder
from tuner_tui.runs.read.status import InspectionError
from tuner_tui.view.stack_rows import stack_rows


def stacks(run: RunName = None, as_json: AsJson = False) -> None:
    """Show where each process of a run is, and what a run that hangs waits for.

    Asks every rank and loader worker on this machine for the stacks of its threads, also while it is busy in C, and the
    ranks for the collectives that they wait in. Takes two seconds at most and changes nothing in the training.
    """
    try:
        inspection = inspect_folder(find_run_or_exit(run))
    except InspectionError as error:
        fail(str(error), ExitCode.FAILED)
    print_result(inspection, as_json, partial(stack_rows, inspection))
