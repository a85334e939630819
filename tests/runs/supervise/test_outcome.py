"""Outcomes of runs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from signal import SIGABRT, SIGKILL, SIGSEGV, SIGTERM

import pytest

from tuner_tui.runs.events.run_state import RankState, RunState
from tuner_tui.runs.events.types import Exited, OutOfMemory, Raised, StopRequested
from tuner_tui.runs.supervise.exit_evidence import FailedRank, LogEvidence, read_log_evidence
from tuner_tui.runs.supervise.outcome import determine_outcome, slurm_end

AT = RunState(step=1200, total_steps=9000)
OOM = OutOfMemory(t=1.0, message="CUDA out of memory. Tried to allocate 2.00 GiB", where="training", step=1200)


def exited(code: int | None = None, signal: int | None = None, oom_kill: bool | None = None) -> Exited:
    return Exited(t=2.0, exit_code=code, signal=signal, oom_kill=oom_kill)


def with_(state: RunState = AT, **more: object) -> RunState:
    return type(state)(**{name: getattr(state, name) for name in state.__slots__} | more)


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
        (
            with_(raised=Raised(t=1.0, type="builtins.MemoryError", message="")),
            exited(1),
            "out-of-memory",
            "MemoryError",
        ),
        (with_(raised=Raised(t=1.0, type="KeyError", message="'labels'")), exited(1), "failed", "KeyError: 'labels'"),
        (
            with_(out_of_memory=OOM, raised=Raised(t=1.5, type="ValueError", message="later")),
            exited(1),
            "failed",
            "ValueError: later",
        ),
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


def test_the_log_speaks_where_no_event_does() -> None:
    line = "RuntimeError: [enforce fail at alloc_cpu.cpp:117] DefaultCPUAllocator: can't allocate memory"
    assert determine_outcome(AT, exited(1), LogEvidence(out_of_memory=line)).outcome == "out-of-memory"
    assert determine_outcome(AT, exited(0), LogEvidence(out_of_memory=line)).outcome == "completed"
    assert (
        determine_outcome(
            with_(raised=Raised(t=1.0, type="KeyError", message="x")), exited(1), LogEvidence(out_of_memory=line)
        ).outcome
        == "failed"
    )


def test_a_stop_request_is_named_as_the_cause_only_where_it_was() -> None:
    state = with_(stop_requested=StopRequested(t=1.0, how="stop").how, raised=None)
    assert determine_outcome(state, exited(1)).outcome == "stopped"


RANKS = with_(ranks={0: RankState(rank=0), 1: RankState(rank=1)})
GONE = Raised(t=2.0, rank=0, type="RuntimeError", message="Connection reset by peer")


def test_a_rank_is_named() -> None:
    raised = Raised(t=1.0, rank=1, type="KeyError", message="'labels'")
    assert determine_outcome(with_(RANKS, raised=raised), exited(1)).sentence.startswith("Rank 1 failed at step 1,200")


def test_the_only_rank_is_the_training() -> None:
    """And so is a rank that is not known among several."""
    alone = with_(AT, ranks={0: RankState(rank=0)})
    raised = Raised(t=1.0, rank=0, type="KeyError", message="'labels'")
    assert determine_outcome(with_(alone, raised=raised), exited(1)).sentence.startswith("The training failed")
    full = determine_outcome(with_(alone, out_of_memory=replace(OOM, rank=0)), exited(1))
    assert full.sentence.startswith("Out of memory while training")
    unknown = determine_outcome(with_(RANKS, raised=replace(raised, rank=None)), exited(1))
    assert unknown.sentence.startswith("The training failed")


@pytest.mark.parametrize(
    ("raised_by", "failed", "start"),
    [
        (1, FailedRank(1, -SIGKILL), "Rank 1 failed"),  # it raised itself before it was ended
        (1, FailedRank(0, -SIGSEGV), "Rank 0 was ended"),  # native code crashed on another rank
        (1, FailedRank(0, 3), "Rank 1 failed"),  # an exit code says less than an exception
        (None, FailedRank(0, -SIGKILL), "Rank 0 was ended"),
    ],
)
def test_an_exception_and_the_exit_that_a_launcher_saw(raised_by: int | None, failed: FailedRank, start: str) -> None:
    raised = None if raised_by is None else Raised(t=1.0, rank=raised_by, type="ValueError", message="enough")
    judged = determine_outcome(with_(RANKS, raised=raised), exited(1), LogEvidence(failed_rank=failed))
    assert judged.sentence.startswith(start)


def test_a_killed_rank_counts_more_than_those_who_miss_it() -> None:
    judged = determine_outcome(with_(RANKS, raised=GONE), exited(1), LogEvidence(failed_rank=FailedRank(1, -9)))
    assert judged.sentence.startswith("Rank 1 was ended at step 1,200 of 9,000 by SIGKILL")
    alone = determine_outcome(RANKS, exited(1), LogEvidence(failed_rank=FailedRank(1, 3)))
    assert alone.sentence.startswith("Rank 1 ended at step 1,200 of 9,000 with exit code 3")


def test_out_of_memory_of_one_rank_is_the_reason() -> None:
    judged = determine_outcome(with_(RANKS, out_of_memory=replace(OOM, rank=1), raised=GONE), exited(1))
    assert judged.outcome == "out-of-memory"
    assert "on rank 1 while training" in judged.sentence


def test_the_last_error_line_replaces_a_missing_exception() -> None:
    judged = determine_outcome(RunState(), exited(2), LogEvidence(error="the data has no column `x`"))
    assert judged.sentence == "The training ended with exit code 2: the data has no column `x`."
    raised = Raised(t=1.0, rank=0, type="KeyError", message="'x'")
    assert (
        "column"
        not in determine_outcome(with_(raised=raised), exited(1), LogEvidence(error="the data has no column")).sentence
    )


def test_a_rank_that_raised_is_the_reason_though_another_aborted_after_it() -> None:
    enough = Raised(t=1.0, rank=1, type="ValueError", message="rank one had enough")
    judged = determine_outcome(with_(RANKS, raised=enough), exited(1), LogEvidence(failed_rank=FailedRank(0, -SIGABRT)))
    assert judged.sentence.startswith("Rank 1 failed")
    assert judged.sentence.endswith("ValueError: rank one had enough.")
    lost = Raised(t=1.0, rank=1, type="RuntimeError", message="[pair.cc:553] Connection closed by peer [127.0.0.1]")
    judged = determine_outcome(with_(RANKS, raised=lost), exited(1), LogEvidence(failed_rank=FailedRank(0, -SIGABRT)))
    assert judged.sentence.startswith("Rank 0 was ended")


def test_a_code_given_to_sys_exit_is_a_failure_though_nobody_watched() -> None:
    ended = with_(ranks={0: RankState(rank=0, ended=True), 1: RankState(rank=1, ended=True, exit_code=3)})
    judged = determine_outcome(ended, Exited(t=1.0))
    assert (judged.outcome, judged.sentence[:60]) == (
        "failed",
        "The training ended at step 1,200 of 9,000 with exit code 3; ",
    )
    well = with_(ranks={0: RankState(rank=0, ended=True, exit_code=0)})
    assert determine_outcome(well, Exited(t=1.0)).outcome == "completed"


def test_evidence_stands_in_for_a_missing_message() -> None:
    end = Exited(t=1.0, exit_code=1, evidence=("port 29500 is used by process 7 (x)", "port 4 is free"))
    assert determine_outcome(RunState(), end).sentence.endswith("exit code 1: port 29500 is used by process 7 (x).")


@pytest.mark.parametrize(
    ("evidence", "why"),
    [((), "the sender is unknown"), (("earlyoom ran", "3 MB were free"), "earlyoom ran; 3 MB were free")],
)
def test_what_is_known_of_the_sender_of_a_signal(evidence: tuple[str, ...], why: str) -> None:
    end = Exited(t=1.0, signal=SIGSEGV, evidence=evidence)
    assert determine_outcome(RunState(), end).sentence == f"The training was ended by SIGSEGV: {why}."


JOB_LOG = "slurmstepd-n1: error: *** JOB 8 ON n1 CANCELLED AT 2026-11-22T21:17:40{} ***\n"
"""As Slurm 22.05 writes it."""


@pytest.mark.parametrize(
    ("reason", "outcome", "sentence"),
    [
        ("", "stopped", "Cancelled in Slurm at step 1,200 of 9,000."),
        (" DUE TO TIME LIMIT", "killed", "Ended by Slurm at the time limit at step 1,200 of 9,000."),
        (" DUE TO PREEMPTION", "killed", "Preempted by another job of Slurm at step 1,200 of 9,000."),
        (
            " DUE TO NODE FAILURE, SEE SLURMCTLD LOG FOR DETAILS",
            "killed",
            "Ended by Slurm because a node failed at step 1,200 of 9,000.",
        ),
    ],
)
def test_what_slurm_says_of_the_end_of_a_job(tmp_path: Path, reason: str, outcome: str, sentence: str) -> None:
    log = tmp_path / "slurm.log"
    log.write_text(JOB_LOG.format(reason))
    assert slurm_end(AT, tmp_path / "none") is None
    found = slurm_end(AT, log)
    assert found is not None
    assert (found.outcome, found.sentence) == (outcome, sentence)


TWO_NODES = replace(
    AT, ranks={number: RankState(number, 7, host=("n1", "n1", "n2", "n2")[number]) for number in range(4)}
)
NODE_FAILURE = """srun: error: Node failure on gpu-37
srun: Job step aborted: Waiting up to 62 seconds for job step to finish.
"""


def test_srun_names_the_node_that_failed(tmp_path: Path) -> None:
    (tmp_path / "output.log").write_text("step 7\n" + NODE_FAILURE)
    evidence = read_log_evidence(tmp_path / "output.log")
    assert determine_outcome(TWO_NODES, exited(1), evidence).sentence == (
        "Node gpu-37 was lost at step 1,200 of 9,000: Slurm reports its failure."
    )
    (tmp_path / "slurm.log").write_text(JOB_LOG.format(" DUE TO NODE FAILURE, SEE SLURMCTLD LOG FOR DETAILS"))
    ended = slurm_end(AT, tmp_path / "slurm.log", evidence.failed_node)
    assert ended is not None
    assert ended.sentence == "Ended by Slurm because node gpu-37 failed at step 1,200 of 9,000."
