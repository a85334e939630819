"""Finds the run that a command names."""

from __future__ import annotations

from tuner_tui.cli.console import fail
from tuner_tui.runs.store.folder import RunFolder, RunNotFoundError, find_run, runs_dir


def find_run_or_exit(name: str) -> RunFolder:
    """Return the folder of the run `name`, or exit with a sentence."""
    try:
        return find_run(name, runs_dir())
    except RunNotFoundError as error:
        fail(str(error))
