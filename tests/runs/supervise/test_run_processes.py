"""The processes of a run, as they are named."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tuner_tui.core.procfs import identify_process
from tuner_tui.runs.supervise.run_processes import OBSERVER_SITE, ApartProcesses, leaves_out_observer

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


def test_a_command_line_that_ends_after_two_options_is_no_reason_to_stop(tmp_path: Path) -> None:
    training = identify_process(os.getpid())
    assert training is not None
    command = ["python", "-P", "-m"]
    with subprocess.Popen(command, executable="/bin/bash", stdin=subprocess.PIPE, start_new_session=True) as process:
        apart = ApartProcesses(tmp_path, training).look()
        assert process.stdin is not None
        process.stdin.close()
    assert process.pid in [each.pid for each in apart]


MAPS_A_FILE = """
import mmap, sys
with open(sys.argv[1], "r+b") as file:
    mapped = mmap.mmap(file.fileno(), 0)
print(flush=True)
input()
"""


@pytest.mark.parametrize(
    ("library", "path", "leaves_out"),
    [
        ("libtorch_cpu.so", f"{OBSERVER_SITE}:/mine", False),
        ("libtorch_cpu.so", "/mine", True),
        ("libtorch_cpu.so", None, True),
        ("libz.so", "/mine", False),
    ],
)
def test_a_command_that_replaces_the_path_of_the_observer(
    tmp_path: Path, library: str, path: str | None, leaves_out: bool
) -> None:
    (tmp_path / library).write_bytes(b"0")
    env = {} if path is None else {"PYTHONPATH": path}
    command = [sys.executable, "-S", "-c", MAPS_A_FILE, str(tmp_path / library)]
    with subprocess.Popen(command, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdout.readline()
        answer = leaves_out_observer(process.pid)
        process.stdin.write(b"\n")
    assert answer is leaves_out
