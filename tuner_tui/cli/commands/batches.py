"""`tuner-tui batches`: which rows of the data the steps of a run were made of, and which of them are suspicious."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

import typer

from tuner_tui.cli.console import ExitCode, fail, find_run_or_exit, print_report
from tuner_tui.cli.options import AsJson, RunName
from tuner_tui.core.json_struct import to_json
from tuner_tui.core.text import format_table, wrap_text
from tuner_tui.inspection.suspect_batches import StepBatch
from tuner_tui.runs.read.reader import RunReader
from tuner_tui.runs.read.recorded_batches import read_batches, read_replay, read_suspects

SUSPECTS_SHOWN = 8


def batches(
    run: RunName = None,
    step: Annotated[int | None, typer.Option("--step", metavar="N", min=1, help="List the rows of this step.")] = None,
    as_json: AsJson = False,
) -> None:
    """Show the steps whose loss is not finite or jumps, and the rows of the data in their batches.

    Rows are numbered as in the dataset that the DataLoader was given, from 0. Older steps of a long run are
    dropped; of a stream the rows are not known. What the rows of a step hold is shown once it was replayed.
    """
    folder = find_run_or_exit(run)
    recorded = read_batches(folder)
    if not recorded:
        fail(
            f"{folder.id} has recorded no steps: its observer was not there, or no DataLoader was read.",
            ExitCode.FAILED,
        )
    replay = read_replay(folder)
    if step is not None:
        chosen = [batch for batch in recorded if batch.step == step]
        if not chosen:
            fail(f"Step {step:,} is not recorded; steps {_span(recorded)} are.", ExitCode.FAILED)
        texts = {} if replay is None else replay.texts
        documents = [{**to_json(batch, whole=True), "texts": texts.get(batch.rank, {})} for batch in chosen]
        shown = [text for batch in chosen for text in _row_lines(batch, texts.get(batch.rank, {}))]
        hint = f"`tuner-tui replay {folder.argument} --step {step}` reads what the rows hold."
        print_report(documents, as_json, [*_step_lines(chosen), *(shown or [hint])])
        return
    suspects = read_suspects(folder, RunReader(folder).poll().state)
    steps = {"first_step": recorded[0].step, "last_step": recorded[-1].step}
    lines = [f"Steps {_span(recorded)} are recorded."]
    if suspects.common_rows:
        lines.append(f"{len(suspects.sharing)} jumps of the loss were each with {suspects.common_names}.")
    if replay is not None:
        lines.append(replay.sentence)
    lines += [f"- {suspect.sentence}" for suspect in suspects.suspects[:SUSPECTS_SHOWN]]
    if len(suspects.suspects) > SUSPECTS_SHOWN:
        lines.append(f"- {len(suspects.suspects) - SUSPECTS_SHOWN} more: `--json` lists all.")
    if not suspects.suspects:
        lines.append("All losses among them are finite, and none jumps.")
    report = (part for text in lines for part in wrap_text(text))
    print_report({**steps, "suspects": suspects, "replay": replay}, as_json, report)


def _span(recorded: list[StepBatch]) -> str:
    return f"{recorded[0].step:,} to {recorded[-1].step:,}"


def _step_lines(chosen: list[StepBatch]) -> list[str]:
    rows = [("rank", "epoch", "micro batch", "loss", "shape", "rows")]
    for batch in chosen:
        for number, drawn in enumerate(batch.rows or ((),)):
            loss = f"{batch.losses[number]:.4g}" if len(batch.losses) == len(batch.rows or ()) else ""
            shape = " × ".join(map(str, batch.shape))
            epoch = "" if batch.epoch is None else str(batch.epoch)
            rows.append((str(batch.rank), epoch, str(number + 1), loss, shape, ", ".join(map(str, drawn)) or "–"))
    return format_table(rows, right={0, 1, 2, 3}, indent="  ")


def _row_lines(batch: StepBatch, texts: Mapping[int, str]) -> list[str]:
    rank = f" of rank {batch.rank}" if batch.rank else ""
    lines = [f"row {row}{rank}: {texts[row]}" for row in batch.rows_of(None) if row in texts]
    return [part for line in lines for part in wrap_text(line, subsequent_indent="  ")]
