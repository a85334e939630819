"""Outcomes of runs, and the evidence for them."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from signal import SIGABRT, SIGKILL, SIGSEGV, SIGTERM
from typing import Any

import pytest
from msgspec.structs import replace

from tuner_tui.runs.events.run_state import RankState, RunState
from tuner_tui.runs.events.types import Exited, OutOfMemory, Raised
from tuner_tui.runs.log_parsing.lines import parse_lines
from tuner_tui.runs.supervise.outcome import (
    NO_LOG,
    ExitLog,
    determine_outcome,
    read_exit_log,
    reports_kill,
    slurm_end,
    taken_port_evidence,
)

AT = RunState(step=1200, total_steps=9000)
OOM = OutOfMemory(t=1.0, message="CUDA out of memory. Tried to allocate 2.00 GiB", where="training", step=1200)

LATER = Raised(t=1.5, type="ValueError", message="later")


def exited(code: int | None = None, signal: int | None = None, oom_kill: bool | None = None) -> Exited:
    return Exited(t=2.0, exit_code=code, signal=signal, oom_kill=oom_kill)


def with_(state: RunState = AT, **more: object) -> RunState:
    return replace(state, **more)


@pytest.mark.parametrize(
    ("state", "end", "outcome", "words"),
    [
        (AT, exited(0), "completed", "step 1,200 of 9,000"),
        (RunState(), exited(0), "completed", "Completed."),
        (AT, exited(1), "failed", "exit code 1"),
        (AT, exited(signal=SIGSEGV), "failed", "SIGSEGV"),
        (AT, exited(signal=SIGKILL), "failed", "SIGKILL"),
        (AT, exited(signal=SIGKILL, oom_kill=True), "out-of-memory", "kernel killed"),
        (with_(out_of_memory=OOM), exited(1), "out-of-memory", "while training at step 1,200"),
        (with_(out_of_memory=OOM), exited(0), "completed", "Completed"),
        (with_(raised=Raised(t=1.0, type="builtins.MemoryError", message="")), exited(1), "out-of-memory", "MemoryErr"),
        (with_(raised=Raised(t=1.0, type="KeyError", message="'labels'")), exited(1), "failed", "KeyError: 'labels'"),
        (with_(out_of_memory=OOM, raised=LATER), exited(1), "failed", "ValueError: later"),
        (with_(stop_requested="stop"), exited(0), "stopped", "on request"),
        (with_(stop_requested="stop", step=9000), exited(0), "completed", "9,000 of 9,000"),
        (with_(stop_requested="terminate"), exited(signal=SIGTERM), "stopped", "on request"),
        (with_(stop_requested="kill"), exited(signal=SIGKILL), "stopped", "on request"),
        (with_(stop_requested="stop", out_of_memory=OOM), exited(1), "out-of-memory", "CUDA out of memory"),
        (with_(stop_requested="kill"), exited(signal=SIGKILL, oom_kill=True), "out-of-memory", "kernel"),
        (AT, exited(), "lost", "without a supervisor"),
        (with_(stop_requested="kill"), exited(), "stopped", "on request"),
        (with_(ranks={0: RankState(0, ended=True)}), exited(), "completed", "Completed"),
        (with_(raised=Raised(t=1.0, type="KeyError", message="x")), exited(), "failed", "KeyError"),
    ],
)
def test_outcome_and_sentence(state: RunState, end: Exited, outcome: str, words: str) -> None:
    judged = determine_outcome(state, end)
    assert judged.outcome == outcome
    assert words in judged.sentence


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
    ("text", "out_of_memory"),
    [
        ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB", True),
        ("RuntimeError: [enforce fail at alloc_cpu.cpp:1] DefaultCPUAllocator: can't allocate memory", True),
        ("[rank3]: torch.OutOfMemoryError: CUDA out of memory.", True),
        ("retrying after out of memory went well", False),
        ("print('MemoryError')", False),
        ("MemoryError\n" + "step 3 loss 1.0\n" * 40, False),
        (CAUGHT_THEN_DIED, False),
    ],
)
def test_the_log_speaks_where_no_event_does(tmp_path: Path, text: str, out_of_memory: bool) -> None:
    (tmp_path / "output.log").write_text(text + "\n")
    log = read_exit_log(tmp_path / "output.log")
    outcome = determine_outcome(AT, exited(1), log)
    assert outcome.outcome == ("out-of-memory" if out_of_memory else "failed")
    if out_of_memory:
        message = text.removeprefix("[rank3]: ")
        assert outcome.sentence == f"Out of memory at step 1,200 of 9,000: {message}"
    assert determine_outcome(AT, exited(0), log).outcome == "completed"


def test_a_log_that_cannot_be_read_says_nothing(tmp_path: Path) -> None:
    assert read_exit_log(tmp_path / "none") == NO_LOG


RANKS = with_(world_size=2, ranks={0: RankState(rank=0, host="n1"), 1: RankState(rank=1, host="n1")})
ALONE = with_(ranks={0: RankState(rank=0)})
GONE = Raised(t=2.0, rank=0, type="RuntimeError", message="Connection reset by peer")
LOST = Raised(t=1.0, rank=1, type="RuntimeError", message="[pair.cc:553] Connection closed by peer [127.0.0.1]")
EXITED_3 = {0: RankState(rank=0, ended=True), 1: RankState(rank=1, ended=True, exit_code=3)}


def raised(rank: int | None) -> Raised:
    return Raised(t=1.0, rank=rank, type="KeyError", message="'labels'")


def failed(rank: int, code: int) -> ExitLog:
    """What torchrun reports."""
    return ExitLog(parse_lines([f"failed (exitcode: {code}) local_rank: {rank} (pid: 77) of binary: python"]))


@pytest.mark.parametrize(
    ("state", "log", "start"),
    [
        (with_(RANKS, raised=raised(1)), NO_LOG, "Rank 1 failed at step 1,200"),
        (with_(ALONE, raised=raised(0)), NO_LOG, "The training failed"),
        (with_(RANKS, raised=raised(None)), NO_LOG, "The training failed"),
        (with_(ALONE, out_of_memory=replace(OOM, rank=0)), NO_LOG, "Out of memory while training"),
        (with_(RANKS, out_of_memory=replace(OOM, rank=1), raised=GONE), NO_LOG, "Out of memory on rank 1"),
        # It raised itself before it was ended; native code crashed on another rank; an exit code says less.
        (with_(RANKS, raised=raised(1)), failed(1, -SIGKILL), "Rank 1 failed"),
        (with_(RANKS, raised=raised(1)), failed(0, -SIGSEGV), "Rank 0 was ended"),
        (with_(RANKS, raised=raised(1)), failed(0, 3), "Rank 1 failed"),
        (RANKS, failed(0, -SIGKILL), "Rank 0 was ended"),
        (RANKS, failed(1, 3), "Rank 1 ended at step 1,200 of 9,000 with exit code 3"),
        # A killed rank counts more than those who miss it, and one that raised more than one that aborted after it.
        (with_(RANKS, raised=GONE), failed(1, -9), "Rank 1 was ended at step 1,200 of 9,000 by SIGKILL"),
        (with_(RANKS, raised=raised(1)), failed(0, -SIGABRT), "Rank 1 failed"),
        (with_(RANKS, raised=LOST), failed(0, -SIGABRT), "Rank 0 was ended"),
        # The last error line stands in for a missing exception.
        (RunState(), ExitLog(error="no column `x`"), "The training ended with exit code 1: no c"),
        (with_(raised=raised(0)), ExitLog(error="no column"), "The training failed at step 1,200 of 9"),
    ],
)
def test_the_rank_and_the_reason_are_named(state: RunState, log: ExitLog, start: str) -> None:
    assert determine_outcome(state, exited(1), log).sentence.startswith(start)


@pytest.mark.parametrize(
    ("state", "end", "start"),
    [
        (RunState(), {"exit_code": 1, "evidence": ("a", "b")}, "The training ended with exit code 1: a"),
        (RunState(), {"signal": SIGSEGV}, "The training was ended by SIGSEGV: the sender is"),
        (RunState(), {"signal": SIGSEGV, "evidence": ("a", "b")}, "The training was ended by SIGSEGV: a; b."),
        # `sys.exit(3)` of a rank that nobody watched
        (with_(ranks=EXITED_3), {}, "The training ended at step 1,200 of 9,000 with exit code 3; "),
    ],
)
def test_other_evidence_stands_in_for_an_exception(state: RunState, end: dict[str, Any], start: str) -> None:
    assert determine_outcome(state, Exited(t=1.0, **end)).sentence.startswith(start)


JOB_LOG = "slurmstepd-n1: error: *** JOB 8 ON n1 CANCELLED AT 2026-11-22T21:17:40{} ***\n"
"""As Slurm 22.05 writes it."""
NODE_FAILED = " DUE TO NODE FAILURE, SEE SLURMCTLD LOG FOR DETAILS"


@pytest.mark.parametrize(
    ("reason", "outcome", "sentence"),
    [
        ("", "stopped", "Cancelled in Slurm at step 1,200 of 9,000."),
        (" DUE TO TIME LIMIT", "time-limit", "Ended by Slurm at the time limit at step 1,200 of 9,000."),
        (" DUE TO PREEMPTION", "preempted", "Preempted by another job of Slurm at step 1,200 of 9,000."),
        (NODE_FAILED, "node-lost", "Ended by Slurm because a node failed at step 1,200 of 9,000."),
    ],
)
def test_what_slurm_says_of_the_end_of_a_job(tmp_path: Path, reason: str, outcome: str, sentence: str) -> None:
    (tmp_path / "slurm.log").write_text(JOB_LOG.format(reason))
    assert slurm_end(AT, tmp_path / "none") is None
    result = slurm_end(AT, tmp_path)
    assert result is not None
    assert (result.outcome, result.sentence) == (outcome, sentence)


NODE_FAILURE = """srun: error: Node failure on gpu-37
srun: Job step aborted: Waiting up to 62 seconds for job step to finish.
"""


def test_srun_names_the_node_that_failed(tmp_path: Path) -> None:
    (tmp_path / "output.log").write_text("step 7\n" + NODE_FAILURE)
    evidence = read_exit_log(tmp_path / "output.log")
    assert determine_outcome(AT, exited(1), evidence).sentence == (
        "Node gpu-37 was lost at step 1,200 of 9,000: Slurm reports its failure."
    )
    (tmp_path / "slurm.log").write_text(JOB_LOG.format(NODE_FAILED))
    ended = slurm_end(AT, tmp_path, evidence.failed_node)
    assert ended is not None
    assert ended.sentence == "Ended by Slurm because node gpu-37 failed at step 1,200 of 9,000."


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
def test_messages_of_a_kill(line: str, killed: bool) -> None:
    assert reports_kill(line) is killed


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
    assert read_exit_log(log).error == why


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
        with socket.socket() as second_socket:
            second_socket.bind(("", number))


@pytest.mark.parametrize("log", ["", "port: 29500 is used", "[Errno 98] Address already in use"])
def test_silence_without_a_taken_port(log: str) -> None:
    assert taken_port_evidence(log) == ()
