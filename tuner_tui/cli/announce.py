"""What is about to start, said before it does."""

from __future__ import annotations

from tuner_tui.cli.output import note
from tuner_tui.runs.announcement import announcement
from tuner_tui.runs.prepare import Prepared


def announce(prepared: Prepared) -> None:
    """Say it on standard error, so that standard output stays the result's."""
    for label, text in announcement(prepared):
        note(f"{label:<12} {text}")
