"""`tuner-tui profile`: a run whose steps wait for data, and one that cannot be profiled."""

from __future__ import annotations

import gzip
import json
import sys
import time
from pathlib import Path

from tests.cli.commands.test_run import WAIT, Shell, shell
from tests.inspection.test_ask import select_for
from tests.inspection.test_ask_profile import SCRIPT
from tests.runs.sandbox import Fifo, fifo
from tuner_tui.runs.events.types import Profiled
from tuner_tui.runs.read.reader import RunReader
from tuner_tui.runs.store.folder import RunFolder

__all__ = ["fifo", "shell"]


def test_a_run_that_waits_for_data(shell: Shell) -> None:
    shell("run", "--detach", "--", sys.executable, str(SCRIPT), "slow-loader")
    folder = RunFolder(shell.home / "state" / "runs" / "r001")
    reader, deadline = RunReader(folder), time.monotonic() + 60
    while (reader.poll().state.step or 0) < 2 and time.monotonic() < deadline:
        select_for(0.2)
    shown = shell("profile", "r001", "--steps", "3", "--json")
    [rank] = json.loads(shown.stdout)["ranks"]
    assert rank["verdict"]["bound"] == "input"
    assert "decode" in rank["verdict"]["where"]
    assert json.loads(gzip.decompress(Path(rank["trace"]).read_bytes()))["traceEvents"]
    while reader.poll().state.profiled is None and time.monotonic() < deadline:
        select_for(0.2)
    profiled = reader.poll().state.profiled
    assert isinstance(profiled, Profiled)
    assert "profiled: Input-bound" in shell("diagnose", "r001").stdout
    assert shell("stop", "r001", "--now").returncode == 0
    ended = shell("profile", "r001")
    assert ended.returncode == 1
    assert "r001 has no process here that could answer." in ended.stderr


def test_a_run_without_steps(shell: Shell, fifo: Fifo) -> None:
    shell("run", "--detach", "--", sys.executable, shell.script(WAIT), str(fifo.path))
    assert fifo.word() == "up"
    shown = shell("profile", "r001")
    assert shown.returncode == 1
    assert "without the observer none can be profiled" in shown.stderr
    assert shell("stop", "r001", "--now").returncode == 0
