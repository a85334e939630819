"""`tuner-tui profile`: what the steps of a running training take so long for."""

from __future__ import annotations

import typer

from tuner_tui.cli.console import FAILED, fail, find_run_or_exit, print_json, print_note, print_rows, report_width
from tuner_tui.cli.options import AsJson, RunName
from tuner_tui.runs.read.live_inspection import PROFILED_STEPS, profile_folder
from tuner_tui.view.profile_rows import profile_rows


def profile(
    run: RunName,
    steps: int = typer.Option(
        PROFILED_STEPS, "--steps", min=1, max=100, metavar="N", help="Optimizer steps to profile."
    ),
    as_json: AsJson = False,
) -> None:
    """Show what the steps of a running training take so long for.

    Times N optimizer steps of each rank on this machine, and then as many under torch.profiler: which part of a step,
    module and operator takes how long, what bounds the step, and what each remedy can win at most. The training goes
    on with the same results, and loses at most the time of 3 N steps. The trace stays in the run folder, for Perfetto.
    """
    folder = find_run_or_exit(run)
    try:
        result = profile_folder(folder, steps, (lambda _: None) if as_json else lambda state: print_note(f"{state} …"))
    except LookupError as error:
        fail(str(error), FAILED)
    if as_json:
        print_json(result)
    else:
        print_rows(profile_rows(result, report_width()))
