"""`tuner-tui doctor`: what could go wrong before a training starts, as a list with marks."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Annotated

import typer

from tuner_tui.advice.file_checks import loaded_file_checks
from tuner_tui.advice.preflight import PreflightCheck, preflight_checks
from tuner_tui.advice.recommend.recommendation import DEFAULT_JOB, recommend, with_recommended
from tuner_tui.cli.commands.diagnose import diagnose
from tuner_tui.cli.console import ExitCode, print_report, report_width, row_lines
from tuner_tui.cli.machine import ReadMachine, read_local_machine, start_reading_inventory
from tuner_tui.cli.options import AsJson, InterpreterPath, PresetName, SettingValues
from tuner_tui.core.ownership import sharing_problem
from tuner_tui.core.text import hanging_lines
from tuner_tui.hardware.detect import BRIEF_TIMEOUT_S
from tuner_tui.hardware.environment import visible_indexes
from tuner_tui.hardware.interpreter import default_interpreter, find_incompatibilities, probe_versions
from tuner_tui.runs.launch.launchers import training_python
from tuner_tui.runs.launch.prepare import missing_path_problem
from tuner_tui.runs.log_parsing.failures import is_log
from tuner_tui.settings.job import DATA_TO_NAME, BuiltinJob, CommandJob
from tuner_tui.settings.model import format_value
from tuner_tui.settings.resolve import LaunchOptions, parse_flags, resolve_training
from tuner_tui.view.hardware_rows import hardware_rows

MARKS = {"good": "✓", "warning": "!", "wrong": "✗"}
NAME_WIDTH = 15


def doctor(
    context: typer.Context,
    file: Annotated[
        str | None,
        typer.Argument(metavar="FILE", help="A training tool's configuration file, a script, a preset, or a log."),
    ] = None,
    preset: PresetName = None,
    values: SettingValues = None,
    interpreter: InterpreterPath = None,
    hardware: Annotated[
        bool, typer.Option("--hardware", help="Only show GPUs, CPU, memory, disk and the training Python.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Check machine, Python and settings before a run.

    With FILE, also check what that configuration or script needs. If FILE is a log, explain what went wrong.

    Exit codes: 0 no problems, 1 problems found, 2 bad input.
    """
    if hardware:
        _print_hardware(interpreter, as_json)
        return
    # The GPUs are asked while the rest is imported.
    read_machine: ReadMachine | None = context.obj
    reading = start_reading_inventory(BRIEF_TIMEOUT_S) if read_machine is None else None

    if file is not None and preset is None and not values and Path(file).is_file() and is_log(Path(file)):
        if any(finding.severity != "hint" for finding in diagnose(file, as_json=as_json)):
            raise typer.Exit(ExitCode.FAILED)
        return
    preset = file if preset is None else preset
    training = resolve_training(LaunchOptions(preset, parse_flags(values or []), os.environ, default_job=DEFAULT_JOB))
    chosen, job = training.resolved, training.job or DEFAULT_JOB
    trusted = training.job_file is None or sharing_problem(training.job_file) is None
    if interpreter is None and isinstance(job, CommandJob) and trusted:
        interpreter = training_python(job, os.environ, Path.cwd())
    machine = read_local_machine(interpreter, reading) if read_machine is None else read_machine(interpreter)
    settings = with_recommended(chosen, machine.inventory, machine.interpreter, job).settings
    advised = recommend(machine.inventory, machine.interpreter, job, chosen.given).values if training.left_open else {}
    open_ = [f"{name} {format_value(name, advised[name])}" for name in training.left_open if name in advised]
    named = preset is not None and isinstance(job, BuiltinJob) and job.data != DATA_TO_NAME
    missing = missing_path_problem(job, Path.cwd()) if named and isinstance(job, BuiltinJob) else None
    files = () if missing is None else (PreflightCheck("Files", "wrong", missing),)
    if open_:  # the tool chooses by the machine: `bf16: auto`
        files = (*files, PreflightCheck("Left open", "good", f"On this machine, auto means {', '.join(open_)}."))
    # What a command computes in is known only where something says it.
    unknown = {"precision"} - chosen.origins.keys() if isinstance(job, CommandJob) else ()
    checks = (*preflight_checks(machine.inventory, machine.interpreter, settings, job, unknown), *files)
    if training.loaded is not None:
        checks = (*checks, *loaded_file_checks(training.loaded, chosen, job, machine.inventory, machine.interpreter))
    print_report(checks, as_json, (line for check in checks for line in _check_lines(check)))
    if any(check.state == "wrong" for check in checks):
        raise typer.Exit(ExitCode.FAILED)


def _print_hardware(interpreter: Path | None, as_json: bool) -> None:
    reading = start_reading_inventory(BRIEF_TIMEOUT_S)  # while the Python is asked
    python = probe_versions(interpreter or default_interpreter())
    inventory = reading.result(threading.TIMEOUT_MAX)
    document = {
        "inventory": inventory,
        "usable": {
            "cores": inventory.cpu.usable_cores,
            "memory_bytes": inventory.memory.usable_bytes,
            "gpus": visible_indexes(inventory.gpus, inventory.cuda_visible_devices),
        },
        "interpreter": python,
        "misfits": find_incompatibilities(inventory, python),
    }
    head = " · ".join(filter(None, (inventory.hostname, inventory.container)))
    print_report(document, as_json, [head, *row_lines(hardware_rows(inventory, python, report_width()))])


def _check_lines(check: PreflightCheck) -> list[str]:
    head = f"{MARKS[check.state]} {check.name:<{NAME_WIDTH}}"
    return [*hanging_lines(head, check.sentence), *hanging_lines(f"{' ' * len(head)}→ ", check.advice)]
