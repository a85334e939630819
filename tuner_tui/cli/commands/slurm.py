"""Train on a Slurm cluster."""

from __future__ import annotations

from typing import Annotated

import typer

from tuner_tui.cli.console import print_folder, print_line, print_note
from tuner_tui.cli.training_options import RunOptions, prepare_announced, taking, with_notify_target
from tuner_tui.runs.launch.prepare import build_request
from tuner_tui.runs.launch.slurm_submission import cluster_request, job_script, submit
from tuner_tui.runs.slurm import parse_options

group = typer.Typer(help=__doc__, no_args_is_help=True, rich_markup_mode=None, add_completion=False)


@group.command("submit", context_settings={"allow_interspersed_args": False})
@taking(RunOptions)
def submit_run(
    training: RunOptions,
    partition: Annotated[str | None, typer.Option(metavar="NAME", help="Partition.")] = None,
    gres: Annotated[str | None, typer.Option(metavar="LIST", help="Resources, such as gpu:2.")] = None,
    time: Annotated[
        str | None,
        typer.Option(
            metavar="LIMIT",
            help="Time limit, such as 4:00:00. Two minutes before it the run saves a checkpoint and is requeued.",
        ),
    ] = None,
    nodes: Annotated[str | None, typer.Option(metavar="N", help="Number of nodes, joined by the launcher.")] = None,
    sbatch_options: Annotated[
        list[str] | None,
        typer.Option(
            "--sbatch-option",
            metavar="KEY=VALUE",
            help="Any option of sbatch by its long name, such as account=nlp, exclusive or no-requeue; repeatable.",
        ),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the sbatch script, submit nothing.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the run and the job as JSON.")] = False,
) -> None:
    """Submit a training as a Slurm job, and return.

    `ps`, `logs`, `stop` and the screen work on the run from the login node.

    Exit codes: 0 submitted, 2 bad input or refused by Slurm, 4 already running.
    """
    named = {"partition": partition, "gres": gres, "time": time, "nodes": nodes}
    slurm = parse_options(named, sbatch_options or [])
    request = with_notify_target(cluster_request(build_request(training.parse()), slurm), training.notify)
    prepared = prepare_announced(request, training.interpreter)
    script = job_script(slurm, prepared.folder).rstrip()
    if dry_run:
        print_line(script)
        return
    print_note(script)
    folder, job_id = submit(prepared, slurm)
    print_folder("run", folder, as_json, job=job_id)
    print_note(f"Submitted as Slurm job {job_id}. `tuner-tui logs -f --events {folder.argument}` follows it.")
