"""`tuner-tui slurm submit`: submits a training to a Slurm cluster."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from tuner_tui.cli.console import ALREADY_RUNNING, USAGE, fail, print_line, print_note
from tuner_tui.cli.launch_request import check_interpreter, parse_launch_options, print_announcement, with_notify_target
from tuner_tui.cli.options import (
    ApplyMode,
    CommandWords,
    DataName,
    InterpreterPath,
    LauncherName,
    MemoryLimit,
    ModelName,
    NotifyTarget,
    PresetName,
    ProcessCount,
    ResumedRun,
    RetryCount,
    SettingValues,
    TaskName,
)
from tuner_tui.runs.launch.command import LaunchError
from tuner_tui.runs.launch.prepare import build_request, prepare
from tuner_tui.runs.launch.slurm_submission import cluster_request, job_script, submit
from tuner_tui.runs.launch.start import DuplicateRunError
from tuner_tui.runs.slurm import SlurmOptionError, parse_options
from tuner_tui.settings.errors import SettingsError
from tuner_tui.settings.resolve import LaunchOptions


def register(app: typer.Typer) -> None:
    """Add the group `slurm`."""
    group = typer.Typer(help="Train on a Slurm cluster.", no_args_is_help=True, rich_markup_mode=None)
    group.command("submit", context_settings={"allow_interspersed_args": False})(submit_run)
    app.add_typer(group, name="slurm")


def submit_run(
    command: CommandWords = None,
    preset: PresetName = None,
    values: SettingValues = None,
    apply: ApplyMode = None,
    launcher: LauncherName = None,
    processes: ProcessCount = None,
    model: ModelName = None,
    task: TaskName = None,
    data: DataName = None,
    resume: ResumedRun = None,
    memory_limit: MemoryLimit = None,
    fallback: RetryCount = None,
    interpreter: InterpreterPath = None,
    notify: NotifyTarget = None,
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
    options = LaunchOptions(
        preset,
        command=tuple(command or ()),
        apply=apply,
        launcher=launcher,
        processes=processes,
        model=model,
        task=task,
        data=data,
        fallback=fallback,
        resume=resume,
        interpreter=interpreter,
    )
    try:
        slurm = parse_options(named, sbatch_options or [])
        options = parse_launch_options(options, values, memory_limit)
        request = with_notify_target(cluster_request(build_request(options), slurm), notify)
        prepared = prepare(request)
        check_interpreter(interpreter, request, prepared)
        print_announcement(prepared)
        script = job_script(slurm, prepared.folder).rstrip()
        if dry_run:
            print_line(script)
            return
        print_note(script)
        folder, job_id = submit(prepared, slurm)
    except DuplicateRunError as error:
        fail(str(error), ALREADY_RUNNING)
    except (SettingsError, SlurmOptionError, LaunchError) as error:
        fail(str(error), USAGE)
    print_line(json.dumps({"run": folder.id, "path": str(folder.path), "job": job_id}) if as_json else folder.id)
    print_note(f"Submitted as Slurm job {job_id}. `tuner-tui logs -f --events {folder.id}` follows it.")
