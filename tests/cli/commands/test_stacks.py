"""`tuner-tui stacks`: a run that waits, and one that has ended."""

from __future__ import annotations

import json
import sys

from tests.cli.commands.test_run import WAIT, Shell, shell
from tests.runs.sandbox import Fifo, fifo

__all__ = ["fifo", "shell"]

LAST_LINE = f"train.py:{WAIT.count(chr(10))})"


def test_a_run_that_waits(shell: Shell, fifo: Fifo) -> None:
    shell("run", "--detach", "--", sys.executable, shell.script(WAIT), str(fifo.path))
    assert fifo.word() == "up"
    shown = shell("stacks", "r001")
    assert shown.returncode == 0
    assert shown.stdout.startswith("The training waits in <module> (")
    assert LAST_LINE in shown.stdout
    answer = json.loads(shell("stacks", "r001", "--json").stdout)
    assert answer["hang"]["kind"] == "unknown"
    [process] = answer["processes"]
    assert process["threads"][0]["frames"][0]["function"] == "<module>"
    assert shell("stop", "r001", "--now").returncode == 0
    ended = shell("stacks", "r001")
    assert ended.returncode == 1
    assert "r001 has no process here that could answer." in ended.stderr
