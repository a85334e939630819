"""`tuner-tui profile`: what the steps of a running training take so long for."""

from __future__ import annotations

from functools import partial

import typer

from tuner_tui.cli.console import ExitCode, fail, find_run_or_exit, print_note, print_report, print_result
from tuner_tui.cli.estimate_report import peak_document, peak_report
from tuner_tui.cli.options import AsJson, RunName
from tuner_tui.runs.read.live_inspection import PROFILED_STEPS, profile_folder, record_memory
from tuner_tui.runs.read.reader import RunReader
from tuner_tui.runs.read.recorded_batches import read_peaks
from tuner_tui.runs.read.status import InspectionError, read_status
from tuner_tui.view.profile_rows import profile_rows


def profile(
    run: RunName = None,
    steps: int = typer.Option(
        PROFILED_STEPS, "--steps", min=1, max=100, metavar="N", help="Optimizer steps to profile."
    ),
    memory: bool = typer.Option(False, "--memory", help="Show what holds the GPU's memory at its peak."),
    as_json: AsJson = False,
) -> None:
    """Show what takes the time of a step in a running training.

    Times N optimizer steps of each rank on this machine, and then as many under torch.profiler: which part of a step,
    module and operator takes how long, what bounds the step, and what each remedy can win at most. The training goes
    on with the same results, and loses at most the time of 3 N steps. The trace stays in the run folder, for Perfetto.

    With --memory, PyTorch's CUDA allocator is recorded for N steps instead: the bytes at the peak by line, module and
    part of the step, and the one change that removes most. Of a run that has ended, what was recorded is shown: the
    automatic retry after out of memory records by itself, and so does a run with TUNER_MEMORY_HISTORY=N.
    """
    folder = find_run_or_exit(run)
    tell = (lambda _: None) if as_json else lambda state: print_note(f"{state} …")
    try:
        if memory:
            peaks = (
                record_memory(folder, steps, tell)
                if read_status(folder).kind == "running"
                else read_peaks(folder, RunReader(folder).poll().state)
            )
            if not peaks:
                fail(
                    f"{folder.id} has ended, and its memory was not recorded: only CUDA's allocator can be.",
                    ExitCode.FAILED,
                )
            print_report(list(map(peak_document, peaks)), as_json, peak_report(peaks))
            return
        result = profile_folder(folder, steps, tell)
    except InspectionError as error:
        fail(str(error), ExitCode.FAILED)
    print_result(result, as_json, partial(profile_rows, result))
