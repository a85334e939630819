"""The status of runs whose processes are on another machine: by Slurm's word, never by a pid."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from msgspec.structs import replace

from tests.fakes.slurm import FakeSlurm, row, submitted
from tuner_tui.core.procfs import Machine, identify_process
from tuner_tui.runs.events.run_state import RunState
from tuner_tui.runs.read.status import RunStatus, read_status
from tuner_tui.runs.slurm import SlurmJob, ask, cancel_job, read_job, write_job
from tuner_tui.runs.store.folder import RunFolder, SupervisorState, read_supervisor_state, write_supervisor_state
from tuner_tui.runs.supervise.outcome import RunOutcome, slurm_end

NODE = Machine("n1", "the boot of n1", "pid:[1]")


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    submitted(tmp_path, 1)
    return RunFolder(tmp_path / "runs/r001")


def started(folder: RunFolder, **changes: object) -> None:
    """The run is on another machine, under pids that belong to this test here."""
    mine = identify_process(os.getpid())
    assert mine is not None
    state = SupervisorState(NODE, mine, time.time() - 60, mine)
    write_supervisor_state(folder.state, replace(state, **changes))


def status(folder: RunFolder, *jobs: tuple[str, ...]) -> RunStatus:
    ask(folder.path.parent.parent, FakeSlurm(list(jobs)))
    return read_status(folder)


@pytest.mark.parametrize(
    ("state", "kind", "sentence"),
    [
        ("PENDING", "pending", "Slurm job 1 waits to start: not looked at yet."),
        ("CONFIGURING", "starting", "Slurm job 1 starts on n1."),
        ("CANCELLED", "ended", "Slurm job 1 was cancelled in Slurm before the training started."),
        ("FAILED", "ended", "Slurm job 1 failed before the training started."),
        ("NODE_FAIL", "ended", "Slurm job 1 ended because a node failed before the training started."),
    ],
)
def test_before_the_start(folder: RunFolder, state: str, kind: str, sentence: str) -> None:
    now = status(folder, row(1, state))
    assert (now.kind, now.sentence) == (kind, sentence)


@pytest.mark.parametrize(
    ("state", "outcome", "sentence"),
    [
        ("NODE_FAIL", "node-lost", "Slurm job 1 ended because a node failed."),
        ("TIMEOUT", "time-limit", "Slurm job 1 was ended at its time limit."),
        ("PREEMPTED", "preempted", "Slurm job 1 was preempted by another job."),
        ("CANCELLED", "stopped", "Slurm job 1 was cancelled in Slurm."),
        ("OUT_OF_MEMORY", "out-of-memory", "Slurm job 1 ran out of the memory that was allocated on the host."),
    ],
)
def test_an_end_that_no_supervisor_recorded_is_recorded_here(
    folder: RunFolder, state: str, outcome: str, sentence: str
) -> None:
    started(folder)
    now = status(folder, row(1, state))
    assert (now.kind, now.outcome, now.sentence) == ("ended", outcome, sentence)
    recorded = read_supervisor_state(folder.state)
    assert recorded is not None
    assert (recorded.outcome, recorded.sentence) == (outcome, sentence)


def test_a_running_job_is_live_and_has_no_pid_here(folder: RunFolder) -> None:
    started(folder)
    now = status(folder, row(1, "RUNNING"))
    assert (now.kind, now.sentence, now.live, now.pid) == (
        "running",
        "Running on n1 as Slurm job 1.",
        True,
        None,
    )


def test_a_live_pid_of_the_same_number_here_proves_nothing(folder: RunFolder) -> None:
    started(folder)
    assert not status(folder, row(1, "NODE_FAIL")).live


def test_a_job_that_slurm_forgot_is_unknown(folder: RunFolder) -> None:
    started(folder)
    now = status(folder)
    assert (now.kind, now.live) == ("lost", False)
    assert now.sentence == "Slurm does not know job 1 any more; how the run ended is unknown."
    (folder.path / "slurm.log").write_text(
        "error: *** JOB 1 ON n1 CANCELLED AT 2026-11-22T21:17:40 DUE TO TIME LIMIT ***"
    )
    now = read_status(folder)
    assert (now.kind, now.outcome, now.sentence) == ("ended", "time-limit", "Ended by Slurm at the time limit.")


def test_a_submission_whose_caller_was_killed(folder: RunFolder) -> None:
    write_job(folder.path, SlurmJob(time.time()))
    assert status(folder).sentence == "The Slurm job was submitted."
    write_job(folder.path, SlurmJob(time.time() - 120))
    assert status(folder).kind == "lost"


def test_a_controller_that_is_down_is_said(folder: RunFolder) -> None:
    started(folder)
    ask(folder.path.parent.parent, FakeSlurm(down=True))
    status = read_status(folder)
    assert (status.kind, status.live) == ("running", True)
    sentence = "Running on n1 as Slurm job 1 at the last reading: The Slurm controller does not answer squeue."
    assert status.sentence == sentence


def test_a_start_is_newer_than_the_last_answer(folder: RunFolder) -> None:
    ask(folder.path.parent.parent, FakeSlurm([row(1, "PENDING")]))
    started(folder, started_t=time.time() + 1)
    assert read_status(folder).kind == "running"


@pytest.mark.parametrize(
    ("state", "kind", "end"),
    [
        ("PENDING", "pending", "Slurm job 1 reached its time limit and continues the run: not looked at yet."),
        ("COMPLETING", "pending", "Slurm job 1 reached its time limit and continues the run."),
        ("CANCELLED", "ended", "Slurm job 1 was cancelled in Slurm before it continued the run."),
    ],
)
def test_after_the_time_limit(folder: RunFolder, state: str, kind: str, end: str) -> None:
    job = read_job(folder.path)
    assert job is not None
    write_job(folder.path, replace(job, requeued_t=time.time()))
    started(folder, outcome="stopped", sentence="Stopped at step 7.")
    now = status(folder, row(1, state))
    assert (now.kind, now.sentence) == (kind, f"Stopped at step 7. {end}")
    if kind == "ended":
        return
    write_job(folder.path, replace(job, requeued_t=time.time(), continued_by="r002"))
    assert status(folder, row(1, state)).sentence == "Stopped at step 7."


@pytest.mark.parametrize(
    ("outcome", "state", "kind", "result", "sentence"),
    [
        ("preempted", "PENDING", "pending", None, "Ended. Slurm job 1 waits to start again: not looked at yet."),
        ("preempted", "COMPLETING", "pending", None, "Ended. Slurm job 1 will start again."),
        ("stopped", "PENDING", "pending", None, "Ended. Slurm job 1 waits to start again: not looked at yet."),
        ("stopped", "COMPLETING", "ended", "stopped", "Ended."),
        ("stopped", "PREEMPTED", "ended", "preempted", "Slurm job 1 was preempted by another job."),
        ("stopped", "TIMEOUT", "ended", "time-limit", "Slurm job 1 was ended at its time limit."),
        ("failed", "NODE_FAIL", "ended", "node-lost", "Slurm job 1 ended because a node failed."),
        (
            "stopped",
            "OUT_OF_MEMORY",
            "ended",
            "out-of-memory",
            "Slurm job 1 ran out of the memory that was allocated on the host.",
        ),
        ("time-limit", "COMPLETED", "ended", "time-limit", "Ended."),
        ("completed", "PENDING", "ended", "completed", "Ended."),
    ],
)
def test_slurm_is_asked_how_the_job_of_an_ended_run_goes_on(
    folder: RunFolder, outcome: str, state: str, kind: str, result: str | None, sentence: str
) -> None:
    started(folder, outcome=outcome, sentence="Ended.", ended_t=time.time())
    looked = status(folder, row(1, state))
    assert (looked.kind, looked.outcome, looked.sentence) == (kind, result, sentence)
    if result is not None:
        assert status(folder, row(1, "FAILED")).outcome == result  # it was recorded


def test_the_stop_of_a_person_is_not_overruled(folder: RunFolder) -> None:
    cancel_job(folder.path)
    started(folder, outcome="stopped", sentence="Stopped on request.", ended_t=time.time())
    assert status(folder, row(1, "PREEMPTED")).outcome == "stopped"


def test_the_time_limit_of_a_job_that_is_not_requeued_is_its_ending(folder: RunFolder) -> None:
    write_job(folder.path, SlurmJob(time.time(), "1", requeues=False, limit_t=time.time()))
    state = RunState(stop_requested="stop", step=7, total_steps=9)
    end = slurm_end(state, folder.path)
    assert end == RunOutcome("time-limit", "Stopped at step 7 of 9 at the time limit of its Slurm job.")
    cancel_job(folder.path)
    assert slurm_end(state, folder.path) is None
