"""Evidence of how a training ended: log, kernel, cgroup, a port that is really taken, steps not yet written."""

from __future__ import annotations

import os
import socket
from dataclasses import replace
from pathlib import Path

import pytest

from tests.runs.sandbox import Sandbox, wait_ended
from tuner_tui.runs.events.run_state import RankState, RunState
from tuner_tui.runs.events.types import Steps
from tuner_tui.runs.store.folder import RunFolder
from tuner_tui.runs.supervise.exit_evidence import (
    logged_kill,
    read_log_evidence,
    taken_port_evidence,
    unwritten_steps,
    with_unwritten_steps,
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


def rank(calls: int, own_steps: int, pid: int | None = 7) -> RankState:
    latest = Steps(t=100.0, rank=0, step=own_steps, own_steps=own_steps, train_s=1.0, optimizer_calls=calls)
    return RankState(rank=0, pid=pid, latest=latest)


@pytest.mark.parametrize(
    ("written", "state", "steps"),
    [
        ("00000000000000000130\n", rank(100, 100), 30),
        ("130", rank(100, 50), 15),  # two optimizers make one step together
        ("100", rank(100, 100), 0),
        ("90", rank(100, 100), 0),  # damaged: nothing is taken back
        ("many", rank(100, 100), 0),
        ("130", rank(0, 0), 0),
        ("130", rank(100, 100, pid=None), 0),
        ("130", rank(100, 100, pid=8), 0),
    ],
)
def test_calls_after_the_last_counters_are_steps(tmp_path: Path, written: str, state: RankState, steps: int) -> None:
    folder = RunFolder(tmp_path)
    folder.optimizer_calls(None, 7).write_text(written)
    assert unwritten_steps(state, folder) == steps
    assert with_unwritten_steps(RunState(step=100, ranks={0: state}), folder).step == 100 + steps


def test_two_hosts_count_the_same_pid_apart(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    for host, calls in (("n1", 110), ("n2", 103)):
        folder.optimizer_calls(host, 7).write_text(str(calls))
    ranks = [replace(rank(100, 100), rank=number, host=host) for number, host in enumerate(("n1", "n2"))]
    assert [unwritten_steps(one, folder) for one in ranks] == [10, 3]


@pytest.mark.full
@pytest.mark.train
def test_a_killed_loop_ends_at_its_last_step(box: Sandbox) -> None:
    """It kills itself long before the counters are written for the second time."""
    folder = box.launch(
        """
        import os, signal, torch
        weight = torch.nn.Parameter(torch.zeros(1))
        optimizer = torch.optim.SGD([weight], lr=0.1)
        for step in range(50):
            (weight * 2).sum().backward()
            optimizer.step()
        os.kill(os.getpid(), signal.SIGKILL)
        """
    )
    assert "at step 50" in (wait_ended(folder).sentence or "")
