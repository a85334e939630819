"""What is about to start, said before it does: the exact command, what is set from within, what is not applied."""

from __future__ import annotations

import shlex
from pathlib import Path

from tuner_tui.cli.output import note
from tuner_tui.runs.prepare import Prepared


def announce(prepared: Prepared) -> None:
    """Say it on standard error."""
    for line in announcement(prepared):
        note(line)


def announcement(prepared: Prepared) -> list[str]:
    """The lines; secrets are hidden in them."""
    applied = prepared.applied
    lines = [f"Command      {shlex.join(prepared.shown)}"]
    if prepared.cwd != Path.cwd():
        lines.append(f"Folder       {prepared.cwd}")
    if prepared.checkpoint is not None:
        lines.append(f"Resumes      {prepared.checkpoint}")
    if applied.inject:
        lines.append("Set inside   " + ", ".join(f"{name} {value}" for name, value in applied.inject.items()))
    if applied.not_applied:
        lines.append("Not applied  " + ", ".join(applied.not_applied))
        lines += [f"             {why}" for why in applied.notes]
    return lines
