"""What is about to start, said before it does."""

from __future__ import annotations

from tuner_tui.cli.output import note
from tuner_tui.runs.launch.prepare import PreparedLaunch
from tuner_tui.runs.launch.summary import launch_summary


def announce(prepared: PreparedLaunch) -> None:
    """Say it on standard error, so that standard output stays the result's."""
    for label, text in launch_summary(prepared):
        note(f"{label:<12} {text}")
