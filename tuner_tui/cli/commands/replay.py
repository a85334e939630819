"""`tuner-tui replay`: where a loss that is not finite comes from."""

from __future__ import annotations

from functools import partial
from typing import Annotated

import typer

from tuner_tui.cli.console import ExitCode, fail, find_run_or_exit, print_note, print_result
from tuner_tui.cli.options import AsJson, RunName
from tuner_tui.runs.launch.command import LaunchError
from tuner_tui.tuning.replayed_run import replay_run
from tuner_tui.view.finding_rows import replay_rows


def replay(
    run: RunName = None,
    step: Annotated[
        int | None, typer.Option("--step", metavar="N", min=1, help="Look for the cause in this step instead.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Repeat the steps before a loss that is nan or infinite, and show where it comes from.

    Starts the command of the run from its newest checkpoint before that step, and checks the result of every operator
    in the last steps: the first one that is not finite, its module and its inputs are shown. Neither it nor the script
    replaces a file of the run. Losses are compared with those of the run, to know whether it is the same training.
    """
    try:
        result = replay_run(find_run_or_exit(run), step, tell=lambda state: None if as_json else print_note(state))
    except LaunchError as error:
        fail(str(error), ExitCode.FAILED)
    print_result(result, as_json, partial(replay_rows, result))
