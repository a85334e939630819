"""Evidence of how a training ended: log, kernel, cgroup, a port that is really taken."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from tuner_tui.runs.supervise.exit_evidence import (
    logged_kill,
    read_log_evidence,
    taken_port_evidence,
)

CAUGHT_THEN_DIED = """Traceback (most recent call last):
  File "train.py", line 9, in step
    loss.backward()
torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB
reducing the batch size and retrying
step 12 loss 1.93
Traceback (most recent call last):
  File "train.py", line 30, in <module>
    main()
ValueError: the data has no labels"""


@pytest.mark.parametrize(
    "line",
    [
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB",
        "RuntimeError: [enforce fail at alloc_cpu.cpp:117] err == 0. DefaultCPUAllocator: can't allocate memory",
        "MemoryError",
        "[rank3]: torch.OutOfMemoryError: CUDA out of memory.",
    ],
)
def test_out_of_memory_messages(tmp_path: Path, line: str) -> None:
    log = tmp_path / "output.log"
    log.write_text(f"step 1\nTraceback (most recent call last):\n  File x\n{line}\n")
    found = read_log_evidence(log).out_of_memory
    assert found is not None
    assert found in line


@pytest.mark.parametrize(
    "line",
    [
        "KeyError: 'labels'",
        "retrying after out of memory went well",
        "  except MemoryError:",
        "print('MemoryError')",
        CAUGHT_THEN_DIED,
    ],
)
def test_messages_that_only_mention_memory(tmp_path: Path, line: str) -> None:
    log = tmp_path / "output.log"
    log.write_text(line + "\n")
    assert read_log_evidence(log).out_of_memory is None


def test_a_failure_that_the_training_survived_does_not_count(tmp_path: Path) -> None:
    log = tmp_path / "output.log"
    log.write_text("MemoryError\n" + "step 3 loss 1.0\n" * 40)
    assert read_log_evidence(log).out_of_memory is None
    assert read_log_evidence(tmp_path / "none").out_of_memory is None


@pytest.mark.parametrize(
    ("line", "killed"),
    [
        ("RuntimeError: DataLoader worker (pid 77) is killed by signal: Killed. ", True),
        ("  exitcode  : -9 (pid: 77)", True),
        ("traceback : Signal 9 (SIGKILL) received by PID 77", True),
        ("  exitcode  : 1 (pid: 77)", False),
        ("DataLoader worker is killed by signal: Segmentation fault.", False),
    ],
)
def test_messages_of_a_kill(tmp_path: Path, line: str, killed: bool) -> None:
    log = tmp_path / "output.log"
    log.write_text(line + "\n")
    assert logged_kill(log) is killed


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("100%|###\rerror: the data has no column `nope`.\n", "the data has no column `nope`"),
        ("usage: train.py [-h]\ntrain.py: error: unrecognized arguments: --x", "unrecognized arguments: --x"),
        ("\x1b[31mERROR: no such file\x1b[0m\x07\n\n", "no such file"),
        (
            "python: can't open file '/w/train.py': [Errno 2] No such file or directory\nE1 launcher report\n",
            "python: can't open file '/w/train.py': [Errno 2] No such file or directory",
        ),
        ("/env/bin/python3: No module named nothere", "python3: No module named nothere"),
        ("/bin/bash: line 1: acelerate: command not found\n", "bash: line 1: acelerate: command not found"),
        ("error: early\nbye\n", None),
        ("eval_error: 0.2\n", None),
        ("error: \n", None),
        ("", None),
    ],
)
def test_a_complaint_that_ends_the_log(tmp_path: Path, text: str, why: str | None) -> None:
    log = tmp_path / "output.log"
    log.write_bytes(text.encode())
    assert read_log_evidence(log).error == why


TORCHRUN = (
    "torch.distributed.DistNetworkError: The server socket has failed to listen on any local network address. "
    "port: {}, useIpv6: false, code: -98, name: EADDRINUSE, message: address already in use"
)


@pytest.mark.parametrize(
    "message",
    [TORCHRUN, "RuntimeError: The server socket has failed to bind to [::]:{} (errno: 98 - Address already in use)."],
)
def test_the_process_and_a_free_port_are_named(message: str) -> None:
    with socket.socket() as held:
        held.bind(("", 0))
        held.listen()
        port = held.getsockname()[1]
        holder, free = taken_port_evidence(f"step 3\n{message.format(port)}\n")
        assert holder.startswith(f"port {port} is used by process {os.getpid()} (")
        number = int(free.removeprefix("port ").removesuffix(" is free"))
        assert number != port
        with socket.socket() as other:
            other.bind(("", number))


@pytest.mark.parametrize("log", ["", "port: 29500 is used", "[Errno 98] Address already in use"])
def test_silence_without_a_taken_port(log: str) -> None:
    assert taken_port_evidence(log) == ()
