"""Calls a command in this process."""

from __future__ import annotations

from typer.testing import CliRunner, Result

from tuner_tui.cli.options import build_app


def invoke(*words: str, machine: object = None, stdin: str | bytes | None = None) -> Result:
    """Call `tuner-tui WORDS`; `machine` reads the machine in place of the command's own reader."""
    return CliRunner().invoke(build_app(), words, obj=machine, input=stdin, env={"COLUMNS": "120"})
