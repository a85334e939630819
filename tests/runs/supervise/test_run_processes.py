"""The processes of a run, as they are named."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

NAMES = """
import os, sys
from tuner_tui.core.procfs import read_stat
from tuner_tui.runs.supervise.run_processes import RunProcesses
os.setuid(65534)
processes = RunProcesses((read_stat(int(sys.argv[1])),))
print(processes.names(), processes.of_others().own == processes.own)
"""


@pytest.mark.skipif(os.getuid() != 0, reason="only root may become another user")
def test_a_process_that_only_another_user_can_end_is_named_with_that_user() -> None:
    with subprocess.Popen(["sleep", "600"]) as process:
        try:
            command = [sys.executable, "-c", NAMES, str(process.pid)]
            named = subprocess.run(command, capture_output=True, text=True)
        finally:
            process.kill()
    assert named.stdout == f"{process.pid} (sleep 600; only root can end it) True\n", named.stderr
