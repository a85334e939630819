"""`tuner-tui diagnose RUN|FILE|-`: what went wrong or holds a training back, and what to change."""

from __future__ import annotations

import sys
import time
from errno import ENOENT
from pathlib import Path

import typer

from tuner_tui.advice.diagnose import diagnose as diagnose_situation
from tuner_tui.advice.situation import Situation, situation_of_run
from tuner_tui.advice.verification import verify_settings
from tuner_tui.cli.console import fail, print_json, print_line
from tuner_tui.cli.render.diagnose import check_lines, diagnosis_document, finding_lines
from tuner_tui.cli.render.text import join_sections
from tuner_tui.runs.events.run_state import RunState
from tuner_tui.runs.log_parsing import lines
from tuner_tui.runs.store.folder import RunFolder, RunNotFoundError, find_run, runs_dir


def register(app: typer.Typer) -> None:
    """Add the command `diagnose`."""
    app.command("diagnose")(diagnose)


def diagnose(
    source: str = typer.Argument(metavar="RUN|FILE|-", help="A run, a log file, or - for standard input."),
    as_json: bool = typer.Option(False, "--json", help="Print JSON."),
) -> None:
    """Show what failed or limits a training, and how to fix it."""
    try:
        situation = read_situation(source)
    except (OSError, RunNotFoundError) as error:
        fail(f"tuner-tui diagnose: {_error_sentence(error, source)}")
    if situation.state == RunState() and not any(line.strip() for line in situation.log):
        fail(f"tuner-tui diagnose: {'the input' if source == '-' else source} is empty.")
    findings, checks = diagnose_situation(situation), verify_settings(situation)
    if as_json:
        print_json(diagnosis_document(findings, checks))
    else:
        print_line("\n".join(join_sections([*finding_lines(findings, checks), check_lines(checks)])))


def read_situation(source: str) -> Situation:
    """Read a run folder, an output file or standard input. Raises `OSError` and `RunNotFoundError`."""
    if source == "-":
        return Situation(RunState(), time.time(), log=lines.read_stream_head_and_tail(sys.stdin.buffer))
    path = Path(source)
    if path.exists() and not path.is_dir():
        return Situation(RunState(), time.time(), log=lines.read_head_and_tail(path, any_kind=True))
    folder = RunFolder(path.resolve()) if path.is_dir() else find_run(source, runs_dir())
    if not any(file.exists() for file in (folder.record, folder.events, folder.output_log)):
        raise FileNotFoundError(ENOENT, "the run folder is empty")
    return situation_of_run(folder)


def _error_sentence(error: OSError | RunNotFoundError, source: str) -> str:
    if isinstance(error, OSError):
        return f"{source} cannot be read: {error.strerror or error}."
    return f"{error} There is no file of that name either."
