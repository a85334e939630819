"""The processes of a run, as they are named."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tuner_tui.core.procfs import identify_process
from tuner_tui.runs.supervise.run_processes import OBSERVER_SITE, ApartProcesses, left_out_observer

NAMES = """
import os, sys
from tuner_tui.core.procfs import read_stat
from tuner_tui.runs.supervise.run_processes import RunProcesses
os.setuid(65534)
processes = RunProcesses((read_stat(int(sys.argv[1])),))
print(processes.names(), processes.of_others().members == processes.members)
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
    ("library", "path", "options", "reason"),
    [
        ("libtorch_cpu.so", f"{OBSERVER_SITE}:/mine", ["-u", "-Wignore::EncodingWarning"], None),
        ("libtorch_cpu.so", "/mine", [], "the command replaces PYTHONPATH"),
        ("libtorch_cpu.so", None, [], "the command replaces PYTHONPATH"),
        ("libtorch_cpu.so", str(OBSERVER_SITE), ["-uE"], "python -uE ignores PYTHONPATH"),
        ("libtorch_cpu.so", str(OBSERVER_SITE), ["-B", "-I"], "python -I ignores PYTHONPATH"),
        ("libz.so", "/mine", ["-I"], None),
    ],
)
def test_a_command_that_leaves_out_the_observer(
    tmp_path: Path, library: str, path: str | None, options: list[str], reason: str | None
) -> None:
    (tmp_path / library).write_bytes(b"0")
    env = {} if path is None else {"PYTHONPATH": path}
    command = [sys.executable, *options, "-c", MAPS_A_FILE, str(tmp_path / library)]
    with subprocess.Popen(command, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdout.readline()
        answer = left_out_observer(process.pid)
        process.stdin.write(b"\n")
    assert (answer or "").startswith(reason or "")
    assert (answer is None) == (reason is None)
